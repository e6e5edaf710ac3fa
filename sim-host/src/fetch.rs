//! Fetching a batch: raw entries, merged with their near neighbours (uvm-driver 3.4).

use sim_core::access::AccessKind;
use sim_core::fault::FaultEntry;
use sim_core::pages::Page;

/// One entry of a batch after merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalescedFault {
    /// Faulting page.
    pub page: Page,
    /// Strongest access merged.
    pub access: AccessKind,
    /// uTLB of the first.
    pub utlb: u16,
    /// Channel.
    pub instance: u32,
    /// Raw entries it stands for.
    pub instances: u32,
    /// A stronger entry of the same page and uTLB has replaced it.
    pub filtered: bool,
}

/// The faults of one batch.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Merged entries, in order of arrival.
    pub faults: Vec<CoalescedFault>,
    /// Raw entries fetched.
    pub raw: u32,
    last: Option<usize>,
    last_of_utlb: Vec<Option<usize>>,
}

impl Batch {
    /// Empties the batch, keeps its memory.
    pub fn clear(&mut self) {
        self.faults.clear();
        self.raw = 0;
        self.last = None;
        self.last_of_utlb.fill(None);
    }

    /// Takes one raw entry. Two candidates can absorb it: the last kept fault of its uTLB, whatever
    /// the strength, and the last kept fault of the batch, unless the new access is stronger.
    pub fn add(&mut self, entry: &FaultEntry, coalesce: bool) {
        self.raw += 1;
        let utlb = usize::from(entry.utlb);
        if utlb >= self.last_of_utlb.len() {
            self.last_of_utlb.resize(utlb + 1, None);
        }
        let same = |fault: &CoalescedFault| fault.page == entry.page && fault.instance == entry.instance;
        if coalesce {
            if let Some(index) = self.last_of_utlb[utlb]
                && same(&self.faults[index])
            {
                let fault = &mut self.faults[index];
                fault.instances += 1;
                if entry.access > fault.access {
                    let instances = std::mem::replace(&mut fault.instances, 0);
                    fault.filtered = true;
                    self.last_of_utlb[utlb] = Some(self.faults.len());
                    self.faults.push(CoalescedFault {
                        page: entry.page,
                        access: entry.access,
                        utlb: entry.utlb,
                        instance: entry.instance,
                        instances,
                        filtered: false,
                    });
                }
                return;
            }
            if let Some(index) = self.last
                && same(&self.faults[index])
                && entry.access <= self.faults[index].access
            {
                self.faults[index].instances += 1;
                return;
            }
        }
        let index = self.faults.len();
        self.faults.push(CoalescedFault {
            page: entry.page,
            access: entry.access,
            utlb: entry.utlb,
            instance: entry.instance,
            instances: 1,
            filtered: false,
        });
        self.last = Some(index);
        self.last_of_utlb[utlb] = Some(index);
    }

    /// Drops filtered entries and sorts by address, strongest access first.
    pub fn sort(&mut self) {
        self.faults.retain(|fault| !fault.filtered);
        self.faults
            .sort_by(|a, b| a.page.cmp(&b.page).then(b.access.cmp(&a.access)));
    }
}
