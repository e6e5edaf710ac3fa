//! Footprints, touched pages, launches and bytes of the suites' own sizes against published figures, and
//! the way of every kernel through a file.

mod launches;

use std::collections::BTreeSet;

use launches::{Launches, launches, launches_of, pages, program};
use sim_core::access::{Access, AccessPattern, StepAccesses};
use workloads::classic;
use workloads::program::{Op, Program};

/// Pages touched; loads and stores, one for each warp and page.
fn touched(made: &Launches) -> (u64, u64, u64) {
    let mut all = BTreeSet::new();
    let (mut loads, mut stores) = (0, 0);
    let mut step = StepAccesses::default();
    for kernel in &made.kernels {
        for block in 0..kernel.pattern.blocks() {
            for s in 0..kernel.pattern.steps() {
                step.clear();
                kernel.pattern.step(block, s, &mut step);
                all.extend(step.loads.iter().chain(&step.stores).flat_map(pages));
                let warps = |a: &Access| u64::from(a.warps) * u64::from(a.pages);
                loads += step.loads.iter().map(warps).sum::<u64>();
                stores += step.stores.iter().map(warps).sum::<u64>();
            }
        }
    }
    (all.len() as u64, loads, stores)
}

/// Pages that the on-demand runs of the `UVMSmart` artifact migrate, without prefetch and with all memory,
/// are the touched pages.
#[test]
fn touched_pages_are_the_published_ones() {
    for (name, expected) in [
        ("backprop", 6785),
        ("fdtd-2d", 4224),
        ("hotspot", 3072),
        ("triad-f32", 3072),
    ] {
        assert_eq!(touched(&launches(name, &[])).0, expected, "{name}");
    }
    // Two matrices of 1024 pages; the border of the result is not written.
    assert_eq!(touched(&launches("2dconv", &[])).0, 2046);
    // The input is swept; 10,486 random places miss one of 1024 pages with probability e^-10.
    let (pages, loads, stores) = touched(&launches("random-access", &[]));
    assert!((3060..=3072).contains(&pages), "{pages}");
    assert_eq!((loads, stores), (20_972, 10_486));
}

#[test]
fn launches_are_as_many() {
    for (name, expected) in [
        ("backprop", 2),
        ("fdtd-2d", 15),
        ("hotspot", 4),
        ("2dconv", 1),
        ("atax", 2),
        ("nw", 127),
        ("pathfinder", 20),
        ("srad", 8),
        ("stencil-3d", 10),
        ("sssp", 31),
    ] {
        assert_eq!(launches(name, &[]).kernels.len(), expected, "{name}");
    }
    // Grids of the suites.
    for (name, blocks) in [
        ("backprop", 8191),
        ("fdtd-2d", 38 * 150),
        ("hotspot", 86 * 86),
        ("2dconv", 32 * 128),
        ("atax", 5),
        ("triad-f32", 4096),
        ("random-access", 4096),
        ("pathfinder", 212),
        ("srad", 64 * 64),
        ("stencil-3d", 8 * 128),
        ("bfs", 511),
        ("sssp", 65_536),
    ] {
        assert_eq!(launches::blocks_of(&launches(name, &[]), 0), blocks, "{name}");
    }
}

#[test]
fn arrays_have_the_published_bytes() {
    let bytes = |name| -> Vec<u64> {
        let program = program(name, &[]);
        program
            .setup
            .iter()
            .filter_map(|op| match op {
                Op::Alloc { n, .. } => Some(*n),
                _ => None,
            })
            .collect()
    };
    let whole = |bytes: &[u64]| -> Vec<u64> { bytes.iter().map(|n| n.next_multiple_of(4096)).collect() };
    let weights = 8_911_876;
    assert_eq!(
        bytes("backprop"),
        whole(&[524_228, weights, weights, weights, 68, 524_224])
    );
    assert_eq!(bytes("fdtd-2d"), whole(&[20, 5_764_800, 5_764_800, 5_760_000]));
    assert_eq!(bytes("pathfinder"), whole(&[200_000, 200_000, 39_800_000]));
    assert_eq!(bytes("nw"), whole(&[4_202_500; 2]));
    assert_eq!(bytes("stencil-3d"), [64 << 20; 2]);
    // XSBench's small problem: 768,604 energies, an index for each of 68 nuclides.
    assert_eq!(
        bytes("xsbench")[..3],
        whole(&[768_604 * 8, 768_604 * 68 * 4, 768_604 * 48])
    );
}

