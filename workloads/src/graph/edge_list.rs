//! Edge lists from files, plain or gzip: one edge a line, `from to [length]`, separated by blanks, tabs
//! or a comma; `#` and `%` begin comments. Matrix Market coordinate files are read too (vertices from 1,
//! `symmetric` ones with both directions).

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::{Graph, GraphError, MOST_EDGES, MOST_VERTICES};

/// A line longer than this is no edge.
const MAX_LINE: u64 = 1 << 16;

/// Reads a graph from a file.
///
/// # Errors
/// What is wrong, with file and line.
pub fn read(path: &Path) -> Result<Graph, GraphError> {
    let file = path.display().to_string();
    let io = |source| GraphError::Io {
        file: file.clone(),
        source,
    };
    let mut reader = BufReader::new(File::open(path).map_err(io)?);
    if reader.fill_buf().map_err(io)?.starts_with(&[0x1f, 0x8b]) {
        parse(
            BufReader::new(flate2::bufread::MultiGzDecoder::new(reader)),
            &file,
        )
    } else {
        parse(reader, &file)
    }
}

/// Parses an edge list; `file` is for messages.
///
/// # Errors
/// What is wrong, with file and line.
pub fn parse(mut reader: impl BufRead, file: &str) -> Result<Graph, GraphError> {
    let mut list = EdgeList::default();
    let mut line = 0;
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        line += 1;
        let wrong = |what: String| GraphError::Line {
            file: file.to_owned(),
            line,
            what,
        };
        let read = (&mut reader)
            .take(MAX_LINE)
            .read_until(b'\n', &mut buffer)
            .map_err(|error| wrong(format!("cannot be read: {error}; is the file truncated?")))?;
        if read == 0 {
            break;
        }
        if read as u64 == MAX_LINE {
            return Err(wrong(format!("the line has more than {MAX_LINE} bytes")));
        }
        let text = std::str::from_utf8(&buffer).map_err(|_| wrong("not a text".to_owned()))?;
        list.line(text.trim_start_matches('\u{feff}').trim(), line)
            .map_err(wrong)?;
    }
    let whole = GraphError::Line {
        file: file.to_owned(),
        line,
        what: "the file holds no edge; expected lines `from to [length]`".to_owned(),
    };
    if list.edges.is_empty() {
        return Err(whole);
    }
    if let Some((_, _, announced)) = list.size
        && announced != list.read
    {
        return Err(GraphError::Line {
            file: file.to_owned(),
            line,
            what: format!(
                "the file ends after {} of {announced} entries: it is truncated",
                list.read
            ),
        });
    }
    let vertices = list.size.map_or(0, |s| s.0.max(s.1)).max(list.vertices);
    let weights = list.weighted.unwrap_or(false).then_some(&list.weights[..]);
    Ok(Graph::from_edges(vertices as u32, &list.edges, weights))
}

#[derive(Default)]
struct EdgeList {
    edges: Vec<(u32, u32)>,
    weights: Vec<u32>,
    weighted: Option<bool>,
    vertices: u64,
    /// A Matrix Market file: vertices count from 1.
    market: bool,
    symmetric: bool,
    /// Rows, columns and entries that a Matrix Market file announces.
    size: Option<(u64, u64, u64)>,
    read: u64,
}

