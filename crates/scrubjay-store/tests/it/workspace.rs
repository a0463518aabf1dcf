//! What a workspace guarantees: nothing outside is changed, no call blocks, and a change is made in full or not at all.

mod faults;
mod races;

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use scrubjay_store::workspace::{
    ExpectedContent, FilePath, FileSnapshot, NotFileKind, Refusal, Workspace, WorkspaceError,
};
use tempfile::TempDir;

use crate::fixture::{run_in_a_process_of_its_own, scratch};

const MAX: u64 = 1 << 20;
const DIRECTORY: &str = "SCRUBJAY_TEST_WORKSPACE_IN";

/// A workspace next to a directory that must never be changed.
struct Lab {
    scratch: TempDir,
    workspace: Workspace,
}

impl Lab {
    fn new() -> Self {
        let scratch = scratch();
        for directory in ["ws/src", "ws-evil"] {
            std::fs::create_dir_all(scratch.path().join(directory)).unwrap();
        }
        std::fs::write(scratch.path().join("ws-evil/canary"), "canary").unwrap();
        let workspace = Workspace::open(&scratch.path().join("ws")).unwrap();
        Self { scratch, workspace }
    }

    fn step_by_step() -> Self {
        let lab = Self::new();
        Self { workspace: lab.workspace.step_by_step(), ..lab }
    }

    fn disk(&self, path: &str) -> PathBuf {
        self.scratch.path().join("ws").join(path)
    }

    fn put(&self, path: &str, bytes: &str, mode: u32) -> FilePath {
        std::fs::write(self.disk(path), bytes).unwrap();
        std::fs::set_permissions(self.disk(path), Permissions::from_mode(mode)).unwrap();
        self.at(path)
    }

    fn at(&self, path: &str) -> FilePath {
        self.workspace.locate(path).unwrap()
    }

    fn read(&self, path: &str) -> Option<FileSnapshot> {
        self.workspace.read(&self.at(path), MAX).unwrap()
    }

    fn write(&self, path: &str, bytes: &str, expected: ExpectedContent) -> Result<(), WorkspaceError> {
        self.workspace.stage(&self.at(path), bytes.as_bytes(), None)?.commit(expected)
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn content(bytes: &str) -> ExpectedContent {
    ExpectedContent::Content(blake3::hash(bytes.as_bytes()))
}

fn code<T: std::fmt::Debug>(outcome: Result<T, WorkspaceError>) -> &'static str {
    match outcome.unwrap_err() {
        WorkspaceError::Refused(refusal) => refusal.code(),
        other => panic!("{other:?}"),
    }
}

/// Names everything in a directory.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_path_has_one_normal_form() {
    let lab = Lab::new();
    let root = lab.scratch.path().join("ws").display().to_string();
    symlink(lab.disk(""), lab.scratch.path().join("alias")).unwrap();
    let alias = lab.scratch.path().join("alias");
    let through = Workspace::open(&alias).unwrap();
    let alias = alias.display();
    for (given, normal) in [
        ("a", "a"),
        ("./a//b/./c", "a/b/c"),
        (".gitignore", ".gitignore"),
        ("a/.github/x", "a/.github/x"),
        ("...", "..."),
        ("a~1", "a~1"),
        ("git~x", "git~x"),
        ("digit", "digit"),
        (&format!("{root}/a/b"), "a/b"),
        (&format!("/{root}//a"), "a"),
    ] {
        assert_eq!(lab.workspace.locate(given).unwrap().as_str(), normal, "{given}");
        assert_eq!(through.locate(given).unwrap().as_str(), normal, "{given}: by an alias");
    }
    assert_eq!(through.locate(&format!("{alias}/a")).unwrap().as_str(), "a");
    assert_eq!(lab.workspace.locate(&format!("{alias}/a")).unwrap_err().code(), "outside_workspace");
    let (deep, flat) = (lab.at("a/b/c.txt"), lab.at("c.txt"));
    assert_eq!((deep.directory(), deep.name()), ("a/b", "c.txt"));
    assert_eq!((flat.directory(), flat.name()), (".", "c.txt"));
}

