//! The tables of events: names, columns, rows.
//!
//! Columns of the driver's events carry the driver's field names (uvm-driver.md 13.1); times are
//! whole nanoseconds of simulated time, addresses and sizes bytes. Enumerations are written by name.

use sim_core::Time;
use sim_core::access::AccessKind;
use sim_core::push::Cause;
use sim_core::tools::{FatalReason, FaultType, MapRemoteCause, Processor, ToolsEvent};

use crate::system::Record;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number, 64 bits.
    Int,
    /// Text.
    Text,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// Of a [`Kind::Int`] column.
    Int(i64),
    /// Of a [`Kind::Text`] column.
    Text(&'a str),
}

/// One table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name; `sim_` marks what the real driver does not emit.
    pub name: &'static str,
    /// Its columns.
    pub columns: &'static [(&'static str, Kind)],
}

use Kind::{Int, Text};

/// All tables, in the order of the driver's event numbers, the simulator's own last.
pub const TABLES: [Table; 16] = [
    Table {
        name: "cpu_fault",
        columns: &[("accessType", Text), ("address", Int), ("timestamp", Int)],
    },
    Table {
        name: "migration",
        columns: &[
            ("migrationCause", Text),
            ("srcIndex", Int),
            ("dstIndex", Int),
            ("address", Int),
            ("migratedBytes", Int),
            ("beginTimeStamp", Int),
            ("endTimeStamp", Int),
            ("beginTimeStampGpu", Int),
            ("endTimeStampGpu", Int),
        ],
    },
    Table {
        name: "gpu_fault",
        columns: &[
            ("faultType", Text),
            ("accessType", Text),
            ("gpuIndex", Int),
            ("clientId", Int),
            ("channelId", Int),
            ("address", Int),
            ("timeStamp", Int),
            ("timeStampGpu", Int),
            ("batchId", Int),
        ],
    },
    Table {
        name: "gpu_fault_replay",
        columns: &[
            ("gpuIndex", Int),
            ("batchId", Int),
            ("timeStamp", Int),
            ("timeStampGpu", Int),
        ],
    },
    Table {
        name: "fatal_fault",
        columns: &[
            ("processorIndex", Int),
            ("faultType", Text),
            ("accessType", Text),
            ("reason", Text),
            ("address", Int),
            ("timestamp", Int),
        ],
    },
    Table {
        name: "read_duplicate",
        columns: &[("address", Int), ("size", Int), ("timestamp", Int)],
    },
    Table {
        name: "read_duplicate_invalidate",
        columns: &[
            ("residentIndex", Int),
            ("address", Int),
            ("size", Int),
            ("timestamp", Int),
        ],
    },
    Table {
        name: "thrashing_detected",
        columns: &[("address", Int), ("size", Int), ("timestamp", Int)],
    },
    Table {
        name: "throttling_start",
        columns: &[("processorIndex", Int), ("address", Int), ("timestamp", Int)],
    },
    Table {
        name: "throttling_end",
        columns: &[("processorIndex", Int), ("address", Int), ("timestamp", Int)],
    },
    Table {
        name: "map_remote",
        columns: &[
            ("mapRemoteCause", Text),
            ("srcIndex", Int),
            ("dstIndex", Int),
            ("address", Int),
            ("size", Int),
            ("timeStamp", Int),
            ("timeStampGpu", Int),
        ],
    },
    Table {
        name: "sim_fault_buffer_overflow",
        columns: &[("dropped", Int), ("timestamp", Int)],
    },
    Table {
        name: "sim_eviction",
        columns: &[
            ("addressOut", Int),
            ("addressIn", Int),
            ("size", Int),
            ("timestamp", Int),
        ],
    },
    Table {
        name: "sim_kernel",
        columns: &[
            ("name", Text),
            ("stream", Int),
            ("blocks", Int),
            ("start", Int),
            ("end", Int),
            ("correlationId", Int),
        ],
    },
    Table {
        name: "sim_call",
        columns: &[
            ("name", Text),
            ("start", Int),
            ("end", Int),
            ("correlationId", Int),
        ],
    },
    Table {
        name: "sim_managed_range",
        columns: &[
            ("operation", Text),
            ("address", Int),
            ("size", Int),
            ("timestamp", Int),
            ("correlationId", Int),
        ],
    },
];

/// Whole nanoseconds.
pub(super) fn ns(time: Time) -> i64 {
    int(time.0 >> 10)
}

/// As the signed number that tables hold; addresses and byte counts stay far below its end.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn processor(index: Processor) -> Cell<'static> {
    Cell::Int(i64::from(index as u8))
}

