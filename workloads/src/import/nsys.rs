//! Nsight Systems exports (`nsys export --type sqlite`): kernels, copies, managed memory, and what the
//! unified-memory system did.
//!
//! An export knows which kernels ran, not what they touched. Managed ranges come from memory-usage events,
//! else from the addresses of migrations; a kernel is taken to touch what migrated or faulted during it,
//! and all managed ranges live at that time if nothing did.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row};

use super::builder::{Builder, NewKernel, Tensor};
use super::{ImportError, Imported};
use crate::program::Piece;

const FORMAT: &str = "an Nsight Systems SQLite export";
/// Addresses of migrations closer than this belong to one range: the granule of managed memory.
const GRANULE: u64 = 2 << 20;

struct Export<'a> {
    db: Connection,
    file: &'a Path,
}

#[derive(Clone, Debug)]
struct KernelRow {
    start: i64,
    end: i64,
    stream: i64,
    name: String,
}

#[derive(Clone, Copy, Debug)]
struct CopyRow {
    start: i64,
    bytes: u64,
    kind: i64,
    cause: i64,
    address: Option<u64>,
}

impl Export<'_> {
    fn error(&self, table: &str, error: &rusqlite::Error) -> ImportError {
        ImportError::Malformed {
            file: self.file.to_path_buf(),
            format: FORMAT,
            place: format!("table {table}"),
            what: format!("{error}; export the report anew with `nsys export --type sqlite`"),
        }
    }

    /// The columns of a table; none if there is no such table.
    fn columns(&self, table: &str) -> Result<BTreeSet<String>, ImportError> {
        let read = || {
            let mut query = self.db.prepare("SELECT name FROM pragma_table_info(?)")?;
            query
                .query_map([table], |row| row.get::<_, String>(0))?
                .collect::<rusqlite::Result<BTreeSet<String>>>()
        };
        read().map_err(|error| self.error(table, &error))
    }

    /// Rows of a table with these columns, in order of `start`; a missing column reads as NULL, and a
    /// missing table has no rows.
    fn rows<T>(
        &self,
        table: &str,
        needed: &[&str],
        columns: &[&str],
        make: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, ImportError> {
        let there = self.columns(table)?;
        if there.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(missing) = needed.iter().find(|column| !there.contains(**column)) {
            return Err(ImportError::Malformed {
                file: self.file.to_path_buf(),
                format: FORMAT,
                place: format!("table {table}"),
                what: format!("there is no column {missing:?}"),
            });
        }
        // Names come from this file, never from the export.
        let list: Vec<String> = columns
            .iter()
            .map(|column| {
                if there.contains(*column) {
                    format!("\"{column}\"")
                } else {
                    "NULL".to_owned()
                }
            })
            .collect();
        let sql = format!("SELECT {} FROM \"{table}\" ORDER BY \"start\"", list.join(", "));
        let read = || {
            let mut query = self.db.prepare(&sql)?;
            query
                .query_map([], |row| make(row))?
                .collect::<rusqlite::Result<Vec<T>>>()
        };
        read().map_err(|error| self.error(table, &error))
    }

    fn strings(&self) -> Result<BTreeMap<i64, String>, ImportError> {
        if self.columns("StringIds")?.is_empty() {
            return Ok(BTreeMap::new());
        }
        let read = || {
            let mut query = self.db.prepare("SELECT id, value FROM StringIds")?;
            query
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<BTreeMap<i64, String>>>()
        };
        read().map_err(|error| self.error("StringIds", &error))
    }

    /// A value of one row, if the table is there.
    fn value<T: rusqlite::types::FromSql>(&self, table: &str, sql: &str) -> Result<Option<T>, ImportError> {
        if self.columns(table)?.is_empty() {
            return Ok(None);
        }
        match self.db.query_row(sql, [], |row| row.get::<_, Option<T>>(0)) {
            Ok(value) => Ok(value),
            Err(rusqlite::Error::QueryReturnedNoRows) => Ok(None),
            Err(error) => Err(self.error(table, &error)),
        }
    }
}

fn unsigned(value: Option<i64>) -> Option<u64> {
    value.map(|value| u64::from_ne_bytes(value.to_ne_bytes()))
}

