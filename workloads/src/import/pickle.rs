//! A pickle made plain before it is decoded.
//!
//! A pickle is a program for a small stack machine that can share objects, refer to itself and call code.
//! The library that decodes it counts references statically and so fails on containers that are shared and
//! hold shared values, as stack frames in snapshots do. This runs over the opcodes once, keeps which value
//! holds which, and writes the same data anew without sharing and without stack frames. It refuses what
//! asks for code, refers to itself, nests too deeply, or would grow beyond a bound.

use std::collections::HashMap;

/// Nesting that no snapshot has.
const MOST_DEPTH: u32 = 200;
/// Keys whose values are of no use here and make up most of a snapshot: stack frames.
const DROPPED: [&[u8]; 2] = [b"frames", b"history"];

/// Why a pickle is refused.
#[derive(Debug)]
pub(super) struct Refused {
    pub place: String,
    pub what: String,
}

enum Content {
    /// Its opcode and argument, as they are in the pickle.
    Scalar(std::ops::Range<usize>),
    List(Vec<u32>),
    /// Keys and values in turn.
    Dict(Vec<u32>),
    Tuple(Vec<u32>),
}

struct Node {
    content: Content,
    depth: u32,
    /// Bytes that it takes once written.
    size: u64,
    /// It lies in another value.
    held: bool,
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the opcode under way begins.
    opcode: usize,
    nodes: Vec<Node>,
    /// Node numbers; `None` is a mark.
    stack: Vec<Option<u32>>,
    memo: HashMap<u64, u32>,
    most: u64,
}

/// The same data without sharing and without stack frames, in at most `most` bytes.
///
/// # Errors
/// Where and why not.
pub(super) fn plain(bytes: &[u8], most: u64) -> Result<Vec<u8>, Refused> {
    let mut scan = Scan {
        bytes,
        at: 0,
        opcode: 0,
        nodes: Vec::new(),
        stack: Vec::new(),
        memo: HashMap::new(),
        most,
    };
    loop {
        scan.opcode = scan.at;
        let step = scan.step();
        match step {
            Ok(false) => {}
            Ok(true) => {
                let mut out = vec![0x80, 2];
                if let Ok(root) = scan.top() {
                    scan.write(root, &mut out);
                }
                out.push(b'.');
                return Ok(out);
            }
            Err(what) => {
                return Err(Refused {
                    place: format!("byte {}", scan.opcode),
                    what,
                });
            }
        }
    }
}

const TRUNCATED: &str = "the pickle ends too early; is the file truncated?";