fn access(kind: AccessKind) -> Cell<'static> {
    Cell::Text(match kind {
        AccessKind::Read => "Read",
        AccessKind::Write => "Write",
        AccessKind::AtomicWeak | AccessKind::AtomicStrong => "Atomic",
        AccessKind::Prefetch => "Prefetch",
    })
}

fn cause(cause: Cause) -> Cell<'static> {
    Cell::Text(match cause {
        Cause::User => "User",
        Cause::Coherence => "Coherence",
        Cause::Prefetch => "Prefetch",
        Cause::Eviction => "Eviction",
        Cause::AccessCounters => "AccessCounters",
    })
}

fn fault_type(fault: FaultType) -> Cell<'static> {
    Cell::Text(match fault {
        FaultType::InvalidPde => "InvalidPde",
        FaultType::InvalidPte => "InvalidPte",
        FaultType::Write => "Write",
        FaultType::Atomic => "Atomic",
        FaultType::Limit => "Limit",
    })
}

fn fatal_reason(reason: FatalReason) -> Cell<'static> {
    Cell::Text(match reason {
        FatalReason::InvalidAddress => "InvalidAddress",
        FatalReason::InvalidPermissions => "InvalidPermissions",
        FatalReason::InvalidFaultType => "InvalidFaultType",
        FatalReason::OutOfMemory => "OutOfMemory",
    })
}

fn remote_cause(cause: MapRemoteCause) -> Cell<'static> {
    Cell::Text(match cause {
        MapRemoteCause::Coherence => "Coherence",
        MapRemoteCause::Thrashing => "Thrashing",
        MapRemoteCause::Policy => "Policy",
        MapRemoteCause::OutOfMemory => "OutOfMemory",
        MapRemoteCause::Eviction => "Eviction",
    })
}

const GPU: Cell<'static> = Cell::Int(Processor::Gpu as i64);

/// The index of a record's table in [`TABLES`], and its row.
pub fn row(record: &Record) -> (usize, Vec<Cell<'_>>) {
    let size = |bytes: u64| Cell::Int(int(bytes));
    let at = |time: Time| Cell::Int(ns(time));
    match record {
        Record::Tools(event) => tools_row(event),
        Record::Kernel {
            name,
            stream,
            blocks,
            start,
            end,
            correlation,
        } => (
            13,
            vec![
                Cell::Text(name),
                Cell::Int(i64::from(*stream)),
                size(*blocks),
                at(*start),
                at(*end),
                size(*correlation),
            ],
        ),
        Record::Call {
            name,
            start,
            end,
            correlation,
        } => (
            14,
            vec![Cell::Text(name), at(*start), at(*end), size(*correlation)],
        ),
        Record::ManagedRange {
            allocated,
            address,
            bytes,
            time,
            correlation,
        } => (
            15,
            vec![
                Cell::Text(if *allocated { "Allocation" } else { "Deallocation" }),
                size(*address),
                size(*bytes),
                at(*time),
                size(*correlation),
            ],
        ),
    }
}

