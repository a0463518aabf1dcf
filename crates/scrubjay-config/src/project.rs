//! The project file: the one in the working directory, which a stranger may have written.
//!
//! It is opened once, without following a link, and the open file is checked and read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::agent_progress;
use crate::layer::FileTree;
use crate::node::Origin;
use crate::owned_file::{may_own, read};
use crate::problem::Problem;
use crate::yaml;

/// The name of our own project file.
pub const FILE_NAME: &str = "scrubjay.yaml";

/// A project file and its content.
#[derive(Debug, PartialEq, Eq)]
pub struct ProjectFile {
    /// Its full path, with links in it resolved.
    pub path: PathBuf,
    pub(crate) content: Vec<u8>,
}

/// Why a project file is not used.
#[derive(Debug)]
pub enum Refused {
    /// It does not exist.
    Absent,
    /// It exists and must not or cannot be used; with the reason, for a person.
    Because(String),
}

/// Finds the project file of a directory: ours, else the progress tracker's.
///
/// # Errors
/// There is none, or it must not be used; with the path that was tried.
pub fn find(directory: &Path) -> Result<ProjectFile, (PathBuf, Refused)> {
    let ours = directory.join(FILE_NAME);
    match open(&ours) {
        Err(Refused::Absent) => {
            let seed = directory.join(agent_progress::FILE_NAME);
            open(&seed).map_err(|refused| (seed, refused))
        }
        found => found.map_err(|refused| (ours, refused)),
    }
}

/// Opens and reads a project file.
///
/// # Errors
/// There is none, or it must not be used.
pub fn open(path: &Path) -> Result<ProjectFile, Refused> {
    // Without NONBLOCK, opening a pipe would wait for somebody to write into it.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).expect("flags of open fit into an int");
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Refused::Absent,
        _ if path.is_symlink() => Refused::Because("it is a symbolic link".to_owned()),
        _ => Refused::Because(format!("it cannot be opened: {e}")),
    })?;
    // Of the open file, so that it cannot be swapped between the check and the reading.
    check(&file)?;
    let failed = |e: io::Error| Refused::Because(format!("it cannot be read: {e}"));
    let content = read(file).map_err(failed)?;
    Ok(ProjectFile { path: full_path(path).map_err(failed)?, content })
}

/// Returns the full path of a file that need not exist, with links in its directory resolved.
pub fn full_path(path: &Path) -> io::Result<PathBuf> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(directory.canonicalize()?.join(path.file_name().unwrap_or_default()))
}

fn check(file: &File) -> Result<(), Refused> {
    let facts = file.metadata().map_err(|e| Refused::Because(format!("it cannot be looked at: {e}")))?;
    if !facts.is_file() {
        return Err(Refused::Because("it is no regular file".to_owned()));
    }
    let me = rustix::process::geteuid().as_raw();
    if !may_own(facts.uid(), me) {
        return Err(Refused::Because(format!("it belongs to another user (uid {})", facts.uid())));
    }
    Ok(())
}

/// Parses a file's bytes. A file with the progress tracker's keys is recognised by its name, and under any other name
/// by its keys, unless it is a project file: there the name decides.
pub(crate) fn parse(
    content: &[u8],
    path: &Path,
    by_keys: bool,
    problems: &mut Vec<Problem>,
) -> Option<FileTree> {
    let Ok(text) = std::str::from_utf8(content) else {
        let origin = Origin::File { path: path.into(), line: 1 };
        problems.push(Problem::new(&origin, "", "cannot be read: it is not UTF-8"));
        return None;
    };
    let tree = yaml::parse(text, path, problems)?;
    let is_agent_progress =
        has_name(path, agent_progress::FILE_NAME) || (by_keys && agent_progress::is_one(&tree));
    Some(FileTree::new(tree, is_agent_progress))
}

fn has_name(path: &Path, name: &str) -> bool {
    path.file_name().is_some_and(|other| other == name)
}

impl ProjectFile {
    /// Tells whether it has the progress tracker's keys instead of ours.
    pub(crate) fn is_agent_progress(&self) -> bool {
        has_name(&self.path, agent_progress::FILE_NAME)
    }

    /// Tells whether `find` looks for a file of this name.
    pub fn has_known_name(&self) -> bool {
        self.is_agent_progress() || has_name(&self.path, FILE_NAME)
    }

    /// Parses it.
    pub fn parse(&self, problems: &mut Vec<Problem>) -> Option<FileTree> {
        parse(&self.content, &self.path, false, problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn because(refused: Result<ProjectFile, (PathBuf, Refused)>) -> String {
        match refused {
            Err((_, Refused::Because(why))) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn our_own_project_file_has_precedence() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(find(directory.path()), Err((_, Refused::Absent))));
        std::fs::write(directory.path().join(agent_progress::FILE_NAME), "{}").unwrap();
        assert!(find(directory.path()).unwrap().is_agent_progress());
        std::fs::write(directory.path().join(FILE_NAME), "log_level: info").unwrap();
        let found = find(directory.path()).unwrap();
        assert!(!found.is_agent_progress());
        assert_eq!(found.path, directory.path().canonicalize().unwrap().join(FILE_NAME));
        assert_eq!(found.content, b"log_level: info");
    }

    #[test]
    fn links_directories_and_pipes_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE_NAME);
        std::fs::write(directory.path().join("real"), "{}").unwrap();
        std::os::unix::fs::symlink("real", &file).unwrap();
        assert!(because(find(directory.path())).contains("symbolic link"));
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert!(because(find(directory.path())).contains("no regular file"));
        std::fs::remove_dir(&file).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
        assert!(made.success());
        assert!(because(find(directory.path())).contains("no regular file"));
    }

    #[test]
    fn a_huge_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE_NAME), vec![b'#'; (1 << 20) + 1]).unwrap();
        assert!(because(find(directory.path())).contains("longer than 1 MiB"));
    }

    #[test]
    fn only_files_of_the_user_and_root_count() {
        assert!(may_own(1000, 1000) && may_own(0, 1000) && may_own(0, 0));
        assert!(!may_own(1001, 1000) && !may_own(1000, 0));
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_reported() {
        let mut problems = Vec::new();
        assert!(parse(b"a: \xff", Path::new("p"), false, &mut problems).is_none());
        assert_eq!(problems[0].to_string(), "p:1: cannot be read: it is not UTF-8");
    }
}
