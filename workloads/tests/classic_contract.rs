//! What every access pattern promises the device, against looking at every step of every block.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use sim_core::access::{Access, AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::{ByteRange, Page};
use workloads::graph::{GraphSource, shared};
use workloads::pattern::{
    Axis, Gather, KernelPattern, Lockstep, PatternSpec, Phase, Place, RecordedSpec, SweepOrder, Touch, Walk,
    Window, WindowsSpec,
};

/// Pages that have a PTE.
struct Mapped(BTreeSet<u64>);

impl MappedPages for Mapped {
    fn first_unmapped(&self, from: Page, end: Page) -> Option<Page> {
        (from.0..end.0).find(|page| !self.0.contains(page)).map(Page)
    }
}

fn pages(accesses: &[Access]) -> impl Iterator<Item = u64> + '_ {
    accesses
        .iter()
        .flat_map(|a| a.first.0..a.first.0 + u64::from(a.pages))
}

/// Checks the contract of `pattern` with every `holes`-th page of a pseudo-random choice unmapped.
fn check(pattern: &KernelPattern, holes: u64, seed: u64) -> Result<(), TestCaseError> {
    let mut step = StepAccesses::default();
    let mut stores = StepAccesses::default();
    let mut touched: Vec<BTreeSet<u64>> = Vec::new();
    let mut loaded = BTreeSet::new();
    for block in 0..pattern.blocks() {
        let mut own = BTreeSet::new();
        for s in 0..pattern.steps() {
            step.clear();
            stores.clear();
            pattern.step(block, s, &mut step);
            pattern.stores(block, s, &mut stores);
            prop_assert_eq!(&step.stores, &stores.stores);
            prop_assert!(stores.loads.is_empty());
            for access in step.loads.iter().chain(&step.stores) {
                prop_assert!(access.pages > 0 && access.warps > 0);
            }
            loaded.extend(pages(&step.loads));
            own.extend(pages(&step.loads).chain(pages(&step.stores)));
        }
        touched.push(own);
    }
    let all: BTreeSet<u64> = touched.iter().flatten().copied().collect();
    // Around the touched pages others are mapped too, as in a device that runs other kernels.
    let low = all.first().copied().unwrap_or(0).saturating_sub(600);
    let high = all.last().copied().unwrap_or(0) + 600;
    let mapped: BTreeSet<u64> = (low..high)
        .filter(|page| holes == 0 || !sim_core::rng::mix64(page ^ seed << 32).is_multiple_of(holes))
        .collect();
    let mapped = Mapped(mapped);
    for from in 0..=pattern.blocks() {
        let first = (from..pattern.blocks())
            .find(|b| touched[*b as usize].iter().any(|page| !mapped.0.contains(page)));
        let answer = pattern.first_unmapped_block(from, &mapped);
        if let Some(first) = first {
            prop_assert!(
                answer.is_some_and(|a| a >= from && a <= first),
                "{answer:?} for {first}"
            );
        }
        if let Some(answer) = answer {
            prop_assert!(answer >= from && answer < pattern.blocks());
        }
    }
    if pattern.loads_mapped(&mapped) {
        prop_assert!(loaded.iter().all(|page| mapped.0.contains(page)));
    }
    for page in &all {
        prop_assert!(pattern.may_touch(Page(*page), Page(page + 1)));
    }
    Ok(())
}

fn range(start_page: u64, bytes: u64) -> ByteRange {
    ByteRange {
        start: start_page * 4096,
        bytes,
    }
}

// Small numbers.
#[allow(clippy::cast_possible_wrap)]
fn axis(length: u64, extent: u64, by: i64) -> impl Strategy<Value = Axis> {
    (
        -3 * length as i64..3 * length as i64,
        [-by..by, -by..by, -by..by, -by..by],
        1..=length,
        0..extent / 2,
    )
        .prop_map(move |(at, [x, y, z, step], len, low)| Axis {
            at,
            x,
            y,
            z,
            step,
            len,
            low: low as i64,
            high: extent as i64,
        })
}