impl EdgeList {
    fn line(&mut self, text: &str, line: u64) -> Result<(), String> {
        if line == 1 && text.starts_with("%%MatrixMarket") {
            let lower = text.to_ascii_lowercase();
            if !lower.contains("coordinate") {
                return Err("a Matrix Market file has to be a `coordinate` one".to_owned());
            }
            self.market = true;
            self.symmetric = lower.contains("symmetric");
            return Ok(());
        }
        if text.is_empty() || text.starts_with(['#', '%']) {
            return Ok(());
        }
        let mut fields = text.split([' ', '\t', ',']).filter(|field| !field.is_empty());
        let (first, second, third) = (fields.next(), fields.next(), fields.next());
        if fields.next().is_some() {
            return Err(format!("{text:?} has more than three fields; {EXPECTED}"));
        }
        let number = |field: Option<&str>| {
            field
                .and_then(|f| f.parse::<u64>().ok())
                .ok_or_else(|| format!("{text:?} is no edge; {EXPECTED}"))
        };
        if self.market && self.size.is_none() {
            let size = (number(first)?, number(second)?, number(third)?);
            if size.0.max(size.1) > MOST_VERTICES || size.2 > MOST_EDGES {
                return Err(format!(
                    "{} x {} with {} entries; accepted: up to 2^28 vertices and edges",
                    size.0, size.1, size.2
                ));
            }
            self.size = Some(size);
            return Ok(());
        }
        let (mut from, mut to) = (number(first)?, number(second)?);
        if self.market {
            let (rows, columns, _) = self.size.unwrap_or_default();
            if from == 0 || to == 0 || from > rows || to > columns {
                return Err(format!(
                    "entry {from} {to} lies outside the {rows} x {columns} that the head of the file announces, from 1 on"
                ));
            }
            (from, to) = (from - 1, to - 1);
        }
        if from.max(to) >= MOST_VERTICES {
            return Err(format!(
                "vertex {}: accepted: up to {}",
                from.max(to),
                MOST_VERTICES - 1
            ));
        }
        if *self.weighted.get_or_insert(third.is_some()) != third.is_some() {
            return Err("some edges have a length and some have none".to_owned());
        }
        let length = match third {
            None => 1.0,
            Some(text) => text
                .parse::<f64>()
                .ok()
                .filter(|length| (0.0..65536.0).contains(length))
                .ok_or_else(|| format!("length {text:?}: accepted: numbers from 0 to below 65536"))?,
        };
        self.read += 1;
        let both = self.symmetric && from != to;
        for (from, to) in [(from, to), (to, from)].into_iter().take(1 + usize::from(both)) {
            self.edges.push((from as u32, to as u32));
            if third.is_some() {
                self.weights.push((length * 65536.0).round() as u32);
            }
        }
        if self.edges.len() as u64 > MOST_EDGES {
            return Err("more than 2^28 edges".to_owned());
        }
        self.vertices = self.vertices.max(from + 1).max(to + 1);
        Ok(())
    }
}

const EXPECTED: &str = "expected `from to [length]`, vertices as whole numbers from 0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_become_rows() {
        let text = "# a comment\n1 2 0.5\n0,1,2\n\n1\t0\t1\n";
        let graph = parse(text.as_bytes(), "x").unwrap();
        assert_eq!((graph.vertices(), graph.edges()), (3, 3));
        assert_eq!(graph.row(1), 1..3);
        assert_eq!([graph.target(0), graph.target(1), graph.target(2)], [1, 2, 0]);
        assert_eq!(graph.weight(1), 32768);
    }

    #[test]
    fn matrix_market() {
        let text = "%%MatrixMarket matrix coordinate pattern symmetric\n% c\n4 4 2\n2 1\n3 3\n";
        let graph = parse(text.as_bytes(), "x").unwrap();
        assert_eq!((graph.vertices(), graph.edges()), (4, 3));
        assert_eq!(graph.row(0), 0..1);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, says) in [
            (
                "0 1\n0 x\n",
                "x:2: \"0 x\" is no edge; expected `from to [length]`",
            ),
            (
                "0 1\n\n0 -1\n",
                "x:3: \"0 -1\" is no edge; expected `from to [length]`",
            ),
            ("0 1\n2\n", "x:2: \"2\" is no edge"),
            ("0 1 2 3\n", "more than three fields"),
            ("0 1\n1 2 3\n", "x:2: some edges have a length and some have none"),
            ("0 1 nan\n", "x:1: length \"nan\": accepted: numbers from 0"),
            ("0 999999999999\n", "x:1: vertex 999999999999: accepted: up to"),
            ("# nothing\n", "holds no edge"),
            (
                "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1\n",
                "1 of 2 entries: it is truncated",
            ),
            (
                "%%MatrixMarket matrix coordinate real general\n3 3 2\n0 1 1\n",
                "x:3: entry 0 1 lies outside",
            ),
        ] {
            let error = parse(text.as_bytes(), "x").unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
