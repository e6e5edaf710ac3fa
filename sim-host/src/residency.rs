//! Where a page goes: the choice of `block_select_processor_residency` (uvm-driver 4.2).

use sim_core::access::AccessKind;
use sim_core::tools::Processor;

/// Everything that the choice depends on, for one page and one access.
#[allow(clippy::struct_excessive_bools)] // independent conditions of the table
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Who accesses.
    pub requester: Processor,
    /// How.
    pub access: AccessKind,
    /// Where the page is; the requester if it has a copy, `None` if it is nowhere.
    pub resident: Option<Processor>,
    /// Reads make copies in this range.
    pub read_duplication: bool,
    /// The preferred location, if one is set.
    pub preferred: Option<Processor>,
    /// The requester is in the range's `accessed_by` set.
    pub accessed_by: bool,
    /// Thrashing pins the page here.
    pub pin: Option<Processor>,
    /// An access-counter notification, no fault.
    pub access_counter: bool,
    /// `uvm_perf_map_remote_on_native_atomics_fault`, and the link carries atomics.
    pub remote_atomics: bool,
    /// The CPU can access device memory: coherent platforms only.
    pub coherent: bool,
    /// `uvm_fault_force_sysmem`: a debugging aid.
    pub force_sysmem: bool,
}

impl Question {
    /// A plain fault on managed memory without advice.
    pub fn plain(requester: Processor, access: AccessKind, resident: Option<Processor>) -> Question {
        Question {
            requester,
            access,
            resident,
            read_duplication: false,
            preferred: None,
            accessed_by: false,
            pin: None,
            access_counter: false,
            remote_atomics: false,
            coherent: false,
            force_sysmem: false,
        }
    }

    /// Can the requester access memory of `place`? A GPU reaches host memory; the CPU reaches device
    /// memory on coherent platforms only.
    fn reaches(&self, place: Processor) -> bool {
        place == self.requester || place == Processor::Cpu || self.coherent
    }
}

/// The choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residency {
    /// The processor whose memory the page goes to or stays in.
    pub place: Processor,
    /// As a copy: the page stays where it is, too.
    pub copy: bool,
}

/// The first row of the table that applies. Rows 1, 5 and 11 concern HMM and foreign address spaces
/// and are left out, but for the debugging aid of row 1.
pub fn select(q: &Question) -> Residency {
    let at = |place| Residency { place, copy: false };
    if q.force_sysmem {
        return at(Processor::Cpu); // row 1
    }
    if q.read_duplication {
        // rows 2 and 3
        return Residency {
            place: q.requester,
            copy: q.access <= AccessKind::Read,
        };
    }
    if q.preferred == Some(q.requester) {
        return at(q.requester); // row 4
    }
    if let Some(pin) = q.pin {
        return at(pin); // row 6
    }
    let preferred = q.preferred.filter(|place| q.reaches(*place));
    let Some(resident) = q.resident else {
        return at(preferred.unwrap_or(q.requester)); // row 7
    };
    if q.accessed_by && !q.access_counter && q.reaches(resident) {
        return at(resident); // row 8
    }
    if q.remote_atomics && q.access >= AccessKind::AtomicWeak && q.reaches(resident) {
        return at(resident); // row 9
    }
    if resident != q.requester
        && let Some(preferred) = preferred
    {
        return at(preferred); // row 10
    }
    at(q.requester) // row 12
}

#[cfg(test)]
mod tests {
    use super::*;
    use AccessKind::{AtomicStrong, Prefetch, Read, Write};
    use Processor::{Cpu, Gpu};

    #[test]
    fn every_row_of_the_table() {
        let gpu = |access, resident| Question::plain(Gpu, access, resident);
        let cpu = |access, resident| Question::plain(Cpu, access, resident);
        let dup = |q: Question| Question {
            read_duplication: true,
            ..q
        };
        let preferred = |q: Question, place| Question {
            preferred: Some(place),
            ..q
        };
        let accessed_by = |q: Question| Question {
            accessed_by: true,
            ..q
        };
        let at = |place| Residency { place, copy: false };
        let copy = |place| Residency { place, copy: true };
        let forced = Question {
            force_sysmem: true,
            ..dup(gpu(Read, Some(Gpu)))
        };
        let pinned = Question {
            pin: Some(Cpu),
            ..gpu(Write, Some(Gpu))
        };
        let counter = Question {
            access_counter: true,
            ..accessed_by(gpu(Prefetch, Some(Cpu)))
        };
        let atomics = |access| Question {
            remote_atomics: true,
            ..gpu(access, Some(Cpu))
        };
        let coherent = |q: Question| Question { coherent: true, ..q };
        let table = [
            (1, forced, at(Cpu)),
            (2, dup(gpu(Read, Some(Cpu))), copy(Gpu)),
            (2, dup(gpu(Prefetch, Some(Cpu))), copy(Gpu)),
            (2, dup(cpu(Read, Some(Gpu))), copy(Cpu)),
            (3, dup(gpu(Write, Some(Cpu))), at(Gpu)),
            (3, dup(cpu(AtomicStrong, Some(Gpu))), at(Cpu)),
            (4, preferred(gpu(Read, Some(Cpu)), Gpu), at(Gpu)),
            (4, accessed_by(preferred(gpu(Read, Some(Cpu)), Gpu)), at(Gpu)),
            (6, pinned, at(Cpu)),
            (7, gpu(Write, None), at(Gpu)),
            (7, cpu(Write, None), at(Cpu)),
            (7, preferred(gpu(Write, None), Cpu), at(Cpu)),
            (7, preferred(cpu(Write, None), Gpu), at(Cpu)),
            (7, coherent(preferred(cpu(Write, None), Gpu)), at(Gpu)),
            (8, accessed_by(gpu(Write, Some(Cpu))), at(Cpu)),
            (8, accessed_by(cpu(Read, Some(Gpu))), at(Cpu)),
            (8, coherent(accessed_by(cpu(Read, Some(Gpu)))), at(Gpu)),
            (8, counter, at(Gpu)),
            (9, atomics(AtomicStrong), at(Cpu)),
            (9, atomics(Write), at(Gpu)),
            (10, preferred(gpu(Read, Some(Cpu)), Cpu), at(Cpu)),
            (10, preferred(gpu(Read, Some(Gpu)), Cpu), at(Gpu)),
            (10, preferred(cpu(Read, Some(Gpu)), Gpu), at(Cpu)),
            (12, gpu(Read, Some(Cpu)), at(Gpu)),
            (12, cpu(Read, Some(Gpu)), at(Cpu)),
        ];
        for (row, question, expected) in table {
            assert_eq!(select(&question), expected, "row {row}: {question:?}");
        }
    }
}
