//! Root chunks against a plain model: who owns what, the order of victims, what the physical allocator
//! is asked for (uvm-driver 7.1 to 7.3).

use std::collections::BTreeMap;

use proptest::prelude::*;
use sim_core::pages::VaBlock;
use sim_host::pmm::{ChunkId, List, Pmm, Source};

const LISTS: [List; 3] = [List::Unused, List::Discarded, List::Used];

/// What may happen to a chunk; a number picks among those that a block owns.
#[derive(Clone, Copy, Debug)]
enum Act {
    Allocate,
    Move(usize, usize),
    EvictForAnother,
    EvictToFreeList,
    Free(usize),
    Pin(usize),
    Write(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => Just(Act::Allocate),
        6 => (any::<usize>(), 0..3_usize).prop_map(|(chunk, list)| Act::Move(chunk, list)),
        3 => Just(Act::EvictForAnother),
        1 => Just(Act::EvictToFreeList),
        2 => any::<usize>().prop_map(Act::Free),
        1 => any::<usize>().prop_map(Act::Pin),
        1 => any::<usize>().prop_map(Act::Write),
    ]
}

/// A chunk that a block owns: the list it is on and since when, whether for good on none.
struct Owned {
    owner: VaBlock,
    on: Option<(usize, u64)>,
    pinned: bool,
    zero: bool,
}

/// Counts of what nobody owns; chunks of blocks by number.
struct Model {
    fresh: u64,
    returned: u64,
    free_zero: u64,
    free_dirty: u64,
    owned: BTreeMap<ChunkId, Owned>,
    clock: u64,
}

impl Model {
    fn order(&self, list: usize) -> Vec<ChunkId> {
        let on = |(id, chunk): (&ChunkId, &Owned)| {
            let (l, since) = chunk.on?;
            (l == list).then_some((since, *id))
        };
        let mut all: Vec<(u64, ChunkId)> = self.owned.iter().filter_map(on).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }

    fn oldest(&self) -> Option<ChunkId> {
        (0..3).find_map(|list| self.order(list).first().copied())
    }

    fn pick(&self, number: usize) -> Option<ChunkId> {
        let count = self.owned.len();
        (count > 0).then(|| *self.owned.keys().nth(number % count).unwrap())
    }

    /// The allocator gives fresh chunks before returned ones, a batch at most.
    fn refill(&mut self, batch: u64) {
        let fresh = self.fresh.min(batch);
        let returned = self.returned.min(batch - fresh);
        self.fresh -= fresh;
        self.returned -= returned;
        self.free_zero += fresh;
        self.free_dirty += returned;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn chunks_are_as_in_a_plain_model(
        capacity in 1_u64..40,
        order in 0_u32..5,
        acts in prop::collection::vec(act(), 1..300),
    ) {
        let mut pmm = Pmm::new(capacity, order);
        let mut model =
            Model { fresh: capacity, returned: 0, free_zero: 0, free_dirty: 0, owned: BTreeMap::new(), clock: 0 };
        for act in acts {
            model.clock += 1;
            let now = model.clock;
            let block = VaBlock(now);
            let new = |zero| Owned { owner: block, on: None, pinned: false, zero };
            match act {
                Act::Allocate => {
                    let asks = model.free_zero + model.free_dirty == 0;
                    if asks {
                        model.refill(1 << order);
                    }
                    let zero = model.free_zero > 0;
                    let Some((id, source)) = pmm.allocate(block) else {
                        prop_assert_eq!(model.owned.len() as u64, capacity, "memory is left");
                        continue;
                    };
                    prop_assert_eq!(source, if asks { Source::Pma } else { Source::FreeList });
                    *(if zero { &mut model.free_zero } else { &mut model.free_dirty }) -= 1;
                    prop_assert!(model.owned.insert(id, new(zero)).is_none(), "a chunk was given twice");
                }
                Act::Move(number, list) => if let Some(id) = model.pick(number) {
                    pmm.move_to(id, LISTS[list]);
                    let chunk = model.owned.get_mut(&id).unwrap();
                    if !chunk.pinned {
                        chunk.on = Some((list, now));
                    }
                },
                Act::EvictForAnother => if let Some(id) = model.oldest() {
                    pmm.reassign(id, block);
                    model.owned.insert(id, new(false));
                },
                Act::EvictToFreeList => if let Some(id) = model.oldest() {
                    pmm.recycle(id);
                    model.owned.remove(&id);
                    model.free_dirty += 1;
                },
                Act::Free(number) => if let Some(id) = model.pick(number) {
                    pmm.free(id);
                    model.owned.remove(&id);
                    model.returned += 1;
                },
                Act::Pin(number) => if let Some(id) = model.pick(number) {
                    pmm.pin(id);
                    let chunk = model.owned.get_mut(&id).unwrap();
                    (chunk.pinned, chunk.on) = (true, None);
                },
                Act::Write(number) => if let Some(id) = model.pick(number) {
                    pmm.mark_written(id);
                    model.owned.get_mut(&id).unwrap().zero = false;
                },
            }
            for (index, list) in LISTS.into_iter().enumerate() {
                prop_assert_eq!(pmm.list(list), model.order(index));
            }
            for (id, chunk) in &model.owned {
                prop_assert_eq!(pmm.owner(*id), Some(chunk.owner));
                prop_assert_eq!(pmm.is_zero(*id), chunk.zero);
                prop_assert_eq!(pmm.is_evictable(*id), chunk.on.is_some());
                prop_assert_eq!(pmm.is_pinned(*id), chunk.pinned);
            }
            prop_assert_eq!(pmm.owned(), model.owned.len() as u64);
            prop_assert_eq!(pmm.available(), model.fresh + model.returned + model.free_zero + model.free_dirty);
        }
    }
}