#[test]
fn a_path_that_cannot_be_a_file_of_the_workspace_is_refused() {
    let lab = Lab::new();
    let root = lab.scratch.path().join("ws").display().to_string();
    let check = |given: &str, code: &str| {
        let refusal = lab.workspace.locate(given).unwrap_err();
        assert_eq!(refusal.code(), code, "{given:?}");
        assert!(!refusal.to_string().chars().any(char::is_control), "{refusal}");
        assert!(refusal.to_string().chars().count() < 400, "{refusal}");
    };
    for given in ["", ".", "./", "/.", "a/", "a/.", "a\0b", "a\nb", "a\u{1b}[31m", "a\u{9b}", "a/../b"] {
        check(given, if given == "/." { "outside_workspace" } else { "bad_path" });
    }
    check(&root, "bad_path");
    check(&format!("{root}/"), "bad_path");
    check(&format!("{root}/a/../b"), "bad_path");
    check(&"n".repeat(256), "bad_path");
    check(&"é".repeat(128), "bad_path");
    check(&"dir/".repeat(1025), "bad_path");
    check(&format!("{}x", "d/".repeat(128)), "bad_path");
    for given in ["..", "../x", "a/../../x", "/", "/etc/passwd", "/proc/self/root/etc/passwd"] {
        check(given, "outside_workspace");
    }
    check(&format!("{root}-evil/canary"), "outside_workspace");
    check(&format!("{root}/../ws-evil/canary"), "outside_workspace");
    check(lab.scratch.path().to_str().unwrap(), "outside_workspace");
    for given in
        [".git", ".git/config", "a/.git/hooks/x", ".GIT/config", ".giT", "git~1/config", "GIT~2", ".hg/hgrc"]
    {
        check(given, "protected_path");
    }
    for given in [".git./config", ".git /x", ".git::$INDEX_ALLOCATION/x", "a\\.git\\config", ".g\u{200c}it/x"]
    {
        check(given, "protected_path");
    }
    for given in
        [".ſvn/x", ".SVN", "svn~1", ".scrubjay-0.tmp", "a/.Scrubjay-x.TMP", &format!("{root}/.git/x")]
    {
        check(given, "protected_path");
    }
    let allowing = lab.workspace.clone().allow_vcs(true);
    assert_eq!(allowing.locate(".git/config").unwrap().as_str(), ".git/config");
    assert_eq!(allowing.locate(".scrubjay-0.tmp").unwrap_err().code(), "protected_path");
}

#[test]
fn the_unicode_composition_of_a_name_is_kept() {
    let lab = Lab::new();
    assert_eq!(lab.at("E\u{301}").as_str(), "E\u{301}", "the name itself is left alone");
}

#[test]
fn a_file_is_created_edited_and_removed() {
    for lab in [Lab::new(), Lab::step_by_step()] {
        assert_eq!(lab.read("new/deep/a.txt"), None);
        lab.write("new/deep/a.txt", "one", ExpectedContent::Missing).unwrap();
        let read = lab.read("new/deep/a.txt").unwrap();
        assert_eq!((read.bytes.as_slice(), read.links, read.owned), (&b"one"[..], 1, true));
        assert_eq!(read.hash, blake3::hash(b"one"));
        lab.write("new/deep/a.txt", "two\r\n\0", content("one")).unwrap();
        assert_eq!(lab.read("new/deep/a.txt").unwrap().bytes, b"two\r\n\0");
        assert_eq!(names(&lab.disk("new/deep")), ["a.txt"]);
        lab.workspace.remove(&lab.at("new/deep/a.txt"), blake3::hash(b"two\r\n\0")).unwrap();
        assert_eq!(lab.read("new/deep/a.txt"), None);
        assert!(names(&lab.disk("new/deep")).is_empty());
        lab.write("top", "", ExpectedContent::Missing).unwrap();
        assert_eq!(lab.read("top").unwrap().bytes, b"");
    }
}

#[test]
fn a_file_that_is_not_as_expected_is_not_changed() {
    let lab = Lab::new();
    let path = lab.put("src/a", "one", 0o644);
    assert_eq!(code(lab.write("src/a", "x", ExpectedContent::Missing)), "exists");
    assert_eq!(code(lab.write("src/a", "x", content("other"))), "changed");
    assert_eq!(code(lab.write("src/b", "x", content("one"))), "missing");
    assert_eq!(code(lab.workspace.remove(&path, blake3::hash(b"other"))), "changed");
    assert_eq!(code(lab.workspace.remove(&lab.at("src/b"), blake3::hash(b""))), "missing");
    assert_eq!(code(lab.workspace.remove(&lab.at("no/b"), blake3::hash(b""))), "missing");
    assert_eq!(code(lab.write("new/b", "x", content("one"))), "missing");
    let staged = lab.workspace.stage(&path, b"x", None).unwrap();
    std::fs::remove_file(lab.disk("src/a")).unwrap();
    assert_eq!(code(staged.commit(ExpectedContent::Missing)), "changed");
    assert!(names(&lab.disk("src")).is_empty());
    assert_eq!(names(&lab.disk("")), ["src"], "directories made for nothing go");
    drop(lab.workspace.stage(&lab.at("x/y/z"), b"x", None).unwrap());
    assert_eq!(names(&lab.disk("")), ["src"]);
}

