//! Graph algorithms: what each launch touches follows from the graph.

use std::sync::Arc;

use super::bench::{Bench, Work};
use super::{Entry, Param, param};
use crate::graph::prepared::UNREACHED;
use crate::graph::{GraphSource, Prepared, shared};
use crate::pattern::{Axis, PatternSpec, Phase, Walk, Window, WindowsSpec};
use crate::program::ProgramError;

/// Bytes of a memory sector: what a scattered access moves.
const SECTOR: u64 = 32;

const SCALE: Param = param(
    "scale",
    "R-MAT graph of 2^scale vertices; 0: the suite's graph",
    0,
    0,
    28,
);
const DEGREE: Param = param(
    "degree",
    "edges for each vertex of the R-MAT graph",
    16,
    1,
    1 << 20,
);
const VERTICES: Param = param("n", "vertices of the suite's graph", 261_444, 8, 1 << 28);

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 3] = [
    Entry {
        name: "bfs",
        summary: "breadth-first search by levels (Rodinia); its graph, R-MAT, or an edge list",
        params: &[VERTICES, SCALE, DEGREE],
        sized: false,
        build: bfs,
    },
    Entry {
        name: "sssp",
        summary: "shortest paths by relaxation (LonestarGPU style); its graph, R-MAT, or an edge list",
        params: &[
            param("n", "vertices of the suite's graph", 1 << 20, 8, 1 << 28),
            SCALE,
            DEGREE,
            param("steps", "iterations at most", 15, 1, 1000),
        ],
        sized: false,
        build: sssp,
    },
    Entry {
        name: "pagerank",
        summary: "PageRank by pulling; R-MAT or an edge list",
        params: &[
            param("scale", "R-MAT graph of 2^scale vertices", 20, 1, 28),
            DEGREE,
            param("steps", "iterations", 5, 1, 1000),
        ],
        sized: false,
        build: pagerank,
    },
];

/// The graph that was asked for; `suite`: the one of the benchmark suite.
fn graph(b: &mut Bench, suite: GraphSource) -> Result<(GraphSource, Arc<Prepared>), ProgramError> {
    let source = match (&b.options().graph, b.param("scale")) {
        (Some(path), _) => GraphSource::File { path: path.clone() },
        (None, 0) => suite,
        (None, scale) => GraphSource::Rmat {
            scale: scale as u32,
            degree: b.param("degree") as u32,
            seed: b.options().seed,
        },
    };
    let prepared = shared(&source)?;
    if prepared.graph.edges() == 0 {
        return Err(ProgramError::Builtin("the graph has no edges".to_owned()));
    }
    Ok((source, prepared))
}

fn walk(threads: u32, source: &GraphSource, phase: Phase, level: u32) -> PatternSpec {
    PatternSpec::new(
        threads,
        Walk::Graph {
            graph: source.clone(),
            phase,
            level,
        },
    )
}

/// Each node draws two to four partners; edges are stored at both ends (Rodinia's generator).
fn bfs(b: &mut Bench) -> Result<(), ProgramError> {
    const THREADS: u32 = 512;
    let suite = GraphSource::Uniform {
        vertices: b.param("n") as u32,
        min: 2,
        max: 4,
        symmetric: true,
        seed: b.options().seed,
    };
    let (source, prepared) = graph(b, suite)?;
    let (v, e) = (
        u64::from(prepared.graph.vertices()),
        u64::from(prepared.graph.edges()),
    );
    let nodes = b.input(u128::from(v) * 8)?;
    let (mask, updating) = (b.input(u128::from(v))?, b.input(u128::from(v))?);
    let visited = b.input(u128::from(v))?;
    let edges = b.input(u128::from(e) * 4)?;
    let cost = b.input(u128::from(v) * 4)?;
    let levels = prepared.levels();
    for level in 0..prepared.depth() {
        // Frontier vertices, their edges, those that lead to vertices not visited yet.
        let (mut frontier, mut wide, mut fresh) = (0_u64, 0_u64, 0_u64);
        for vertex in 0..prepared.graph.vertices() {
            if levels[vertex as usize] == level {
                frontier += 1;
                for edge in prepared.graph.row(vertex) {
                    wide += 1;
                    fresh += u64::from(levels[prepared.graph.target(edge) as usize] > level);
                }
            }
        }
        let work = Work {
            flops: wide,
            read: v + frontier * SECTOR + wide * (4 + SECTOR) + fresh * 4,
            write: frontier + fresh * 2 * SECTOR,
        };
        b.launch(
            "bfs-expand",
            &[mask, nodes, edges, visited, cost],
            &[mask, cost, updating],
            walk(THREADS, &source, Phase::BfsExpand, level),
            work,
        )?;
        let reached = levels
            .iter()
            .filter(|l| **l == level + 1 && **l != UNREACHED)
            .count() as u64;
        let work = Work {
            flops: v,
            read: v,
            write: (3 * reached * SECTOR).min(3 * v),
        };
        b.launch(
            "bfs-commit",
            &[updating],
            &[mask, visited, updating],
            walk(THREADS, &source, Phase::BfsCommit, level),
            work,
        )?;
        // The host reads the flag that says whether to go on.
        b.sync();
    }
    Ok(())
}