fn window() -> impl Strategy<Value = Window> {
    (
        0..3_u32,
        axis(9000, 60_000, 9000),
        axis(5, 12, 4),
        0..20_000_u64,
        axis(2, 4, 2),
        0..80_000_u64,
        prop::option::of((0..4_u32, 0..5_u32)),
    )
        .prop_map(|(operand, columns, rows, pitch, planes, plane, steps)| Window {
            operand,
            columns,
            rows,
            pitch,
            planes,
            plane,
            steps,
            warp_bytes: 128,
        })
}

fn windows() -> impl Strategy<Value = WindowsSpec> {
    (
        [1..5_u64, 1..5, 1..3],
        1..4_u32,
        prop::collection::vec(window(), 1..4),
        prop::option::weighted(0.2, (0..3_u32, 1..300_u64, 1..9000_u64, 0..4_usize)),
    )
        .prop_map(|(grid, steps, windows, touch)| WindowsSpec {
            grid,
            steps,
            windows,
            touches: touch
                .map(|(operand, count, granule, place)| Touch {
                    place: [Place::Drawn, Place::Fresh, Place::Bisect, Place::Ascending][place],
                    ..Touch::new(operand, count, granule, granule, (0, steps))
                })
                .into_iter()
                .collect(),
            seed: 5,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn windows_keep_the_contract(
        spec in windows(),
        bytes in [1..300_000_u64, 1..300_000, 1..300_000],
        holes in 0..60_u64,
        seed in any::<u64>(),
    ) {
        spec.check(3).map_err(TestCaseError::fail)?;
        let reads = [range(1000, bytes[0]), range(2000, bytes[1])];
        let writes = [range(3000, bytes[2])];
        let pattern = PatternSpec::windows(256, spec).place(&reads, &writes, None);
        check(&pattern.unwrap(), holes, seed)?;
    }

    #[test]
    fn sweeps_keep_the_contract(
        blocks in 1..20_u64,
        steps in 1..4_u32,
        grid_stride in any::<bool>(),
        pages in 1..200_u64,
        bytes in [1..300_000_u64, 1..300_000],
        holes in 0..60_u64,
        seed in any::<u64>(),
    ) {
        let (reads, writes) = ([range(1000, bytes[0])], [range(3000, bytes[1])]);
        let lockstep = Lockstep {
            reads: reads.to_vec(),
            writes: writes.to_vec(),
            blocks,
            steps,
            warps: 8,
            grid_stride,
        };
        let gather = Gather {
            swept: lockstep.clone(),
            table: range(5000, bytes[0]),
            rows_per_block: 3,
            scatter: grid_stride,
            seed,
        };
        check(&KernelPattern::Lockstep(lockstep), holes, seed)?;
        check(&KernelPattern::Gather(gather), holes, seed)?;
        let both = [range(1000, pages * 4096)];
        for order in [SweepOrder::Ascending, SweepOrder::Shuffled, SweepOrder::Chunked] {
            let walk = Walk::Sweep { blocks, steps, order, seed, pages_per_thread: u64::from(steps) };
            let spec = PatternSpec::new(32, walk);
            spec.check(1, 1).map_err(TestCaseError::fail)?;
            check(&spec.place(&both, &[range(4000, pages * 4096)], None).unwrap(), holes, seed)?;
        }
    }

    #[test]
    fn products_and_lists_keep_the_contract(
        sizes in [1..400_u64, 1..400, 1..400],
        batch in 1..3_u64,
        tensors in 1..4_usize,
        chunk in 1..40_000_u64,
        holes in 0..60_u64,
        seed in any::<u64>(),
    ) {
        let [m, n, k] = sizes;
        let walk = Walk::Gemm { batch, m, n, k, element: 4 };
        let spec = PatternSpec::new(256, walk);
        spec.check(2, 1).map_err(TestCaseError::fail)?;
        let (a, b) = (range(1000, batch * m * k * 4), range(3000, batch * k * n * 4));
        let c = range(5000, batch * m * n * 4);
        check(&spec.place(&[a, b], &[c], None).unwrap(), holes, seed)?;
        let list = |base: u64| (0..tensors).map(move |i| range(base + 50 * i as u64, 10_000 + 7 * sizes[i % 3]));
        let reads: Vec<_> = list(1000).chain(list(3000)).collect();
        let writes: Vec<_> = list(5000).collect();
        let walk = Walk::Lists { chunk, steps: 3, lists: 2, stores: 1 };
        let spec = PatternSpec::new(256, walk);
        spec.check(reads.len(), writes.len()).map_err(TestCaseError::fail)?;
        check(&spec.place(&reads, &writes, None).unwrap(), holes, seed)?;
    }

    #[test]
    fn recordings_keep_the_contract(
        accesses in prop::collection::vec(
            prop::collection::vec((0..4_u32, 0..2_u32, 0..40_000_u64, 1..20_000_u64, 1..9_u16), 0..8),
            1..30,
        ),
        bytes in [1..60_000_u64, 1..60_000],
        holes in 0..60_u64,
        seed in any::<u64>(),
    ) {
        let mut blocks = accesses;
        for block in &mut blocks {
            block.sort_by_key(|access| access.0);
        }
        let spec = PatternSpec::new(256, Walk::Recorded(RecordedSpec { steps: 4, blocks }.into()));
        spec.check(1, 1).map_err(TestCaseError::fail)?;
        check(&spec.place(&[range(1000, bytes[0])], &[range(3000, bytes[1])], None).unwrap(), holes, seed)?;
    }

    #[test]
    fn graphs_keep_the_contract(
        vertices in 9..3000_u32,
        level in 0..4_u32,
        threads in prop::sample::select(vec![16_u32, 256, 512]),
        holes in 0..60_u64,
        seed in 0..1000_u64,
    ) {
        let graph = GraphSource::Uniform { vertices, min: 1, max: 4, symmetric: false, seed };
        let prepared = shared(&graph).unwrap();
        for phase in [
            Phase::BfsExpand,
            Phase::BfsCommit,
            Phase::SsspRelax,
            Phase::SsspUpdate,
            Phase::PageRank,
        ] {
            let walk = Walk::Graph { graph: graph.clone(), phase, level };
            let spec = PatternSpec::new(threads, walk);
            let (r, w) = phase.operands();
            let ranges: Vec<_> = (0..(r + w) as u64).map(|i| range(1000 * (i + 1), 8 * 3000)).collect();
            spec.check(r, w).map_err(TestCaseError::fail)?;
            let pattern = spec.place(&ranges[..r], &ranges[r..], Some(&prepared));
            check(&pattern.unwrap(), holes, seed)?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Any text is a graph or an error with its line.
    #[test]
    fn edge_lists_are_read_or_refused(text in "(%%MatrixMarket matrix coordinate real [a-z]{7,9}\n)?([0-9]{1,3}[ ,\t]?){0,3}\n([-0-9 .,#%a-c\t\n]{0,60})") {
        match workloads::graph::edge_list::parse(text.as_bytes(), "edges") {
            Ok(graph) => {
                for v in 0..graph.vertices() {
                    for e in graph.row(v) {
                        prop_assert!(graph.target(e) < graph.vertices());
                    }
                }
            }
            Err(error) => prop_assert!(error.to_string().starts_with("edges:")),
        }
    }
}

/// Everything mapped but one page.
struct AllBut(u64);
impl MappedPages for AllBut {
    fn first_unmapped(&self, from: Page, end: Page) -> Option<Page> {
        (from.0..end.0).contains(&self.0).then_some(Page(self.0))
    }
}

/// A kernel of 100 GB is asked for its first hole in time that does not depend on its blocks.
#[test]
fn large_arrays_need_no_memory() {
    let n = 25_u64 << 30;
    let own = |operand| Window::new(operand, Axis::new(1024, n * 4).x(1024));
    let spec = WindowsSpec {
        grid: [n / 256, 1, 1],
        steps: 1,
        windows: vec![own(0), own(1)],
        ..WindowsSpec::default()
    };
    let (read, write) = (range(1 << 30, n * 4), range(1 << 32, n * 4));
    let pattern = PatternSpec::windows(256, spec)
        .place(&[read], &[write], None)
        .unwrap();
    // Page 20,000,000 of the array belongs to blocks 4 x that and on.
    let hole = AllBut((1 << 32) + 20_000_000);
    assert_eq!(pattern.first_unmapped_block(0, &hole), Some(80_000_000));
    assert_eq!(pattern.first_unmapped_block(80_000_003, &hole), Some(80_000_003));
    assert_eq!(pattern.first_unmapped_block(80_000_004, &hole), None);
    assert!(std::mem::size_of::<KernelPattern>() < 512);
    let _ = Arc::new(pattern);
}