impl Scan<'_> {
    fn take(&mut self, n: u64) -> Result<&[u8], String> {
        let end = usize::try_from(n).ok().and_then(|n| self.at.checked_add(n));
        let end = end.filter(|end| *end <= self.bytes.len()).ok_or(TRUNCATED)?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self, bytes: u64) -> Result<u64, String> {
        let taken = self.take(bytes)?;
        Ok(taken.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    }

    fn line(&mut self) -> Result<&[u8], String> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or(TRUNCATED)?;
        let line = &rest[..length];
        self.at += length + 1;
        Ok(line)
    }

    fn push(&mut self, content: Content) {
        let size = match &content {
            Content::Scalar(span) => span.len() as u64,
            _ => 3,
        };
        self.stack.push(Some(self.nodes.len() as u32));
        self.nodes.push(Node {
            content,
            depth: 0,
            size,
            held: false,
        });
    }

    /// The opcode under way is a value by itself.
    fn scalar(&mut self) {
        self.push(Content::Scalar(self.opcode..self.at));
    }

    /// Is it the key of something that is dropped?
    fn is_dropped(&self, key: u32) -> bool {
        let Content::Scalar(span) = &self.nodes[key as usize].content else {
            return false;
        };
        let text = &self.bytes[span.clone()];
        DROPPED
            .iter()
            .any(|name| text.ends_with(name) && text.len() <= name.len() + 9)
    }

    fn write(&self, node: u32, out: &mut Vec<u8>) {
        let (open, items, close): (&[u8], &[u32], u8) = match &self.nodes[node as usize].content {
            Content::Scalar(span) => {
                out.extend_from_slice(&self.bytes[span.clone()]);
                return;
            }
            Content::List(items) => (b"](", items, b'e'),
            Content::Dict(items) => (b"}(", items, b'u'),
            Content::Tuple(items) => (b"(", items, b't'),
        };
        out.extend_from_slice(open);
        if close == b'u' {
            for pair in items.chunks_exact(2) {
                self.write(pair[0], out);
                if self.is_dropped(pair[0]) {
                    out.push(b'N');
                } else {
                    self.write(pair[1], out);
                }
            }
        } else {
            for item in items {
                self.write(*item, out);
            }
        }
        out.push(close);
    }

    fn pop(&mut self) -> Result<u32, String> {
        self.stack
            .pop()
            .flatten()
            .ok_or_else(|| "the stack of the pickle is empty".to_owned())
    }

    /// Everything above the topmost mark, which goes too.
    fn pop_to_mark(&mut self) -> Result<Vec<u32>, String> {
        let mark = self.stack.iter().rposition(Option::is_none);
        let mark = mark.ok_or("there is no mark on the stack of the pickle")?;
        let items = self.stack.drain(mark..).flatten().collect();
        Ok(items)
    }

    /// Puts items into a container.
    fn fill(&mut self, container: u32, items: &[u32]) -> Result<(), String> {
        let node = &self.nodes[container as usize];
        if node.held {
            return Err(
                "a value is changed after it was put into another: it may refer to itself".to_owned(),
            );
        }
        let pairs = matches!(node.content, Content::Dict(_));
        if pairs && !items.len().is_multiple_of(2) {
            return Err("a key has no value".to_owned());
        }
        let (mut depth, mut size) = (node.depth, node.size);
        for (at, item) in items.iter().enumerate() {
            if *item == container {
                return Err("a value refers to itself".to_owned());
            }
            let dropped = pairs && at % 2 == 1 && self.is_dropped(items[at - 1]);
            let inner = &mut self.nodes[*item as usize];
            inner.held = true;
            if dropped {
                size += 1;
            } else {
                depth = depth.max(inner.depth + 1);
                size = size.saturating_add(inner.size);
            }
        }
        if depth > MOST_DEPTH {
            return Err(format!("values nest more than {MOST_DEPTH} deep"));
        }
        if size > self.most {
            return Err(format!("it expands to more than {} bytes", self.most));
        }
        let node = &mut self.nodes[container as usize];
        (node.depth, node.size) = (depth, size);
        match &mut node.content {
            Content::List(list) | Content::Dict(list) | Content::Tuple(list) => list.extend_from_slice(items),
            Content::Scalar(_) => return Err("something is put into a value that holds nothing".to_owned()),
        }
        Ok(())
    }

    fn container(&mut self, content: Content, items: &[u32]) -> Result<(), String> {
        self.push(content);
        let node = self.nodes.len() as u32 - 1;
        self.fill(node, items)
    }

    fn top(&self) -> Result<u32, String> {
        self.stack
            .last()
            .copied()
            .flatten()
            .ok_or_else(|| "the stack of the pickle is empty".to_owned())
    }

    fn get(&mut self, key: u64) -> Result<(), String> {
        let node = *self
            .memo
            .get(&key)
            .ok_or_else(|| format!("value {key} is used before it is there"))?;
        self.stack.push(Some(node));
        Ok(())
    }

    fn key(line: &[u8]) -> Result<u64, String> {
        std::str::from_utf8(line)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| "a number is no number".to_owned())
    }

    /// One opcode; true at the end of the pickle.
    fn step(&mut self) -> Result<bool, String> {
        let opcode = self.take(1)?[0];
        match opcode {
            b'.' => {
                self.top()?;
                return Ok(true);
            }
            0x80 => {
                self.take(1)?;
            }
            0x95 => {
                self.take(8)?;
            }
            b'(' => self.stack.push(None),
            b'0' => {
                self.stack.pop().ok_or("the stack of the pickle is empty")?;
            }
            b'1' => {
                self.pop_to_mark()?;
            }
            b'2' => {
                let top = self.top()?;
                self.stack.push(Some(top));
            }
            // Scalars.
            b'N' | 0x88 | 0x89 => self.scalar(),
            b'K' => self.fixed(1)?,
            b'M' => self.fixed(2)?,
            b'J' => self.fixed(4)?,
            b'G' => self.fixed(8)?,
            b'F' | b'I' | b'L' | b'S' | b'V' => {
                self.line()?;
                self.scalar();
            }
            // Text and long numbers with their length in front.
            b'U' | b'C' | 0x8a | 0x8c => self.counted(1)?,
            b'T' | b'X' | b'B' | 0x8b => self.counted(4)?,
            0x8d | 0x8e | 0x96 => self.counted(8)?,
            // Containers.
            b']' => self.push(Content::List(Vec::new())),
            b'}' => self.push(Content::Dict(Vec::new())),
            b')' => self.push(Content::Tuple(Vec::new())),
            b'l' => {
                let items = self.pop_to_mark()?;
                self.container(Content::List(Vec::new()), &items)?;
            }
            b'd' => {
                let items = self.pop_to_mark()?;
                self.container(Content::Dict(Vec::new()), &items)?;
            }
            b't' => {
                let items = self.pop_to_mark()?;
                self.container(Content::Tuple(Vec::new()), &items)?;
            }
            0x85..=0x87 => {
                let mut items = Vec::new();
                for _ in 0..=(opcode - 0x85) {
                    items.insert(0, self.pop()?);
                }
                self.container(Content::Tuple(Vec::new()), &items)?;
            }
            b'a' => {
                let item = self.pop()?;
                let list = self.top()?;
                self.fill(list, &[item])?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                let dict = self.top()?;
                self.fill(dict, &[key, value])?;
            }
            b'e' | b'u' => {
                let items = self.pop_to_mark()?;
                let container = self.top()?;
                self.fill(container, &items)?;
            }
            // The memo.
            b'p' => {
                let key = Self::key(self.line()?)?;
                self.put(key)?;
            }
            b'q' => {
                let key = self.number(1)?;
                self.put(key)?;
            }
            b'r' => {
                let key = self.number(4)?;
                self.put(key)?;
            }
            0x94 => {
                let key = self.memo.len() as u64;
                self.put(key)?;
            }
            b'g' => {
                let key = Self::key(self.line()?)?;
                self.get(key)?;
            }
            b'h' => {
                let key = self.number(1)?;
                self.get(key)?;
            }
            b'j' => {
                let key = self.number(4)?;
                self.get(key)?;
            }
            b'c'
            | b'i'
            | b'o'
            | b'R'
            | b'b'
            | b'P'
            | b'Q'
            | 0x81..=0x84
            | 0x8f..=0x92
            | 0x93
            | 0x97
            | 0x98 => {
                return Err(
                    "it asks for code to be run or for objects of classes; a snapshot holds only plain data"
                        .to_owned(),
                );
            }
            _ => return Err(format!("{opcode:#04x} is no opcode of a pickle")),
        }
        Ok(false)
    }

    fn fixed(&mut self, bytes: u64) -> Result<(), String> {
        self.take(bytes)?;
        self.scalar();
        Ok(())
    }

    fn counted(&mut self, bytes: u64) -> Result<(), String> {
        let length = self.number(bytes)?;
        self.take(length)?;
        self.scalar();
        Ok(())
    }

    fn put(&mut self, key: u64) -> Result<(), String> {
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_and_frames_go() {
        // {"a": L, "frames": L, "b": L} with L = [1] shared.
        let shared = b"\x80\x02}(U\x01a]q\x00(K\x01eU\x06framesh\x00U\x01bh\x00u.";
        let plain = plain(shared, 1000).unwrap();
        assert_eq!(plain, b"\x80\x02}(U\x01a](K\x01eU\x06framesNU\x01b](K\x01eu.");
    }

    #[test]
    fn refusals() {
        let what = |bytes: &[u8]| plain(bytes, 1000).unwrap_err().what;
        assert!(what(b"cos\nsystem\n(S'ls'\ntR.").contains("asks for code"));
        assert!(what(b"]q\x00h\x00a.").contains("refers to itself"));
        assert!(what(b"]q\x00]q\x01h\x00ah\x00h\x01a.").contains("changed after"));
        assert!(what(b"]").contains("ends too early"));
        assert!(what(b"X\xff\xff\xff\xff").contains("ends too early"));
        assert!(what(&[vec![b']'; 300], vec![b'a'; 299], vec![b'.']].concat()).contains("nest"));
        // Each level holds the one before ten times.
        let mut bomb = b"]q\x00K\x01a".to_vec();
        for level in 0..9_u8 {
            bomb.extend([b']', b'q', level + 1, b'(']);
            for _ in 0..10 {
                bomb.extend([b'h', level]);
            }
            bomb.push(b'e');
        }
        bomb.push(b'.');
        assert!(what(&bomb).contains("expands"));
    }
}
