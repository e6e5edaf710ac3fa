//! A run as a database file in the schema of `nsys export --type sqlite`, so that queries written for
//! exports of real runs read a simulated one.
//!
//! Tables, columns and enumerations are those of schema 3.13, as far as a simulation has something to
//! say; like there, a table without rows is not created. Not modelled and therefore 0 or NULL: program
//! counters, threads per block, registers and shared memory.
//!
//! | table | row |
//! | --- | --- |
//! | `CUDA_UM_GPU_PAGE_FAULT_EVENTS` | one page of one batch: `start` its first fault, `end` the replay, `numberOfPageFaults` its entries |
//! | `CUDA_UM_CPU_PAGE_FAULT_EVENTS` | one CPU fault |
//! | `CUPTI_ACTIVITY_KIND_MEMCPY` | one copy; `copyKind` 11 and 12, `migrationCause` as the driver's |
//! | `CUPTI_ACTIVITY_KIND_KERNEL` | one kernel |
//! | `CUPTI_ACTIVITY_KIND_RUNTIME` | one call of the program's thread |
//! | `CUDA_GPU_MEMORY_USAGE_EVENTS` | a managed range allocated or freed |

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, params};
use sim_core::Time;
use sim_core::access::AccessKind;
use sim_core::push::Cause;
use sim_core::tools::{Processor, ToolsEvent, access_type};

use super::tables::{int, ns};
use crate::system::{Probe, Record};

/// The process of a simulated program, as exports encode it: process number 1 in bits 24 and up.
const GLOBAL_PID: i64 = 1 << 24;
const GLOBAL_TID: i64 = GLOBAL_PID | 1;
const CONTEXT: i64 = 1;
/// `ENUM_CUDA_MEM_KIND`: managed, and unknown, which migrations carry.
const MANAGED: i64 = 4;
const UNKNOWN: i64 = 7;

/// What the export says of the GPU.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Device memory for managed data, bytes.
    pub memory: u64,
    /// SMs.
    pub sms: u32,
    /// Bandwidth of its memory, bytes per second.
    pub bandwidth: u64,
}

/// Entries of one page in the batch that is being serviced.
#[derive(Clone, Copy, Debug)]
struct Group {
    first: Time,
    entries: i64,
    access: AccessKind,
}

/// Writes an export while a simulation runs.
pub struct NsysExport {
    db: Connection,
    strings: BTreeMap<String, i64>,
    tables: BTreeSet<&'static str>,
    faults: BTreeMap<u64, Group>,
    last: Time,
    failed: Option<rusqlite::Error>,
}

const META: &str = "CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL, name TEXT, totalMemory INTEGER, smCount INTEGER,
        memoryBandwidth INTEGER);";

const KERNEL: (&str, &str) = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
     greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
     demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
     gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,
     blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, gridId INTEGER NOT NULL",
);
const MEMCPY: (&str, &str) = (
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
     greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
     bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER,
     dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER,
     dstContextId INTEGER, migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER",
);
const RUNTIME: (&str, &str) = (
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
     correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER",
);
const GPU_FAULT: (&str, &str) = (
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL,
     address INTEGER NOT NULL, numberOfPageFaults INTEGER NOT NULL, faultAccessType INTEGER NOT NULL",
);
const CPU_FAULT: (&str, &str) = (
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
    "start INTEGER NOT NULL, globalPid INTEGER NOT NULL, address INTEGER NOT NULL,
     originalFaultPc INTEGER, CpuInstruction INTEGER NOT NULL, module INTEGER NOT NULL,
     unresolvedFaultPc INTEGER",
);
const MEMORY: (&str, &str) = (
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL,
     contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL, bytes INTEGER NOT NULL,
     memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT, correlationId INTEGER,
     streamId INTEGER",
);

/// Enumerations that rows refer to: table, then its rows (id, name, label).
type Enumeration = (&'static str, &'static [(i64, &'static str, &'static str)]);

