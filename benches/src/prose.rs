//! Text as agents read it, from files on this machine: documentation, sources, pages.
//!
//! The text differs between machines; its mix of words, numbers and punctuation, on which the cost of an index
//! depends, hardly does.

use std::path::{Path, PathBuf};

/// Where such files usually are, the most like prose first.
const PLACES: [&str; 6] = [
    "/usr/share/doc",
    "/usr/share/perl",
    "/usr/lib/python3",
    "/usr/lib/python3.11",
    "/usr/local/lib/python3",
    "/usr/share/common-licenses",
];
/// Directories below the home directory.
const HOME_PLACES: [&str; 3] = [".cargo/registry/src", ".rustup/toolchains", ".pyenv/versions"];
const EXTENSIONS: [&str; 10] = ["md", "txt", "rst", "rs", "py", "html", "pm", "pod", "toml", "json"];
/// Smaller files are licences and stubs; larger ones are data.
const FILE_BYTES: std::ops::Range<u64> = 500..400_000;
/// At most one in this many: most tools do not answer with markup.
const HTML_EVERY: usize = 8;

/// Pieces of real text, one after the other, each once until all were used.
pub struct Prose {
    files: Vec<PathBuf>,
    next_file: usize,
    text: String,
    at: usize,
}

impl Prose {
    /// Looks for files; `None` if there are none.
    #[must_use]
    pub fn find() -> Option<Self> {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let mut files = Vec::new();
        let places = PLACES.iter().map(PathBuf::from).chain(HOME_PLACES.iter().map(|place| home.join(place)));
        for place in places {
            collect(&place, &mut files);
        }
        let (html, mut other): (Vec<_>, Vec<_>) = files.into_iter().partition(|path| ends_with(path, "html"));
        let html_max = other.len() / HTML_EVERY;
        let step = (html.len() / html_max.max(1)).max(1);
        other.extend(html.into_iter().step_by(step).take(html_max));
        // In an order that mixes the kinds, the same in every run.
        other.sort_by_cached_key(|path| mix(path.as_os_str().as_encoded_bytes()));
        (!other.is_empty()).then_some(Self { files: other, next_file: 0, text: String::new(), at: 0 })
    }

    /// Returns the current file, and its next piece of about this length.
    pub fn piece(&mut self, bytes: usize) -> (&Path, &str) {
        while self.at >= self.text.len() {
            let path = &self.files[self.next_file % self.files.len()];
            self.next_file += 1;
            self.text = std::fs::read_to_string(path).unwrap_or_default();
            self.at = 0;
        }
        let begin = self.at;
        let mut end = (begin + bytes).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        // To the end of a line, where one is near.
        let line = self.text[end..].bytes().take(120).position(|byte| byte == b'\n');
        self.at = line.map_or(end, |line| end + line + 1);
        (&self.files[(self.next_file - 1) % self.files.len()], &self.text[begin..self.at])
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(facts) = std::fs::symlink_metadata(&path) else { continue };
        if facts.is_dir() {
            collect(&path, files);
        } else if facts.is_file()
            && FILE_BYTES.contains(&facts.len())
            && EXTENSIONS.iter().any(|extension| ends_with(&path, extension))
        {
            files.push(path);
        }
    }
}

fn ends_with(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// Hashes bytes (FNV-1a): a random-looking number, the same in every run.
fn mix(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Writes a text as a JSON string, with its quotation marks.
#[must_use]
pub fn json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
