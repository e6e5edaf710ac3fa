//! What algorithms do on a graph: computed once, then asked by the access patterns.

use std::sync::OnceLock;

use super::Graph;

/// The level of a vertex that a search does not reach.
pub const UNREACHED: u32 = u32::MAX;
/// Iterations of shortest paths that are kept.
const MOST_ITERATIONS: usize = 1000;

/// A graph, with the results of searches on it as they are asked for.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The graph.
    pub graph: Graph,
    levels: OnceLock<Vec<u32>>,
    active: OnceLock<Vec<Vec<u32>>>,
}

impl Prepared {
    /// A graph of which nothing is known yet.
    pub fn new(graph: Graph) -> Prepared {
        Prepared {
            graph,
            ..Prepared::default()
        }
    }

    /// Where searches begin: the first vertex that has an edge.
    pub fn root(&self) -> u32 {
        (0..self.graph.vertices())
            .find(|v| !self.graph.row(*v).is_empty())
            .unwrap_or(0)
    }

    /// The breadth-first level of every vertex, the root's 0.
    pub fn levels(&self) -> &[u32] {
        self.levels.get_or_init(|| {
            let graph = &self.graph;
            let mut levels = vec![UNREACHED; graph.vertices() as usize];
            let mut frontier = Vec::new();
            if let Some(root) = levels.get_mut(self.root() as usize) {
                *root = 0;
                frontier.push(self.root());
            }
            let mut level = 0;
            while !frontier.is_empty() {
                level += 1;
                let mut next = Vec::new();
                for v in frontier {
                    for edge in graph.row(v) {
                        let to = graph.target(edge);
                        if levels[to as usize] == UNREACHED {
                            levels[to as usize] = level;
                            next.push(to);
                        }
                    }
                }
                frontier = next;
            }
            levels
        })
    }

    /// How many levels a search has.
    pub fn depth(&self) -> u32 {
        let reached = self.levels().iter().filter(|level| **level != UNREACHED);
        reached.max().map_or(0, |deepest| deepest + 1)
    }

    /// The vertices that are relaxed in each iteration of shortest paths from the root, ascending: those
    /// whose distance fell in the iteration before.
    pub fn active(&self) -> &[Vec<u32>] {
        self.active.get_or_init(|| {
            let graph = &self.graph;
            let mut distance = vec![u64::MAX; graph.vertices() as usize];
            let mut now = Vec::new();
            if let Some(root) = distance.get_mut(self.root() as usize) {
                *root = 0;
                now.push(self.root());
            }
            let mut all = Vec::new();
            while !now.is_empty() && all.len() < MOST_ITERATIONS {
                // All relaxations of an iteration see the distances of the one before.
                let mut better: Vec<(u32, u64)> = Vec::new();
                for v in &now {
                    for edge in graph.row(*v) {
                        let to = graph.target(edge);
                        let length = distance[*v as usize] + u64::from(graph.weight(edge));
                        if length < distance[to as usize] {
                            better.push((to, length));
                        }
                    }
                }
                all.push(now);
                better.sort_unstable();
                better.dedup_by_key(|(v, _)| *v);
                for (v, length) in &better {
                    distance[*v as usize] = *length;
                }
                now = better.into_iter().map(|(v, _)| v).collect();
            }
            all
        })
    }

    /// Is `vertex` relaxed in `iteration`?
    pub fn is_active(&self, iteration: u32, vertex: u32) -> bool {
        self.active()
            .get(iteration as usize)
            .is_some_and(|list| list.binary_search(&vertex).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_on_a_small_graph() {
        // 0 -> 1 -> 2 -> 3, and 0 -> 3 directly but long.
        let edges = [(0, 1), (0, 3), (1, 2), (2, 3)];
        let graph = Graph::from_edges(5, &edges, Some(&[1, 9, 1, 1]));
        let prepared = Prepared::new(graph);
        assert_eq!(prepared.levels(), [0, 1, 2, 1, UNREACHED]);
        assert_eq!(prepared.depth(), 3);
        assert_eq!(
            prepared.active(),
            [vec![0], vec![1, 3], vec![2], vec![3]].map(|v: Vec<u32>| v)
        );
    }
}
