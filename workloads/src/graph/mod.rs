//! Graphs that graph kernels run on: generated or read, and what the algorithms do on them.
//!
//! | module | what it owns |
//! | --- | --- |
//! | this | compressed rows, where a graph comes from, the graphs of a run |
//! | [`generate`] | R-MAT and uniform random graphs |
//! | [`edge_list`] | edge lists from files |
//! | [`prepared`] | levels of a breadth-first search, active vertices of shortest paths |

pub mod edge_list;
pub mod generate;
pub mod prepared;

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use prepared::Prepared;

/// Edges at most: 4 bytes each.
pub const MOST_EDGES: u64 = 1 << 28;
/// Vertices at most.
pub const MOST_VERTICES: u64 = 1 << 28;

/// A graph that cannot be made.
#[derive(Debug, Error)]
pub enum GraphError {
    /// The file cannot be opened or read.
    #[error("{file}: {source}")]
    Io {
        /// File.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error("{file}:{line}: {what}")]
    Line {
        /// File.
        file: String,
        /// Line, from 1.
        line: u64,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// An impossible size.
    #[error("graph: {0}")]
    Size(String),
}

/// Where a graph comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "kebab-case", deny_unknown_fields)]
pub enum GraphSource {
    /// R-MAT with the probabilities of the Graph500 benchmark.
    Rmat {
        /// 2^scale vertices.
        scale: u32,
        /// Edges for each vertex.
        degree: u32,
        /// Chooses the graph.
        seed: u64,
    },
    /// Every vertex draws `min..=max` partners evenly.
    Uniform {
        /// Vertices.
        vertices: u32,
        /// Partners at least.
        min: u32,
        /// Partners at most.
        max: u32,
        /// Every edge is stored at both ends (Rodinia's generator); else only at the drawing one.
        symmetric: bool,
        /// Chooses the graph.
        seed: u64,
    },
    /// An edge list.
    File {
        /// Its path.
        path: String,
    },
}

impl GraphSource {
    /// Is the size possible?
    ///
    /// # Errors
    /// What is wrong, and what is accepted.
    pub fn check(&self) -> Result<(), String> {
        let (vertices, edges) = match self {
            GraphSource::Rmat { scale, degree, .. } => {
                if *scale == 0 || *scale > 28 {
                    return Err(format!("scale = {scale}; accepted: 1 to 28"));
                }
                (1_u64 << scale, u64::from(*degree) << scale)
            }
            GraphSource::Uniform {
                vertices,
                min,
                max,
                symmetric,
                ..
            } => {
                if min > max || u64::from(*max) >= u64::from(*vertices) {
                    return Err(format!(
                        "{min} to {max} partners of {vertices} vertices; accepted: min <= max < vertices"
                    ));
                }
                let twice = 1 + u64::from(*symmetric);
                (
                    u64::from(*vertices),
                    u64::from(*vertices) * u64::from(*max) * twice,
                )
            }
            GraphSource::File { .. } => return Ok(()),
        };
        if edges == 0 || edges > MOST_EDGES || vertices > MOST_VERTICES {
            return Err(format!(
                "{vertices} vertices and {edges} edges; accepted: 1 to 2^28 edges"
            ));
        }
        Ok(())
    }

    /// Makes or reads the graph.
    ///
    /// # Errors
    /// A file that cannot be read, an impossible size.
    pub fn load(&self) -> Result<Graph, GraphError> {
        self.check().map_err(GraphError::Size)?;
        Ok(match self {
            GraphSource::Rmat { scale, degree, seed } => generate::rmat(*scale, *degree, *seed),
            GraphSource::Uniform {
                vertices,
                min,
                max,
                symmetric,
                seed,
            } => generate::uniform(*vertices, (*min, *max), *symmetric, *seed),
            GraphSource::File { path } => edge_list::read(std::path::Path::new(path))?,
        })
    }
}

/// A directed graph in compressed rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Where the edges of each vertex begin; one more than there are vertices.
    offsets: Vec<u32>,
    /// Where each edge leads.
    targets: Vec<u32>,
    /// Lengths of the edges, in 1 / 65,536; if not given, drawn from the edge's number.
    weights: Option<Vec<u32>>,
}

impl Graph {
    /// Sorts edges into rows, keeping their order within a row.
    pub fn from_edges(vertices: u32, edges: &[(u32, u32)], weights: Option<&[u32]>) -> Graph {
        let mut offsets = vec![0_u32; vertices as usize + 1];
        for (from, _) in edges {
            offsets[*from as usize + 1] += 1;
        }
        for v in 0..vertices as usize {
            offsets[v + 1] += offsets[v];
        }
        let mut next = offsets.clone();
        let mut targets = vec![0; edges.len()];
        let mut sorted = weights.map(|w| vec![0; w.len()]);
        for (i, (from, to)) in edges.iter().enumerate() {
            let place = next[*from as usize];
            next[*from as usize] += 1;
            targets[place as usize] = *to;
            if let (Some(sorted), Some(weights)) = (&mut sorted, weights) {
                sorted[place as usize] = weights[i];
            }
        }
        Graph {
            offsets,
            targets,
            weights: sorted,
        }
    }

    /// Vertices.
    pub fn vertices(&self) -> u32 {
        (self.offsets.len().max(1) - 1) as u32
    }

    /// Edges.
    pub fn edges(&self) -> u32 {
        self.targets.len() as u32
    }

    /// The numbers of the edges of `vertex`.
    pub fn row(&self, vertex: u32) -> std::ops::Range<u32> {
        self.offsets[vertex as usize]..self.offsets[vertex as usize + 1]
    }

    /// Where edge `edge` leads.
    pub fn target(&self, edge: u32) -> u32 {
        self.targets[edge as usize]
    }

    /// Length of edge `edge`, in 1 / 65,536.
    pub fn weight(&self, edge: u32) -> u32 {
        match &self.weights {
            Some(weights) => weights[edge as usize],
            None => (sim_core::rng::mix64(u64::from(edge) ^ 0x0077_6569_6768_7473) >> 48) as u32 + 1,
        }
    }
}

/// Graphs that are kept after their use: a sweep runs the same few over and over.
const KEPT: usize = 4;

/// The latest graphs of the process, the most recent one last.
static LATEST: Mutex<Vec<(GraphSource, Arc<Prepared>)>> = Mutex::new(Vec::new());

/// The graph of `source`; the latest few are made only once.
///
/// # Errors
/// It cannot be made or read.
pub fn shared(source: &GraphSource) -> Result<Arc<Prepared>, GraphError> {
    // Held while making one, so that no two threads make the same.
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    let found = latest.iter().position(|(of, _)| of == source);
    let entry = match found {
        Some(place) => latest.remove(place),
        None => (source.clone(), Arc::new(Prepared::new(source.load()?))),
    };
    let prepared = entry.1.clone();
    latest.push(entry);
    let surplus = latest.len().saturating_sub(KEPT);
    latest.drain(..surplus);
    Ok(prepared)
}