const ENUMS: [Enumeration; 5] = [
    (
        "ENUM_CUDA_MEMCPY_OPER",
        &[
            (0, "CUDA_MEMCPY_KIND_UNKNOWN", "Unknown"),
            (1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"),
            (2, "CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"),
            (8, "CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"),
            (11, "CUDA_MEMCPY_KIND_UVM_HTOD", "Unified Host-to-Device"),
            (12, "CUDA_MEMCPY_KIND_UVM_DTOH", "Unified Device-to-Host"),
            (13, "CUDA_MEMCPY_KIND_UVM_DTOD", "Unified Device-to-Device"),
        ],
    ),
    (
        "ENUM_CUDA_MEM_KIND",
        &[
            (0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable"),
            (1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"),
            (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device"),
            (4, "CUDA_MEMOPR_MEMORY_KIND_MANAGED", "Managed"),
            (7, "CUDA_MEMOPR_MEMORY_KIND_UNKNOWN", "Unknown"),
        ],
    ),
    (
        "ENUM_CUDA_UNIF_MEM_MIGRATION",
        &[
            (0, "CUDA_UNIFIED_MEMORY_MIGRATION_CAUSE_UNKNOWN", "Unknown"),
            (1, "CUDA_UNIFIED_MEMORY_MIGRATION_CAUSE_USER", "User prefetch"),
            (2, "CUDA_UNIFIED_MEMORY_MIGRATION_CAUSE_COHERENCE", "Page fault"),
            (
                3,
                "CUDA_UNIFIED_MEMORY_MIGRATION_CAUSE_PREFETCH",
                "Speculative prefetch",
            ),
            (4, "CUDA_UNIFIED_MEMORY_MIGRATION_CAUSE_EVICTION", "Eviction"),
            (
                5,
                "CUDA_UNIFIED_MEMORY_MIGRATION_CAUSE_ACCESS_COUNTERS",
                "Access counters",
            ),
        ],
    ),
    (
        "ENUM_CUDA_UNIF_MEM_ACCESS_TYPE",
        &[
            (0, "CUDA_UNIFIED_MEMORY_ACCESS_TYPE_UNKNOWN", "Unknown"),
            (1, "CUDA_UNIFIED_MEMORY_ACCESS_TYPE_READ", "Read"),
            (2, "CUDA_UNIFIED_MEMORY_ACCESS_TYPE_WRITE", "Write"),
            (3, "CUDA_UNIFIED_MEMORY_ACCESS_TYPE_ATOMIC", "Atomic"),
            (4, "CUDA_UNIFIED_MEMORY_ACCESS_TYPE_PREFETCH", "Prefetch"),
        ],
    ),
    (
        "ENUM_CUDA_DEV_MEM_EVENT_OPER",
        &[
            (0, "CUDA_DEV_MEM_EVENT_OPR_ALLOCATION", "Allocation"),
            (1, "CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION", "Deallocation"),
        ],
    ),
];

impl NsysExport {
    /// Creates the file, which must not exist.
    ///
    /// # Errors
    /// Of the database.
    pub fn create(path: &Path, device: &Device) -> rusqlite::Result<NsysExport> {
        let db = Connection::open(path)?;
        // The file is thrown away if anything fails: no journal, one transaction.
        db.pragma_update(None, "journal_mode", "OFF")?;
        db.pragma_update(None, "synchronous", "OFF")?;
        db.set_prepared_statement_cache_capacity(32);
        db.execute_batch("BEGIN")?;
        db.execute_batch(META)?;
        for (name, value) in [
            ("EXPORT_SCHEMA_VERSION", "3.13.0"),
            ("EXPORT_SCHEMA_VERSION_MAJOR", "3"),
            ("EXPORT_SCHEMA_VERSION_MINOR", "13"),
            (
                "EXPORT_PRODUCT_NAME",
                concat!("uvmsim ", env!("CARGO_PKG_VERSION")),
            ),
        ] {
            db.execute("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", params![name, value])?;
        }
        for (table, values) in ENUMS {
            db.execute_batch(&format!(
                "CREATE TABLE {table} (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT)"
            ))?;
            for (id, name, label) in values {
                let insert = format!("INSERT INTO {table} VALUES (?, ?, ?)");
                db.execute(&insert, params![id, name, label])?;
            }
        }
        db.execute(
            "INSERT INTO TARGET_INFO_GPU VALUES (0, ?, ?, ?, ?)",
            params![device.name, int(device.memory), device.sms, int(device.bandwidth)],
        )?;
        let mut export = NsysExport {
            db,
            strings: BTreeMap::new(),
            tables: BTreeSet::new(),
            faults: BTreeMap::new(),
            last: Time::ZERO,
            failed: None,
        };
        export.string("[Unknown]")?;
        Ok(export)
    }

    fn string(&mut self, text: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.strings.get(text) {
            return Ok(*id);
        }
        let id = int(self.strings.len() as u64);
        self.strings.insert(text.to_owned(), id);
        self.db
            .execute("INSERT INTO StringIds VALUES (?, ?)", params![id, text])?;
        Ok(id)
    }

    /// A row of a table, which is created with its first one.
    fn insert(
        &mut self,
        (table, columns): (&'static str, &str),
        names: &str,
        values: &[&dyn rusqlite::ToSql],
    ) -> rusqlite::Result<()> {
        if self.tables.insert(table) {
            self.db
                .execute_batch(&format!("CREATE TABLE {table} ({columns})"))?;
        }
        let marks = vec!["?"; values.len()].join(", ");
        self.db
            .prepare_cached(&format!("INSERT INTO {table} ({names}) VALUES ({marks})"))?
            .execute(values)?;
        Ok(())
    }

    fn flush_faults(&mut self, end: Time) -> rusqlite::Result<()> {
        for (address, group) in std::mem::take(&mut self.faults) {
            self.insert(
                GPU_FAULT,
                "start, end, globalPid, deviceId, address, numberOfPageFaults, faultAccessType",
                params![
                    ns(group.first),
                    ns(end),
                    GLOBAL_PID,
                    0,
                    int(address),
                    group.entries,
                    access_type(group.access)
                ],
            )?;
        }
        Ok(())
    }

    fn tools(&mut self, event: &ToolsEvent) -> rusqlite::Result<()> {
        match *event {
            ToolsEvent::GpuFault {
                access,
                address,
                time_gpu,
                ..
            } => {
                let group = self.faults.entry(address).or_insert(Group {
                    first: time_gpu,
                    entries: 0,
                    access,
                });
                group.entries += 1;
                group.first = group.first.min(time_gpu);
                group.access = group.access.max(access);
            }
            ToolsEvent::GpuFaultReplay { time_gpu, .. } => self.flush_faults(time_gpu)?,
            ToolsEvent::Migration {
                cause,
                dst,
                address,
                bytes,
                begin_gpu,
                end_gpu,
                ..
            } => {
                let kind = match dst {
                    Processor::Gpu => 11,
                    Processor::Cpu => 12,
                };
                self.last = self.last.max(end_gpu);
                self.insert(
                    MEMCPY,
                    "start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, copyKind, \
                     srcKind, dstKind, migrationCause, virtualAddress",
                    params![
                        ns(begin_gpu),
                        ns(end_gpu),
                        0,
                        0,
                        0,
                        0,
                        GLOBAL_PID,
                        int(bytes),
                        kind,
                        UNKNOWN,
                        UNKNOWN,
                        cause as Cause as i64,
                        int(address)
                    ],
                )?;
            }
            ToolsEvent::CpuFault { address, time, .. } => {
                let unknown = self.string("[Unknown]")?;
                self.insert(
                    CPU_FAULT,
                    "start, globalPid, address, CpuInstruction, module",
                    params![ns(time), GLOBAL_PID, int(address), unknown, unknown],
                )?;
            }
            // Exports have no tables for the other events.
            _ => {}
        }
        Ok(())
    }

    fn write(&mut self, record: &Record) -> rusqlite::Result<()> {
        match record {
            Record::Tools(event) => self.tools(event),
            Record::Kernel {
                name,
                stream,
                blocks,
                start,
                end,
                correlation,
            } => {
                self.last = self.last.max(*end);
                let name = self.string(name)?;
                self.insert(
                    KERNEL,
                    "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, \
                     shortName, gridX, gridY, gridZ, blockX, blockY, blockZ, gridId",
                    params![
                        ns(*start),
                        ns(*end),
                        0,
                        CONTEXT,
                        stream,
                        int(*correlation),
                        GLOBAL_PID,
                        name,
                        name,
                        int(*blocks),
                        1,
                        1,
                        0,
                        0,
                        0,
                        0
                    ],
                )
            }
            Record::Call {
                name,
                start,
                end,
                correlation,
            } => {
                let name = self.string(name)?;
                self.insert(
                    RUNTIME,
                    "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
                    params![ns(*start), ns(*end), 0, GLOBAL_TID, int(*correlation), name, 0],
                )
            }
            Record::ManagedRange {
                allocated,
                address,
                bytes,
                time,
                correlation,
            } => self.insert(
                MEMORY,
                "start, globalPid, deviceId, contextId, address, pc, bytes, memKind, memoryOperationType, \
                 correlationId",
                params![
                    ns(*time),
                    GLOBAL_PID,
                    0,
                    CONTEXT,
                    int(*address),
                    0,
                    int(*bytes),
                    MANAGED,
                    i64::from(!allocated),
                    int(*correlation)
                ],
            ),
        }
    }

    /// Completes the file.
    ///
    /// # Errors
    /// The first error of any write.
    pub fn finish(mut self) -> rusqlite::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.flush_faults(self.last)?;
        self.db.execute_batch("COMMIT")
    }
}

impl Probe for NsysExport {
    fn record(&mut self, record: &Record) {
        if self.failed.is_none() {
            self.failed = self.write(record).err();
        }
    }
}