/// Imports an export.
///
/// # Errors
/// Which table breaks, and what to try.
pub fn import(file: &Path) -> Result<Imported, ImportError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags).map_err(|error| ImportError::Malformed {
        file: file.to_path_buf(),
        format: FORMAT,
        place: "on opening".to_owned(),
        what: error.to_string(),
    })?;
    let export = Export { db, file };
    let strings = export.strings()?;
    let kernels = export.rows(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        &["start", "end"],
        &["start", "end", "streamId", "shortName", "demangledName"],
        |row| {
            let name: Option<i64> = row.get::<_, Option<i64>>(3)?.or(row.get(4)?);
            Ok(KernelRow {
                start: row.get(0)?,
                end: row.get(1)?,
                stream: row.get::<_, Option<i64>>(2)?.unwrap_or(0),
                name: name
                    .and_then(|id| strings.get(&id).cloned())
                    .unwrap_or_else(|| "kernel".to_owned()),
            })
        },
    )?;
    let copies = export.rows(
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        &["start", "bytes", "copyKind"],
        &["start", "bytes", "copyKind", "migrationCause", "virtualAddress"],
        |row| {
            Ok(CopyRow {
                start: row.get(0)?,
                bytes: unsigned(row.get(1)?).unwrap_or(0),
                kind: row.get(2)?,
                cause: row.get::<_, Option<i64>>(3)?.unwrap_or(0),
                address: unsigned(row.get(4)?),
            })
        },
    )?;
    let gpu_faults = export.rows(
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
        &["start", "address"],
        &["start", "address", "numberOfPageFaults"],
        |row| {
            let start: i64 = row.get(0)?;
            let count = unsigned(row.get(2)?).unwrap_or(1);
            Ok((start, unsigned(row.get(1)?).unwrap_or(0), count))
        },
    )?;
    let cpu_faults = export.rows(
        "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
        &["start", "address"],
        &["start", "address"],
        |row| Ok((row.get::<_, i64>(0)?, unsigned(row.get(1)?).unwrap_or(0))),
    )?;
    let usage = export.rows(
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        &["start", "address", "bytes"],
        &["start", "address", "bytes", "memKind", "memoryOperationType"],
        |row| {
            let start: i64 = row.get(0)?;
            let address = unsigned(row.get(1)?).unwrap_or(0);
            let bytes = unsigned(row.get(2)?).unwrap_or(0);
            let kind: Option<i64> = row.get(3)?;
            let freed = row.get::<_, Option<i64>>(4)? == Some(1);
            Ok((start, address, bytes, kind, freed))
        },
    )?;
    let calls = export.rows(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        &["start", "nameId"],
        &["start", "nameId"],
        |row| {
            let start: i64 = row.get(0)?;
            let name: Option<i64> = row.get(1)?;
            Ok((
                start,
                name.and_then(|id| strings.get(&id).cloned()).unwrap_or_default(),
            ))
        },
    )?;
    if kernels.is_empty() && copies.is_empty() && usage.is_empty() {
        return Err(ImportError::Malformed {
            file: file.to_path_buf(),
            format: FORMAT,
            place: "all tables".to_owned(),
            what: "there are no kernels, copies or memory events; profile with `nsys profile -t cuda`"
                .to_owned(),
        });
    }
    let data = Data {
        kernels,
        copies,
        gpu_faults,
        cpu_faults,
        usage,
        calls,
    };
    let mut imported = build(file, &data)?;
    let facts = &mut imported.report.facts;
    let version = "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_SCHEMA_VERSION'";
    if let Some(version) = export.value::<String>("META_DATA_EXPORT", version)? {
        facts.insert(0, ("schema".to_owned(), version));
    }
    let name = "SELECT name FROM TARGET_INFO_GPU ORDER BY id LIMIT 1";
    if let Some(name) = export.value::<String>("TARGET_INFO_GPU", name)? {
        facts.insert(0, ("device".to_owned(), name));
    }
    Ok(imported)
}

struct Data {
    kernels: Vec<KernelRow>,
    copies: Vec<CopyRow>,
    gpu_faults: Vec<(i64, u64, u64)>,
    cpu_faults: Vec<(i64, u64)>,
    usage: Vec<(i64, u64, u64, Option<i64>, bool)>,
    calls: Vec<(i64, String)>,
}

