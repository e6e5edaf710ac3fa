//! A set of tensor ids that only grows; neighbouring ids share one entry.

use std::collections::BTreeMap;

/// Ids as intervals: a program that numbers its tensors one after the other needs one entry.
#[derive(Clone, Debug, Default)]
pub(super) struct IdSet {
    /// First id -> last id; neither overlapping nor adjacent.
    intervals: BTreeMap<u32, u32>,
}

impl IdSet {
    /// Is it in?
    pub fn contains(&self, id: u32) -> bool {
        self.intervals
            .range(..=id)
            .next_back()
            .is_some_and(|(_, last)| *last >= id)
    }

    /// Puts it in.
    pub fn insert(&mut self, id: u32) {
        let (mut first, mut last) = (id, id);
        if let Some((&before, &end)) = self.intervals.range(..=id).next_back() {
            if end >= id {
                return;
            }
            if end + 1 == id {
                first = before;
            }
        }
        if let Some(next) = id.checked_add(1)
            && let Some(end) = self.intervals.remove(&next)
        {
            last = end;
        }
        self.intervals.insert(first, last);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::IdSet;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn is_a_set(ids in prop::collection::vec(prop_oneof![0_u32..40, (u32::MAX - 3)..=u32::MAX], 0..60)) {
            let mut set = IdSet::default();
            let mut plain = HashSet::new();
            for id in ids {
                set.insert(id);
                plain.insert(id);
                for probe in (0..41).chain(u32::MAX - 4..=u32::MAX) {
                    prop_assert_eq!(set.contains(probe), plain.contains(&probe), "{}", probe);
                }
            }
            let mut last = None;
            for (&first, &end) in &set.intervals {
                prop_assert!(last.is_none_or(|last: u32| first > last + 1));
                last = Some(end);
            }
        }
    }
}