fn tools_row(event: &ToolsEvent) -> (usize, Vec<Cell<'static>>) {
    let size = |bytes: u64| Cell::Int(int(bytes));
    let at = |time: Time| Cell::Int(ns(time));
    match *event {
        ToolsEvent::CpuFault {
            access: kind,
            address,
            time,
        } => (0, vec![access(kind), size(address), at(time)]),
        ToolsEvent::Migration {
            cause: why,
            src,
            dst,
            address,
            bytes,
            begin,
            end,
            begin_gpu,
            end_gpu,
        } => (
            1,
            vec![
                cause(why),
                processor(src),
                processor(dst),
                size(address),
                size(bytes),
                at(begin),
                at(end),
                at(begin_gpu),
                at(end_gpu),
            ],
        ),
        ToolsEvent::GpuFault {
            fault,
            access: kind,
            client,
            instance,
            address,
            time,
            time_gpu,
            batch,
        } => (
            2,
            vec![
                fault_type(fault),
                access(kind),
                GPU,
                Cell::Int(i64::from(client)),
                Cell::Int(i64::from(instance)),
                size(address),
                at(time),
                at(time_gpu),
                size(batch),
            ],
        ),
        ToolsEvent::GpuFaultReplay {
            batch,
            time,
            time_gpu,
        } => (3, vec![GPU, size(batch), at(time), at(time_gpu)]),
        ToolsEvent::FatalFault {
            processor: whose,
            fault,
            access: kind,
            reason,
            address,
            time,
        } => (
            4,
            vec![
                processor(whose),
                fault_type(fault),
                access(kind),
                fatal_reason(reason),
                size(address),
                at(time),
            ],
        ),
        ToolsEvent::ReadDuplicate { address, bytes, time } => (5, vec![size(address), size(bytes), at(time)]),
        ToolsEvent::ReadDuplicateInvalidate {
            resident,
            address,
            bytes,
            time,
        } => (6, vec![processor(resident), size(address), size(bytes), at(time)]),
        ToolsEvent::ThrashingDetected { address, bytes, time } => {
            (7, vec![size(address), size(bytes), at(time)])
        }
        ToolsEvent::ThrottlingStart {
            processor: whose,
            address,
            time,
        } => (8, vec![processor(whose), size(address), at(time)]),
        ToolsEvent::ThrottlingEnd {
            processor: whose,
            address,
            time,
        } => (9, vec![processor(whose), size(address), at(time)]),
        ToolsEvent::MapRemote {
            cause: why,
            src,
            dst,
            address,
            bytes,
            time,
            time_gpu,
        } => (
            10,
            vec![
                remote_cause(why),
                processor(src),
                processor(dst),
                size(address),
                size(bytes),
                at(time),
                at(time_gpu),
            ],
        ),
        ToolsEvent::FaultBufferOverflow { dropped, time } => (11, vec![size(dropped), at(time)]),
        ToolsEvent::Eviction {
            address_out,
            address_in,
            bytes,
            time,
        } => (
            12,
            vec![size(address_out), size(address_in), size(bytes), at(time)],
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_their_tables() {
        let t = Time(5 << 10);
        let read = AccessKind::Read;
        let (gpu, cpu) = (Processor::Gpu, Processor::Cpu);
        let events = [
            ToolsEvent::CpuFault {
                access: read,
                address: 4096,
                time: t,
            },
            ToolsEvent::Migration {
                cause: Cause::Coherence,
                src: cpu,
                dst: gpu,
                address: 4096,
                bytes: 65536,
                begin: t,
                end: t,
                begin_gpu: t,
                end_gpu: t,
            },
            ToolsEvent::GpuFault {
                fault: FaultType::InvalidPte,
                access: read,
                client: 3,
                instance: 0,
                address: 4096,
                time: t,
                time_gpu: t,
                batch: 1,
            },
            ToolsEvent::GpuFaultReplay {
                batch: 1,
                time: t,
                time_gpu: t,
            },
            ToolsEvent::FatalFault {
                processor: gpu,
                fault: FaultType::Limit,
                access: read,
                reason: FatalReason::InvalidAddress,
                address: 0,
                time: t,
            },
            ToolsEvent::ReadDuplicate {
                address: 0,
                bytes: 4096,
                time: t,
            },
            ToolsEvent::ReadDuplicateInvalidate {
                resident: cpu,
                address: 0,
                bytes: 4096,
                time: t,
            },
            ToolsEvent::ThrashingDetected {
                address: 0,
                bytes: 4096,
                time: t,
            },
            ToolsEvent::ThrottlingStart {
                processor: cpu,
                address: 0,
                time: t,
            },
            ToolsEvent::ThrottlingEnd {
                processor: cpu,
                address: 0,
                time: t,
            },
            ToolsEvent::MapRemote {
                cause: MapRemoteCause::Policy,
                src: gpu,
                dst: cpu,
                address: 0,
                bytes: 4096,
                time: t,
                time_gpu: t,
            },
            ToolsEvent::FaultBufferOverflow { dropped: 1, time: t },
            ToolsEvent::Eviction {
                address_out: 0,
                address_in: 1 << 21,
                bytes: 4096,
                time: t,
            },
        ];
        let mut records: Vec<Record> = events.into_iter().map(Record::Tools).collect();
        records.push(Record::Kernel {
            name: "add".into(),
            stream: 0,
            blocks: 1,
            start: t,
            end: t,
            correlation: 1,
        });
        records.push(Record::Call {
            name: "cudaFree",
            start: t,
            end: t,
            correlation: 1,
        });
        records.push(Record::ManagedRange {
            allocated: true,
            address: 0,
            bytes: 1,
            time: t,
            correlation: 1,
        });
        assert_eq!(records.len(), TABLES.len());
        for (place, record) in records.iter().enumerate() {
            let (table, row) = row(record);
            assert_eq!(table, place);
            let columns = TABLES[table].columns;
            assert_eq!(row.len(), columns.len(), "{}", TABLES[table].name);
            for (cell, (name, kind)) in row.iter().zip(columns) {
                let fits = matches!((cell, kind), (Cell::Int(_), Int) | (Cell::Text(_), Text));
                assert!(fits, "{}.{name}", TABLES[table].name);
            }
        }
    }
}