/// Ranges that hold the addresses, granules apart merged: start, bytes.
fn clusters(addresses: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = addresses
        .map(|(address, bytes)| {
            let start = address / GRANULE * GRANULE;
            let end = address
                .saturating_add(bytes.max(1))
                .div_ceil(GRANULE)
                .saturating_mul(GRANULE);
            (start, end)
        })
        .collect();
    spans.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in spans {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
        .into_iter()
        .map(|(start, end)| (start, end - start))
        .collect()
}

/// One thing that happened.
#[derive(Clone, Copy)]
enum Step {
    Usage(usize),
    CpuTouch(u64),
    Kernel(usize),
    CopyIn(usize),
    Wait,
}

fn build(file: &Path, data: &Data) -> Result<Imported, ImportError> {
    let mut builder = Builder::new(&super::builder_name(file), FORMAT);
    let is_migration = |copy: &CopyRow| matches!(copy.kind, 11..=13);
    let managed: Vec<usize> = (0..data.usage.len())
        .filter(|at| matches!(data.usage[*at].3, Some(4) | None))
        .collect();
    let mut live: BTreeMap<u64, (u64, Tensor)> = BTreeMap::new();
    let clustered = managed.iter().all(|at| data.usage[*at].4);
    if clustered {
        let moved = data
            .copies
            .iter()
            .filter(|copy| is_migration(copy))
            .filter_map(|copy| Some((copy.address?, copy.bytes)));
        let faulted = data.gpu_faults.iter().map(|fault| (fault.1, 1));
        for (start, bytes) in clusters(
            moved
                .chain(faulted)
                .chain(data.cpu_faults.iter().map(|f| (f.1, 1))),
        ) {
            if bytes < 1 << 50 {
                live.insert(start, (bytes, builder.alloc_before(bytes)));
            }
        }
    }
    let mut steps: Vec<(i64, u8, Step)> = Vec::new();
    if !clustered {
        steps.extend(managed.iter().map(|at| (data.usage[*at].0, 0, Step::Usage(*at))));
    }
    // CPU faults: consecutive ones of a range are one touch.
    for (start, address) in &data.cpu_faults {
        steps.push((*start, 1, Step::CpuTouch(*address)));
    }
    steps.extend((0..data.kernels.len()).map(|at| (data.kernels[at].start, 2, Step::Kernel(at))));
    steps.extend(
        (0..data.copies.len())
            .filter(|at| data.copies[*at].kind == 1)
            .map(|at| (data.copies[at].start, 2, Step::CopyIn(at))),
    );
    steps.extend(
        data.calls
            .iter()
            .filter(|(_, name)| name.contains("Synchronize"))
            .map(|(start, _)| (*start, 3, Step::Wait)),
    );
    steps.sort_by_key(|(time, order, _)| (*time, *order));
    builder.iteration();
    let mut streams: BTreeMap<i64, u32> = BTreeMap::new();
    let (mut touched, mut guessed, mut reused) = (0_u64, 0_u64, 0_u64);
    // The CPU touches a whole range when it first touches any of it.
    let mut touched_by_cpu: BTreeSet<u64> = BTreeSet::new();
    for (_, _, step) in steps {
        match step {
            Step::Usage(at) => {
                let (_, address, bytes, _, freed) = data.usage[at];
                if freed {
                    if let Some((_, tensor)) = live.remove(&address) {
                        builder.free(tensor);
                        touched_by_cpu.remove(&address);
                    }
                } else if bytes > 0 && bytes < 1 << 50 {
                    if let Some((_, tensor)) = live.remove(&address) {
                        reused += 1;
                        builder.free(tensor);
                    }
                    live.insert(address, (bytes, builder.alloc(bytes)));
                }
            }
            Step::CpuTouch(address) => {
                if let Some((start, tensor)) = holder(&live, address)
                    && touched_by_cpu.insert(start)
                {
                    let pieces = builder.whole(tensor).into_iter().collect();
                    builder.cpu(pieces, true);
                }
            }
            Step::Wait => builder.sync(),
            Step::CopyIn(at) => {
                // Copies into device memory that is not managed touch nothing of ours.
                let copy = data.copies[at];
                if let Some((start, tensor)) = copy.address.and_then(|address| holder(&live, address)) {
                    let offset = copy.address.unwrap_or(start) - start;
                    let room = builder.size(tensor).unwrap_or(0).saturating_sub(offset);
                    builder.copy_in(vec![Piece(tensor, offset, copy.bytes.min(room).max(1))]);
                }
            }
            Step::Kernel(at) => {
                let row = &data.kernels[at];
                let next = streams.len() as u32;
                let stream = *streams.entry(row.stream).or_insert(next);
                let during = |time: i64| (row.start..=row.end).contains(&time);
                let mut tensors: BTreeSet<Tensor> = BTreeSet::new();
                let first = data.copies.partition_point(|copy| copy.start < row.start);
                let moved = data.copies[first..]
                    .iter()
                    .take_while(|copy| copy.start <= row.end)
                    .filter(|copy| is_migration(copy) && matches!(copy.cause, 2 | 3))
                    .filter_map(|copy| copy.address);
                let first = data.gpu_faults.partition_point(|fault| fault.0 < row.start);
                let faulted = data.gpu_faults[first..]
                    .iter()
                    .take_while(|fault| during(fault.0))
                    .map(|fault| fault.1);
                tensors.extend(
                    moved
                        .chain(faulted)
                        .filter_map(|a| holder(&live, a))
                        .map(|(_, t)| t),
                );
                if tensors.is_empty() {
                    guessed += 1;
                    tensors.extend(live.values().map(|(_, tensor)| *tensor));
                } else {
                    touched += 1;
                }
                let pieces: Vec<Piece> = tensors.iter().filter_map(|t| builder.whole(*t)).collect();
                builder.kernel(NewKernel {
                    name: &row.name,
                    writes: pieces.last().copied().into_iter().collect(),
                    reads: pieces,
                    ns: Some(u64::try_from(row.end.saturating_sub(row.start)).unwrap_or(0)),
                    stream,
                    launches: 1,
                    ..NewKernel::default()
                });
            }
        }
    }
    let sum = |kind: i64, cause: Option<i64>| -> (u64, u64) {
        data.copies
            .iter()
            .filter(|copy| copy.kind == kind && cause.is_none_or(|cause| copy.cause == cause))
            .fold((0, 0), |(count, bytes), copy| {
                (count + 1, bytes.saturating_add(copy.bytes))
            })
    };
    let faults: u64 = data
        .gpu_faults
        .iter()
        .fold(0, |sum, fault| sum.saturating_add(fault.2));
    let report = builder.report();
    let mut fact = |name: &str, value: String| report.facts.push((name.to_owned(), value));
    for (name, kind) in [("unified host to device", 11), ("unified device to host", 12)] {
        for (cause, number) in [
            ("user", 1),
            ("page fault", 2),
            ("prefetch", 3),
            ("eviction", 4),
            ("access counters", 5),
        ] {
            let (count, bytes) = sum(kind, Some(number));
            if count > 0 {
                fact(
                    &format!("{name}, {cause}"),
                    format!("{count} copies, {bytes} bytes"),
                );
            }
        }
    }
    for (name, kind) in [("host to device", 1), ("device to host", 2)] {
        let (count, bytes) = sum(kind, None);
        if count > 0 {
            fact(
                &format!("explicit {name}"),
                format!("{count} copies, {bytes} bytes"),
            );
        }
    }
    fact(
        "GPU page-fault rows",
        format!("{} ({faults} faults)", data.gpu_faults.len()),
    );
    fact("CPU page-fault rows", data.cpu_faults.len().to_string());
    fact(
        "kernels with migrations or faults during them",
        touched.to_string(),
    );
    if clustered {
        report.assumed.push(
            "managed ranges are where migrations and faults were, in 2 MiB granules, and live all the time"
                .to_owned(),
        );
        report
            .missing
            .push("memory-usage events (--cuda-memory-usage=true): sizes and lifetimes of ranges".to_owned());
    }
    report.assumed.push(
        "a kernel touches the managed ranges that migrated or faulted during it, reads all of them and writes the last"
            .to_owned(),
    );
    if guessed > 0 {
        report.assumed.push(format!(
            "{guessed} kernels without migrations or faults touch all managed ranges live at the time"
        ));
    }
    if reused > 0 {
        report
            .assumed
            .push(format!("{reused} addresses were allocated again without a free"));
    }
    report
        .assumed
        .push("durations include the stalls of the recorded run where it faulted".to_owned());
    if data.gpu_faults.is_empty() {
        report
            .missing
            .push("GPU page faults (--cuda-um-gpu-page-faults=true)".to_owned());
    }
    if data.cpu_faults.is_empty() {
        report.missing.push(
            "CPU page faults (--cuda-um-cpu-page-faults=true): data is taken to begin where the GPU touches it first"
                .to_owned(),
        );
    }
    builder.finish(file)
}

fn holder(live: &BTreeMap<u64, (u64, Tensor)>, address: u64) -> Option<(u64, Tensor)> {
    let (start, (bytes, tensor)) = live.range(..=address).next_back()?;
    (address - start < *bytes).then_some((*start, *tensor))
}