/// The graph of Rodinia's generator has 1,568,420 edges where it was published, and levels of these sizes.
#[test]
fn the_search_is_the_suites() {
    let published = [1, 7, 34, 170, 928, 5184, 26_861, 102_564, 117_112, 8578, 5];
    let source = workloads::graph::GraphSource::Uniform {
        vertices: 261_444,
        min: 2,
        max: 4,
        symmetric: true,
        seed: 1,
    };
    let prepared = workloads::graph::shared(&source).unwrap();
    let edges = f64::from(prepared.graph.edges());
    assert!((edges / 1_568_420.0 - 1.0).abs() < 0.003, "{edges}");
    let sizes: Vec<usize> = (0..prepared.depth())
        .map(|level| prepared.levels().iter().filter(|l| **l == level).count())
        .collect();
    println!("levels: {sizes:?}, published {published:?}");
    assert!((10..=12).contains(&sizes.len()));
    // Every node is reached, or all but a few.
    assert!(sizes.iter().sum::<usize>() > 261_400);
    let largest = sizes.iter().max().unwrap();
    assert!((90_000..140_000).contains(largest));
}

/// FLOPs and bytes of the roofline.
#[test]
fn work_follows_the_formulas() {
    let sum = |program: &Program| {
        let mut work = (0, 0, 0);
        for op in program.iterations.iter().flatten() {
            if let Op::Kernel { flops, rb, wb, .. } = op {
                work = (work.0 + flops, work.1 + rb, work.2 + wb);
            }
        }
        work
    };
    let n = 1 << 20;
    assert_eq!(sum(&program("triad-f32", &[])), (2 * n, 8 * n, 4 * n));
    // 5 n log2 n; each of three passes reads and writes all points.
    let points = 1_u64 << 24;
    assert_eq!(
        sum(&program("fft", &[])),
        (5 * points * 24, 24 * points, 24 * points)
    );
    // Weights twice in and twice out, less the bias; inputs twice.
    let (inputs, weights) = (131_056, 131_056 * 16);
    assert_eq!(sum(&program("backprop", &[])).1, 4 * (3 * weights + 2 * inputs));
    // Products and a softmax of 96 heads: 4 n^2 k and 5 n^2 each.
    let (heads, n, k) = (96, 1024_u64, 64);
    assert_eq!(
        sum(&program("attention", &[])).0,
        heads * (4 * n * n * k + 5 * n * n)
    );
    assert_eq!(sum(&program("flash-attention", &[])).0, heads * 4 * n * n * k);
    // A convolution has the same products however it is done.
    let products = |name| sum(&program(name, &[])).0;
    assert_eq!(products("conv-implicit"), products("conv-im2col"));
    assert_eq!(products("conv-implicit"), 2 * 32 * 64 * 64 * 9 * 56 * 56);
}

/// Written and read again, every kernel is the same program, and gives the same accesses.
#[test]
fn every_kernel_goes_through_a_file() {
    for entry in classic::entries() {
        let params: Vec<(&str, u64)> = entry
            .params
            .iter()
            .filter_map(|param| {
                let small = match param.name {
                    "n" if entry.name == "nw" || entry.name == "backprop" => 64,
                    "n" | "m" => 48,
                    "lookups" | "k" => 40,
                    "scale" => 9,
                    "blocks" | "steps" | "batch" | "heads" => 2,
                    _ => return None,
                };
                Some((param.name, small.max(param.min)))
            })
            .collect();
        let made = program(entry.name, &params);
        let mut text = Vec::new();
        workloads::program::write(&made, &mut text).unwrap();
        let read = workloads::program::parse(&text[..], "kernel").unwrap();
        assert_eq!(made, read, "{}", entry.name);
        let (mut a, mut b) = (StepAccesses::default(), StepAccesses::default());
        let (made, read) = (launches_of(&made), launches_of(&read));
        for (one, other) in made.kernels.iter().zip(&read.kernels) {
            assert_eq!(one.duration, other.duration);
            assert_eq!(one.blocks_per_sm, other.blocks_per_sm);
            assert_eq!(one.pattern.blocks(), other.pattern.blocks());
            for block in 0..one.pattern.blocks().min(40) {
                for step in 0..one.pattern.steps() {
                    a.clear();
                    b.clear();
                    one.pattern.step(block, step, &mut a);
                    other.pattern.step(block, step, &mut b);
                    assert_eq!((&a.loads, &a.stores), (&b.loads, &b.stores), "{}", entry.name);
                }
            }
        }
        assert!(!made.kernels.is_empty());
    }
}