/// Every vertex has two out-edges of random length; 16 threads a block, 32 blocks an SM. `finalized` is
/// managed here like the other arrays.
fn sssp(b: &mut Bench) -> Result<(), ProgramError> {
    const THREADS: u32 = 16;
    let suite = GraphSource::Uniform {
        vertices: b.param("n") as u32,
        min: 2,
        max: 2,
        symmetric: false,
        seed: b.options().seed,
    };
    let (source, prepared) = graph(b, suite)?;
    let (v, e) = (
        u64::from(prepared.graph.vertices()),
        u64::from(prepared.graph.edges()),
    );
    let rows = b.input((u128::from(v) + 1) * 4)?;
    let (edges, lengths) = (b.input(u128::from(e) * 4)?, b.input(u128::from(e) * 4)?);
    let (distance, finalized) = (b.output(u128::from(v) * 4)?, b.output(u128::from(v))?);
    let updating = b.output(u128::from(v) * 4)?;
    let threads = u64::from(THREADS);
    let own = |operand, element: u64| {
        Window::new(
            operand,
            Axis::new(threads * element, v * element).x(threads * element),
        )
    };
    let init = WindowsSpec {
        grid: [v.div_ceil(threads), 1, 1],
        steps: 1,
        windows: vec![own(0, 1), own(1, 4), own(2, 4)],
        ..WindowsSpec::default()
    };
    let work = Work {
        write: 9 * v,
        ..Work::default()
    };
    let pattern = PatternSpec::windows(THREADS, init);
    b.launch("sssp-init", &[], &[finalized, distance, updating], pattern, work)?;
    let active = prepared.active();
    let steps = active.len().min(b.param("steps") as usize);
    for (level, vertices) in active.iter().take(steps).enumerate() {
        let relaxed = vertices.len() as u64;
        let wide: u64 = vertices
            .iter()
            .map(|vertex| prepared.graph.row(*vertex).len() as u64)
            .sum();
        let level = level as u32;
        let work = Work {
            flops: 2 * wide,
            read: v + relaxed * 2 * SECTOR + wide * 8,
            write: relaxed + wide * SECTOR,
        };
        b.launch(
            "sssp-relax",
            &[finalized, rows, edges, lengths, distance],
            &[finalized, updating],
            walk(THREADS, &source, Phase::SsspRelax, level),
            work,
        )?;
        let fell = active.get(level as usize + 1).map_or(0, Vec::len) as u64;
        let work = Work {
            flops: v,
            read: 8 * v,
            write: 4 * v + fell * 2 * SECTOR,
        };
        b.launch(
            "sssp-update",
            &[distance, updating],
            &[distance, finalized, updating],
            walk(THREADS, &source, Phase::SsspUpdate, level),
            work,
        )?;
    }
    Ok(())
}

fn pagerank(b: &mut Bench) -> Result<(), ProgramError> {
    const THREADS: u32 = 256;
    // Never asked for: the scale is at least 1.
    let suite = GraphSource::Rmat {
        scale: 1,
        degree: 1,
        seed: 0,
    };
    let (source, prepared) = graph(b, suite)?;
    let (v, e) = (
        u64::from(prepared.graph.vertices()),
        u64::from(prepared.graph.edges()),
    );
    let (rows, edges) = (b.input((u128::from(v) + 1) * 4)?, b.input(u128::from(e) * 4)?);
    let (mut rank, mut next) = (b.input(u128::from(v) * 4)?, b.output(u128::from(v) * 4)?);
    for _ in 0..b.param("steps") {
        let work = Work {
            flops: 2 * e,
            read: 4 * (v + e) + e * SECTOR,
            write: 4 * v,
        };
        let pattern = walk(THREADS, &source, Phase::PageRank, 0);
        b.launch("pagerank", &[rows, edges, rank], &[next], pattern, work)?;
        (rank, next) = (next, rank);
    }
    Ok(())
}
