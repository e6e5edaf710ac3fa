//! Graph kernels on a graph against the algorithm, thread by thread.

mod launches;

use std::collections::BTreeSet;
use std::io::Write as _;

use launches::{Launches, compare, launches_of};
use workloads::classic::{self, Options};
use workloads::graph::{Graph, GraphSource};

fn with_graph(name: &str, path: &std::path::Path) -> Launches {
    let options = Options {
        graph: Some(path.display().to_string()),
        ..Options::default()
    };
    launches_of(&classic::program(classic::find(name).unwrap(), &options).unwrap())
}

/// A graph of 3,000 vertices with up to five edges each, as a file and in memory.
fn graph(name: &str) -> (std::path::PathBuf, Graph) {
    let source = GraphSource::Uniform {
        vertices: 3000,
        min: 0,
        max: 5,
        symmetric: false,
        seed: 9,
    };
    let graph = source.load().unwrap();
    let path = std::env::temp_dir().join(format!("uvmsim-{}-{name}.txt", std::process::id()));
    let mut file = std::fs::File::create(&path).unwrap();
    writeln!(file, "# from to length").unwrap();
    for v in 0..graph.vertices() {
        for e in graph.row(v) {
            let length = f64::from(graph.weight(e)) / 65536.0;
            writeln!(file, "{v} {} {length}", graph.target(e)).unwrap();
        }
    }
    (path, graph)
}

/// Vertices of a block.
fn threads(block: u64, threads: u64) -> std::ops::Range<u32> {
    (block * threads) as u32..((block + 1) * threads).min(3000) as u32
}

/// Level by level with the flags of the suite's two kernels.
#[test]
fn search() {
    let (path, graph) = graph("bfs");
    let made = with_graph("bfs", &path);
    let n = graph.vertices() as usize;
    let (nodes, mask, updating, visited, edges, cost) = (0, 1, 2, 3, 4, 5);
    let root = (0..graph.vertices()).find(|v| !graph.row(*v).is_empty()).unwrap();
    let (mut is_masked, mut is_visited) = (vec![false; n], vec![false; n]);
    is_masked[root as usize] = true;
    is_visited[root as usize] = true;
    let mut launch = 0;
    loop {
        let mut is_updating = vec![false; n];
        compare(&made, launch, |b, load, store| {
            for v in threads(b, 512) {
                load(mask, u64::from(v));
                if !is_masked[v as usize] {
                    continue;
                }
                store(mask, u64::from(v));
                load(nodes, u64::from(v) * 8);
                for e in graph.row(v) {
                    let to = graph.target(e);
                    load(edges, u64::from(e) * 4);
                    load(visited, u64::from(to));
                    if !is_visited[to as usize] {
                        load(cost, u64::from(v) * 4);
                        store(cost, u64::from(to) * 4);
                        store(updating, u64::from(to));
                    }
                }
            }
        });
        for v in (0..graph.vertices()).filter(|v| is_masked[*v as usize]) {
            for e in graph.row(v) {
                let to = graph.target(e) as usize;
                is_updating[to] |= !is_visited[to];
            }
        }
        compare(&made, launch + 1, |b, load, store| {
            for v in threads(b, 512) {
                load(updating, u64::from(v));
                if is_updating[v as usize] {
                    for array in [mask, visited, updating] {
                        store(array, u64::from(v));
                    }
                }
            }
        });
        launch += 2;
        for v in 0..n {
            is_visited[v] |= is_updating[v];
        }
        is_masked = is_updating;
        if !is_masked.contains(&true) {
            break;
        }
    }
    assert_eq!(launch, made.kernels.len());
    assert!(launch > 8);
    std::fs::remove_file(path).unwrap();
}

/// Bellman-Ford with the flags of the suite's kernels; lengths are compared in 1 / 65,536.
#[test]
fn shortest_paths() {
    let (path, graph) = graph("sssp");
    let made = with_graph("sssp", &path);
    let n = graph.vertices() as usize;
    let (rows, edges, lengths, distance, finalized, updating) = (0, 1, 2, 3, 4, 5);
    let root = (0..graph.vertices()).find(|v| !graph.row(*v).is_empty()).unwrap();
    let (mut far, mut active) = (vec![u64::MAX; n], vec![root]);
    far[root as usize] = 0;
    for pass in 0..(made.kernels.len() - 1) / 2 {
        compare(&made, 2 * pass + 1, |b, load, store| {
            for v in threads(b, 16) {
                load(finalized, u64::from(v));
                if active.contains(&v) {
                    store(finalized, u64::from(v));
                    load(rows, u64::from(v) * 4);
                    load(rows, u64::from(v) * 4 + 4);
                    load(distance, u64::from(v) * 4);
                    for e in graph.row(v) {
                        load(edges, u64::from(e) * 4);
                        load(lengths, u64::from(e) * 4);
                        store(updating, u64::from(graph.target(e)) * 4);
                    }
                }
            }
        });
        let mut next = far.clone();
        for v in &active {
            for e in graph.row(*v) {
                let to = graph.target(e) as usize;
                next[to] = next[to].min(far[*v as usize] + u64::from(graph.weight(e)));
            }
        }
        let fell: BTreeSet<u32> = (0..n as u32)
            .filter(|v| next[*v as usize] < far[*v as usize])
            .collect();
        compare(&made, 2 * pass + 2, |b, load, store| {
            for v in threads(b, 16) {
                load(distance, u64::from(v) * 4);
                load(updating, u64::from(v) * 4);
                store(updating, u64::from(v) * 4);
                if fell.contains(&v) {
                    store(distance, u64::from(v) * 4);
                    store(finalized, u64::from(v));
                }
            }
        });
        far = next;
        active = fell.into_iter().collect();
    }
    assert!(made.kernels.len() > 8);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn page_rank() {
    let (path, graph) = graph("pagerank");
    let made = with_graph("pagerank", &path);
    assert_eq!(made.kernels.len(), 5);
    for pass in 0..2 {
        let (from, to) = [(2, 3), (3, 2)][pass];
        compare(&made, pass, |b, load, store| {
            for v in threads(b, 256) {
                load(0, u64::from(v) * 4);
                load(0, u64::from(v) * 4 + 4);
                store(to, u64::from(v) * 4);
                for e in graph.row(v) {
                    load(1, u64::from(e) * 4);
                    load(from, u64::from(graph.target(e)) * 4);
                }
            }
        });
    }
    std::fs::remove_file(path).unwrap();
}
