//! The library that makes calls fail, built with the C compiler that Rust needs anyway, and the page that controls it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

const TEXT_BYTES: usize = 256;
/// Six numbers, then two texts.
const STRUCK: u64 = 5 * 4;
const TEXTS: u64 = 6 * 4;
const PLACE: u64 = TEXTS + TEXT_BYTES as u64;
const PAGE_BYTES: u64 = PLACE + TEXT_BYTES as u64;

/// The kinds of calls, with the numbers that `shim.c` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Open = 1,
    Read,
    Write,
    Sync,
    Truncate,
    Rename,
    Unlink,
    Mkdir,
    Stat,
    Map,
}

pub(super) const KINDS: [Kind; 10] = [
    Kind::Open,
    Kind::Read,
    Kind::Write,
    Kind::Sync,
    Kind::Truncate,
    Kind::Rename,
    Kind::Unlink,
    Kind::Mkdir,
    Kind::Stat,
    Kind::Map,
];

/// What happens to the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Fails,
    /// Half is written, as a system may do at any time.
    Short,
    /// Half is written, and the next such call fails.
    ShortThenFails,
}

/// The call that fails: number `left` of its kind among those on a path that contains one of these texts, a line each.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) mode: Mode,
    pub(super) error: i32,
    pub(super) left: u32,
    pub(super) texts: &'static str,
}

/// The shared page that controls the library in all processes that load it.
pub(super) struct Shim {
    scratch: TempDir,
    page: File,
}

impl Shim {
    pub(super) fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let page = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(scratch.path().join("page"))
            .unwrap();
        page.set_len(PAGE_BYTES).unwrap();
        Self { scratch, page }
    }

    /// Loads the library into a command and the processes that it starts.
    pub(super) fn load_into(&self, command: &mut Command) {
        command.env("LD_PRELOAD", library()).env("SCRUBJAY_FAULTS", self.scratch.path().join("page"));
    }

    pub(super) fn arm(&self, fault: &Fault) {
        self.disarm();
        let mut texts = [0; TEXT_BYTES];
        texts[..fault.texts.len()].copy_from_slice(fault.texts.as_bytes());
        self.page.write_all_at(&texts, TEXTS).unwrap();
        self.page.write_all_at(&[0; TEXT_BYTES], PLACE).unwrap();
        let left = i32::try_from(fault.left).unwrap();
        for (at, number) in
            [fault.kind as i32, fault.mode as i32, fault.error, left, 0].into_iter().enumerate()
        {
            self.page.write_all_at(&number.to_ne_bytes(), 4 + at as u64 * 4).unwrap();
        }
        self.page.write_all_at(&1_i32.to_ne_bytes(), 0).unwrap();
    }

    /// Ends the fault; returns the path at which a call failed, if one did.
    pub(super) fn disarm(&self) -> Option<String> {
        self.page.write_all_at(&[0; 4], 0).unwrap();
        let mut struck = [0; 4];
        self.page.read_exact_at(&mut struck, STRUCK).unwrap();
        let mut place = [0; TEXT_BYTES];
        self.page.read_exact_at(&mut place, PLACE).unwrap();
        let place = place.split(|byte| *byte == 0).next().unwrap_or_default();
        (struck != [0; 4]).then(|| String::from_utf8_lossy(place).into_owned())
    }
}

/// Builds the library once for all tests of this process.
fn library() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shim.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/faults/shim.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&path).arg(source);
        let output = compiler.arg("-ldl").output().expect("a C compiler is installed: Rust links with it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (directory, path)
    });
    path
}