/// A pattern that cannot be simulated is refused where it stands.
#[test]
fn impossible_patterns_are_refused() {
    let head = "{\"format\":\"uvmprog/1\",\"name\":\"x\"}\n{\"op\":\"alloc\",\"t\":0,\"n\":4096}\n{\"op\":\"iter\",\"i\":0}\n";
    for (walk, says) in [
        (
            r#"{"kind":"lockstep","blocks":0}"#,
            "0 blocks of 1 steps; accepted: 1 to 2^40 blocks",
        ),
        (
            r#"{"kind":"windows","grid":[1,1,1],"windows":[{"operand":1,"columns":{"len":4,"high":4}}]}"#,
            "window 0: operand 1: there are 1",
        ),
        (
            r#"{"kind":"windows","grid":[1,1,1],"windows":[{"operand":0,"columns":{"len":4,"high":4,"x":9223372036854775807}}]}"#,
            "",
        ),
        (
            r#"{"kind":"windows","grid":[4,1,1],"windows":[{"operand":0,"columns":{"len":4,"high":4,"x":9223372036854775807}}]}"#,
            "window 0: an axis leaves 0..2^50",
        ),
        (
            r#"{"kind":"gemm","batch":1,"m":1,"n":1,"k":1,"element":4}"#,
            "a product reads two ranges and writes one",
        ),
        (
            r#"{"kind":"graph","graph":{"from":"rmat","scale":60,"degree":1,"seed":1},"phase":"page-rank"}"#,
            "scale = 60; accepted: 1 to 28",
        ),
        (r#"{"kind":"spiral"}"#, "unknown variant `spiral`"),
    ] {
        let kernel = format!(
            "{{\"op\":\"kernel\",\"name\":\"k\",\"r\":[[0,0,4096]],\"w\":[],\"rb\":1,\"wb\":0,\"pattern\":{{\"threads\":32,\"walk\":{walk}}}}}\n"
        );
        let text = format!("{head}{kernel}");
        match workloads::program::parse(text.as_bytes(), "p.uvmprog") {
            Ok(program) => {
                assert!(says.is_empty(), "{walk} was accepted");
                launches_of(&program);
            }
            Err(error) => {
                let error = error.to_string();
                assert!(
                    !says.is_empty() && error.starts_with("p.uvmprog:4: ") && error.contains(says),
                    "{walk}: {error}"
                );
            }
        }
    }
}

/// Each parameter at both ends of its range gives a program or says what is wrong.
#[test]
fn the_ends_of_every_parameter() {
    for entry in classic::entries() {
        for param in entry.params {
            // Graphs of 2^28 vertices do not fit a test.
            let graph = ["bfs", "sssp", "pagerank"].contains(&entry.name);
            let ends = [param.min, param.max];
            for value in ends.into_iter().take(if graph { 1 } else { 2 }) {
                let options = classic::Options {
                    params: [(param.name.to_owned(), value)].into(),
                    ..classic::Options::default()
                };
                match classic::program(entry, &options) {
                    Ok(made) => assert!(!made.iterations[0].is_empty()),
                    Err(error) => {
                        let error = error.to_string();
                        assert!(error.contains("accepted"), "{}: {error}", entry.name);
                    }
                }
            }
            for value in [param.min.wrapping_sub(1), param.max + 1] {
                let options = classic::Options {
                    params: [(param.name.to_owned(), value)].into(),
                    ..classic::Options::default()
                };
                let error = classic::program(entry, &options).unwrap_err().to_string();
                let says = format!("workload.param.{} = {value}: ", param.name);
                assert!(error.starts_with(&says), "{error}");
            }
        }
    }
}

#[test]
fn errors_name_the_key_and_what_is_accepted() {
    let message = |name: &str, params: &[(&str, u64)], graph: Option<&str>| {
        let options = classic::Options {
            params: params.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect(),
            graph: graph.map(str::to_owned),
            ..classic::Options::default()
        };
        classic::program(classic::find(name).unwrap(), &options)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        message("fft", &[("m", 3)], None),
        "workload.param.m: fft has no such parameter; it has: scale"
    );
    assert_eq!(
        message("nw", &[("n", 100)], None),
        "workload.param.n = 100: nw works in tiles of 16; accepted: multiples of 16"
    );
    assert_eq!(
        message("fft", &[], Some("edges.txt")),
        "workload.graph: fft runs on no graph; bfs, sssp and pagerank do"
    );
    let missing = message("bfs", &[], Some("no/such/file"));
    assert!(missing.starts_with("no/such/file: "), "{missing}");
}
