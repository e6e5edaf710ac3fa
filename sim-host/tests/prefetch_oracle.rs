//! The tree prefetcher against the driver's own decisions.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use sim_core::pages::PageMask;
use sim_host::check::prefetch_jsonl;
use sim_host::prefetch::{Service, tree_prefetch};

fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("UVMSIM_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")),
        PathBuf::from,
    );
    let path = root.join("data").join(path);
    path.exists().then_some(path)
}

#[test]
fn equals_the_recorded_cases() {
    let Some(path) = shared("uvm-driver/prefetch_cases.jsonl") else {
        println!("skipped: no recorded cases here");
        return;
    };
    let report = prefetch_jsonl(BufReader::new(File::open(path).expect("readable"))).expect("well-formed");
    assert_eq!(report.mismatches, vec![]);
    assert_eq!(report.passed, 1200);
}

fn mask(runs: &[(usize, usize)]) -> PageMask {
    runs.iter().fold(PageMask::EMPTY, |mask, &(first, end)| {
        mask | PageMask::range(first, end)
    })
}

fn pages(list: &[usize]) -> PageMask {
    list.iter()
        .fold(PageMask::EMPTY, |mask, &page| mask | PageMask::single(page))
}

/// The worked examples of uvm-driver 5.3: (first page, pages, threshold, resident, faulted, thrashing, out).
#[test]
#[allow(clippy::type_complexity)]
fn worked_examples() {
    let every = |step: usize| (0..512).step_by(step).collect::<Vec<_>>();
    let mut seventeen = every(32);
    seventeen.push(16);
    let none: &[(usize, usize)] = &[];
    let cases: Vec<(
        usize,
        usize,
        u32,
        &[(usize, usize)],
        Vec<usize>,
        &[usize],
        &[(usize, usize)],
    )> = vec![
        (0, 512, 51, none, vec![5], &[], &[(0, 5), (6, 16)]),
        (0, 512, 51, none, vec![0, 16], &[], &[(1, 16), (17, 32)]),
        (
            0,
            512,
            51,
            none,
            vec![0, 16, 32],
            &[],
            &[(1, 16), (17, 32), (33, 64)],
        ),
        (
            0,
            512,
            51,
            none,
            vec![0, 16, 64],
            &[],
            &[(1, 16), (17, 32), (65, 80)],
        ),
        (0, 512, 51, &[(0, 16)], vec![20], &[], &[(0, 20), (21, 32)]),
        (0, 512, 51, &[(0, 32)], vec![100], &[], &[(96, 100), (101, 112)]),
        (0, 512, 51, &[(0, 64)], vec![64], &[], &[(0, 64), (65, 128)]),
        (0, 512, 51, &[(0, 208)], vec![208], &[], &[(0, 208), (209, 256)]),
        (0, 512, 51, &[(0, 256)], vec![256], &[], &[(0, 256), (257, 512)]),
        (0, 512, 51, none, vec![5], &[3], none),
        (
            0,
            512,
            51,
            none,
            vec![5, 20],
            &[3],
            &[(0, 3), (4, 5), (6, 20), (21, 32)],
        ),
        (0, 512, 51, none, vec![3, 20], &[3], &[(0, 3), (4, 20), (21, 32)]),
        (0, 512, 3, none, vec![5], &[], &[(0, 5), (6, 512)]),
        (0, 512, 4, none, vec![5], &[], &[(0, 5), (6, 256)]),
        (0, 512, 100, none, vec![5], &[], none),
        (0, 300, 51, none, vec![299], &[], &[(288, 299)]),
        (0, 8, 51, none, vec![3], &[], &[(0, 3), (4, 8)]),
        (0, 40, 51, none, vec![0, 16], &[], &[(1, 16), (17, 40)]),
        (4, 508, 51, none, vec![2], &[], &[(4, 12)]),
        (4, 508, 51, none, vec![12], &[], &[(13, 28)]),
        (4, 508, 51, none, vec![2, 12], &[], &[(4, 12), (13, 28)]),
    ];
    for (first_page, n, threshold, resident, faulted, thrashing, out) in cases {
        let (resident, faults, thrash) = (mask(resident), pages(&faulted), pages(thrashing));
        let service = Service {
            first_page,
            pages: n,
            faulted: &faults,
            resident: &resident,
            thrashing: &thrash,
        };
        assert_eq!(
            tree_prefetch(&service, threshold),
            mask(out),
            "{faulted:?} of {n} at {threshold} %"
        );
    }
    let everywhere = |list: &[usize]| {
        let faults = pages(list);
        let empty = PageMask::EMPTY;
        let service = Service {
            first_page: 0,
            pages: 512,
            faulted: &faults,
            resident: &empty,
            thrashing: &empty,
        };
        tree_prefetch(&service, 51).count()
    };
    assert_eq!(everywhere(&every(64)), 120);
    assert_eq!(everywhere(&every(32)), 240);
    assert_eq!(everywhere(&seventeen), 495);
}