#[test]
fn a_file_that_is_too_large_is_refused_with_its_size() {
    let lab = Lab::new();
    let path = lab.put("src/a", "12345", 0o644);
    assert_eq!(lab.workspace.read(&path, 5).unwrap().unwrap().bytes, b"12345");
    let Err(WorkspaceError::Refused(refusal)) = lab.workspace.read(&path, 4) else { panic!("was read") };
    assert_eq!(refusal, Refusal::TooLarge { path: "src/a".to_owned(), bytes: 5, bytes_max: 4 });
    // A sparse terabyte costs nothing to refuse.
    std::fs::File::create(lab.disk("big")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(code(lab.workspace.read(&lab.at("big"), MAX)), "too_large");
}

#[test]
fn a_special_file_is_refused_without_blocking() {
    for lab in [Lab::new(), Lab::step_by_step()] {
        let fifo = Mode::from_raw_mode(0o666);
        mknodat(CWD, lab.disk("fifo"), FileType::Fifo, fifo, 0).unwrap();
        let _listener = UnixListener::bind(lab.disk("socket")).unwrap();
        let mut kinds = vec![
            ("fifo", NotFileKind::Fifo),
            ("socket", NotFileKind::Socket),
            ("src", NotFileKind::Directory),
        ];
        // Only root makes devices: this one is /dev/zero, which has no end.
        if mknodat(CWD, lab.disk("zero"), FileType::CharacterDevice, fifo, rustix::fs::makedev(1, 5)).is_ok()
        {
            kinds.push(("zero", NotFileKind::Device));
        }
        for (name, kind) in kinds {
            let path = lab.at(name);
            let expected = Refusal::NotAFile { path: name.to_owned(), kind };
            let check = |outcome: Result<(), WorkspaceError>| match outcome {
                Err(WorkspaceError::Refused(refusal)) => assert_eq!(refusal, expected),
                other => panic!("{name}: {other:?}"),
            };
            check(lab.workspace.read(&path, MAX).map(|_| ()));
            check(lab.write(name, "x", ExpectedContent::Missing));
            check(lab.write(name, "x", content("")));
            check(lab.workspace.remove(&path, blake3::hash(b"")));
            assert!(std::fs::symlink_metadata(lab.disk(name)).is_ok());
        }
        lab.put("file", "x", 0o644);
        assert_eq!(code(lab.workspace.read(&lab.at("file/below"), MAX)), "not_a_directory");
        assert_eq!(code(lab.write("file/below", "x", ExpectedContent::Missing)), "not_a_directory");
    }
}

#[test]
fn no_symbolic_link_is_followed() {
    for lab in [Lab::new(), Lab::step_by_step()] {
        let evil = lab.scratch.path().join("ws-evil");
        symlink(evil.join("canary"), lab.disk("file")).unwrap();
        symlink("nowhere", lab.disk("dangling")).unwrap();
        symlink(&evil, lab.disk("dir")).unwrap();
        symlink("/proc/self/cwd", lab.disk("magic")).unwrap();
        symlink("src", lab.disk("inside")).unwrap();
        lab.put("src/a", "a", 0o644);
        for name in ["file", "dangling", "dir/canary", "dir/new", "dir/new/x", "magic/x", "inside/a", "dir"] {
            let path = lab.at(name);
            assert_eq!(code(lab.workspace.read(&path, MAX)), "symlink", "{name}");
            assert_eq!(code(lab.write(name, "x", ExpectedContent::Missing)), "symlink", "{name}");
            assert_eq!(code(lab.write(name, "x", content("canary"))), "symlink", "{name}");
            assert_eq!(code(lab.workspace.remove(&path, blake3::hash(b"canary"))), "symlink", "{name}");
            lab.workspace.sweep_temporaries(&path, u64::MAX, &|_| true).unwrap();
        }
        assert_eq!(names(&evil), ["canary"]);
        assert_eq!(std::fs::read(evil.join("canary")).unwrap(), b"canary");
    }
}

#[test]
fn a_file_is_not_changed_if_its_directory_was_moved_out() {
    let lab = Lab::new();
    lab.put("src/a", "one", 0o644);
    let staged = lab.workspace.stage(&lab.at("src/a"), b"two", None).unwrap();
    std::fs::rename(lab.disk("src"), lab.scratch.path().join("ws-evil/src")).unwrap();
    assert_eq!(code(staged.commit(content("one"))), "changed");
    let moved = lab.scratch.path().join("ws-evil/src");
    assert_eq!(names(&moved), ["a"]);
    assert_eq!(std::fs::read(moved.join("a")).unwrap(), b"one");
}

#[test]
fn a_removed_workspace_is_reported() {
    let lab = Lab::new();
    std::fs::remove_dir_all(lab.disk("")).unwrap();
    std::fs::create_dir_all(lab.disk("src")).unwrap();
    lab.put("src/a", "one", 0o644);
    assert!(matches!(lab.workspace.read(&lab.at("src/a"), MAX), Err(WorkspaceError::Gone(_))));
    assert!(matches!(lab.write("src/a", "x", content("one")), Err(WorkspaceError::Gone(_))));
    assert!(matches!(
        lab.workspace.remove(&lab.at("src/a"), blake3::hash(b"one")),
        Err(WorkspaceError::Gone(_))
    ));
    assert!(Workspace::open(&lab.disk("none")).unwrap_err().to_string().contains("none"));
    assert!(Workspace::open(&lab.disk("src/a")).is_err(), "a file is no workspace");
}

#[test]
fn permissions_are_kept() {
    let lab = Lab::new();
    for (name, before, after) in [("run.sh", 0o755, 0o755), ("key", 0o600, 0o600), ("su", 0o4755, 0o755)] {
        lab.put(name, "one", before);
        lab.write(name, "two", content("one")).unwrap();
        assert_eq!(mode(&lab.disk(name)), after, "{name}");
    }
    let path = lab.put("late", "one", 0o644);
    let staged = lab.workspace.stage(&path, b"two", None).unwrap();
    let temporary = names(&lab.disk("")).into_iter().find(|name| name.ends_with(".tmp")).unwrap();
    assert_eq!(mode(&lab.disk(&temporary)), 0o600, "private until it has the mode of what it replaces");
    std::fs::set_permissions(lab.disk("late"), Permissions::from_mode(0o640)).unwrap();
    staged.commit(content("one")).unwrap();
    assert_eq!(mode(&lab.disk("late")), 0o640, "as it was at the last moment");
    let given = lab.workspace.stage(&lab.at("given"), b"", Some(0o4711)).unwrap();
    given.commit(ExpectedContent::Missing).unwrap();
    assert_eq!(mode(&lab.disk("given")), 0o711);
}

#[test]
#[ignore = "needs root"]
fn the_owner_is_kept() {
    let lab = Lab::new();
    lab.put("theirs", "one", 0o640);
    std::os::unix::fs::chown(lab.disk("theirs"), Some(1234), Some(2345)).expect("only root gives files away");
    assert!(!lab.read("theirs").unwrap().owned);
    lab.write("theirs", "two", content("one")).unwrap();
    let after = std::fs::metadata(lab.disk("theirs")).unwrap();
    assert_eq!((after.uid(), after.gid(), mode(&lab.disk("theirs"))), (1234, 2345, 0o640));
}

#[test]
fn other_hard_links_keep_the_old_content() {
    let lab = Lab::new();
    let canary = lab.scratch.path().join("ws-evil/canary");
    std::fs::hard_link(&canary, lab.disk("linked")).unwrap();
    assert_eq!(lab.read("linked").unwrap().links, 2);
    lab.write("linked", "mine", content("canary")).unwrap();
    assert_eq!(std::fs::read(&canary).unwrap(), b"canary");
    assert_eq!(lab.read("linked").unwrap().links, 1);
}

#[test]
fn the_umask_is_honoured() {
    for (umask, file, directory) in [("000", 0o666, 0o777), ("022", 0o644, 0o755), ("077", 0o600, 0o700)] {
        let lab = Lab::new();
        let environment = [(DIRECTORY, lab.disk(""))];
        let environment = environment.each_ref().map(|(name, path)| (*name, path.as_path()));
        run_in_a_process_of_its_own(
            &format!("umask {umask}"),
            "workspace::one_umask_in_child_process",
            &environment,
        );
        assert_eq!(mode(&lab.disk("made/here")), file, "{umask}");
        assert_eq!(mode(&lab.disk("made")), directory, "{umask}");
    }
}

#[test]
#[ignore = "run by the_umask_is_honoured, in a process of its own"]
fn one_umask_in_child_process() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let workspace = Workspace::open(&directory).unwrap();
    let path = workspace.locate("made/here").unwrap();
    workspace.stage(&path, b"", None).unwrap().commit(ExpectedContent::Missing).unwrap();
}
