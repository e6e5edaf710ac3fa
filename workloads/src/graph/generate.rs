//! Random graphs.

use sim_core::rng::Stream;

use super::Graph;

/// Probabilities of the quadrants of the adjacency matrix, in percent: A, B, C; D is the rest
/// (Graph500 benchmark specification).
const QUADRANTS: [u64; 3] = [57, 19, 19];

/// An R-MAT graph (Chakrabarti, Zhan, Faloutsos 2004) of 2^scale vertices.
pub fn rmat(scale: u32, degree: u32, seed: u64) -> Graph {
    let mut stream = Stream::new(seed, "graph.rmat");
    let vertices = 1_u32 << scale;
    let count = (u64::from(degree) << scale) as usize;
    let mut edges = Vec::with_capacity(count);
    let [a, b, c] = QUADRANTS;
    for _ in 0..count {
        let (mut from, mut to) = (0, 0);
        for _ in 0..scale {
            let drawn = stream.below(100);
            let (down, right) = (drawn >= a + b, (a..a + b).contains(&drawn) || drawn >= a + b + c);
            from = from << 1 | u32::from(down);
            to = to << 1 | u32::from(right);
        }
        edges.push((from, to));
    }
    Graph::from_edges(vertices, &edges, None)
}

/// Every vertex draws between `partners.0` and `partners.1` others, evenly.
pub fn uniform(vertices: u32, partners: (u32, u32), symmetric: bool, seed: u64) -> Graph {
    let mut stream = Stream::new(seed, "graph.uniform");
    let mut edges = Vec::new();
    for vertex in 0..vertices {
        let spread = u64::from(partners.1 - partners.0) + 1;
        let count = partners.0 + stream.below(spread) as u32;
        for _ in 0..count {
            // Any vertex but itself.
            let other = stream.below(u64::from(vertices) - 1) as u32;
            let other = other + u32::from(other >= vertex);
            edges.push((vertex, other));
            if symmetric {
                edges.push((other, vertex));
            }
        }
    }
    Graph::from_edges(vertices, &edges, None)
}
