//! An output folder appears complete or not at all.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The file that marks a folder as an output of ours, which may be replaced.
const MARKS: [&str; 3] = ["summary.json", "sweep.csv", "validation.csv"];

/// Files of an output folder, gathered before any is written.
#[derive(Debug, Default)]
pub struct Folder {
    files: Vec<(String, Vec<u8>)>,
    moved: Vec<(String, PathBuf)>,
}

impl Folder {
    /// Adds a file.
    pub fn add(&mut self, name: &str, content: impl Into<Vec<u8>>) {
        self.files.push((name.to_string(), content.into()));
    }

    /// Adds a file that lies elsewhere on the same file system; it is moved.
    pub fn add_file(&mut self, name: &str, path: PathBuf) {
        self.moved.push((name.to_string(), path));
    }

    /// A new folder beside `path` for files that are written before the output is complete. It goes
    /// with the value.
    ///
    /// # Errors
    /// Of the file system.
    pub fn scratch(path: &Path) -> io::Result<Scratch> {
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::other("the folder has no name"))?;
        let name = format!(".{}.scratch-{}", name.to_string_lossy(), std::process::id());
        let scratch = path.with_file_name(name);
        fs::create_dir_all(&scratch)?;
        Ok(Scratch(scratch))
    }

    /// May an output be put at `path`? Nothing there, an empty folder, or an earlier output.
    ///
    /// # Errors
    /// Says what is in the way.
    pub fn check(path: &Path) -> Result<(), String> {
        if !path.exists() {
            return Self::can_create(path)
                .map_err(|error| format!("cannot write {}: {error}", path.display()));
        }
        if !path.is_dir() {
            return Err(format!("{} exists and is not a folder", path.display()));
        }
        let empty = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        if empty || MARKS.iter().any(|mark| path.join(mark).is_file()) {
            return Ok(());
        }
        Err(format!(
            "{} exists and is no earlier output of uvmsim; it is left alone",
            path.display()
        ))
    }

    /// Finds out before a long run whether its output can be written.
    fn can_create(path: &Path) -> io::Result<()> {
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::other("the folder has no name"))?;
        let probe = path.with_file_name(format!(
            ".{}.probe-{}",
            name.to_string_lossy(),
            std::process::id()
        ));
        fs::create_dir_all(&probe)?;
        fs::remove_dir(&probe)
    }

    /// Writes all files beside `path` and renames the folder at the end; an earlier output is
    /// replaced.
    ///
    /// # Errors
    /// Of the file system; nothing half-written stays at `path`.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::other("the output folder has no name"))?;
        let beside = |tag: &str| -> PathBuf {
            let name = format!(".{}.{tag}-{}", name.to_string_lossy(), std::process::id());
            path.with_file_name(name)
        };
        let (partial, old) = (beside("partial"), beside("old"));
        let result = self.write_parts(path, &partial, &old);
        if result.is_err() {
            // Best effort: what matters is that `path` holds nothing incomplete.
            let _ = fs::remove_dir_all(&partial);
        }
        result.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        })
    }

    fn write_parts(&self, path: &Path, partial: &Path, old: &Path) -> io::Result<()> {
        fs::create_dir_all(partial)?;
        for (name, content) in &self.files {
            fs::write(partial.join(name), content)?;
        }
        for (name, file) in &self.moved {
            let place = partial.join(name);
            if let Some(parent) = place.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::rename(file, place)?;
        }
        if path.exists() {
            fs::rename(path, old)?;
            fs::rename(partial, path)?;
            fs::remove_dir_all(old)
        } else {
            fs::rename(partial, path)
        }
    }
}

/// A folder that is removed, with what is left in it, when the value goes.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing can be done about a failure here.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A study's name as the name of a folder.
pub fn folder_name(study: &str) -> String {
    let name: String = study
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect();
    let name = name.trim_matches('.');
    if name.is_empty() {
        "study".into()
    } else {
        name.chars().take(100).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_only_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut folder = Folder::default();
        folder.add("summary.json", "{}");
        for _ in 0..2 {
            Folder::check(&path).unwrap();
            folder.write(&path).unwrap();
            let names: Vec<_> = fs::read_dir(dir.path())
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            assert_eq!(names, ["out"]);
        }
        let foreign = dir.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        Folder::check(&foreign).unwrap();
        fs::write(foreign.join("thesis.tex"), "x").unwrap();
        assert!(Folder::check(&foreign).is_err());
        assert!(Folder::check(&foreign.join("thesis.tex")).is_err());
    }

    #[test]
    fn failed_write_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut folder = Folder::default();
        folder.add("summary.json", "{}");
        folder.add("no/such/folder", "x");
        assert!(folder.write(&path).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn names() {
        assert_eq!(folder_name("gpt2 a100/x"), "gpt2-a100-x");
        assert_eq!(folder_name(".."), "study");
    }
}
