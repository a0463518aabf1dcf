//! Normalizes the paths that agents give, from their text alone.
//!
//! The normal form is relative, separated by `/`, without `.`, `..` or empty names; otherwise its bytes are unchanged.
//! Nothing here accesses the file system: opening the path finds out what it leads to.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use unicode_normalization::UnicodeNormalization;

use super::refusal::Refusal;
use super::temporary;

/// The longest name of a file or directory, in bytes: NAME_MAX.
const NAME_BYTES_MAX: usize = 255;
/// The longest path, in bytes: PATH_MAX without its NUL.
const PATH_BYTES_MAX: usize = 4095;
/// The most names in a path: each directory that is created for it stays open until the change is made.
const DEPTH_MAX: usize = 128;

/// The normal form of a path in a workspace: the key of its revisions in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath(String);

impl FilePath {
    /// Returns the normal form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the file itself.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(self.0.as_str(), |(_, name)| name)
    }

    /// Returns the directory, `.` being the root.
    #[must_use]
    pub fn directory(&self) -> &str {
        self.0.rsplit_once('/').map_or(".", |(directory, _)| directory)
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Hints for a path that does not name a file, and for one that is too long.
const NAME_A_FILE: &str = "Name a file in the workspace.";
const USE_A_SHORTER_PATH: &str = "Choose a shorter path.";

/// Normalizes a path; an absolute one must be below one of the roots.
pub(super) fn parse(given: &str, roots: &[&Path], allow_vcs: bool) -> Result<FilePath, Refusal> {
    let bad = |reason, hint| Refusal::BadPath { path: given.to_owned(), reason, hint };
    if given.is_empty() {
        return Err(bad("it is empty", NAME_A_FILE));
    }
    if given.len() > PATH_BYTES_MAX {
        return Err(bad("it is longer than 4095 bytes", USE_A_SHORTER_PATH));
    }
    if given.chars().any(char::is_control) {
        return Err(bad("it has a control character in it", "Leave the control character out."));
    }
    let mut names: Vec<&str> = given.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    // Never resolved from the text: behind a symbolic link `..` leads elsewhere.
    if names.contains(&"..") {
        return Err(dot_dot_refusal(given, &names, roots));
    }
    if given.starts_with('/') {
        let below = roots.iter().find_map(|root| depth_below(&names, root));
        names.drain(..below.ok_or_else(|| Refusal::Outside { path: given.to_owned() })?);
    }
    if names.is_empty() {
        return Err(bad("it names the workspace itself", NAME_A_FILE));
    }
    if given.ends_with('/') || given.ends_with("/.") {
        return Err(bad("it names a directory", "Leave out what follows the last name."));
    }
    if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
        return Err(bad("a name in it is longer than 255 bytes", USE_A_SHORTER_PATH));
    }
    if names.len() > DEPTH_MAX {
        return Err(bad("it is more than 128 directories deep", USE_A_SHORTER_PATH));
    }
    match names.iter().find_map(|name| protection(name, allow_vcs)) {
        Some((reason, hint)) => Err(Refusal::Protected { path: given.to_owned(), reason, hint }),
        None => Ok(FilePath(names.join("/"))),
    }
}

/// Returns the refusal of a path with `..`: that it leads outside, or only that `..` is not accepted.
fn dot_dot_refusal(given: &str, names: &[&str], roots: &[&Path]) -> Refusal {
    let absolute = given.starts_with('/');
    let mut kept = Vec::new();
    let mut escaped = false;
    for name in names {
        if *name == ".." {
            escaped |= kept.pop().is_none() && !absolute;
        } else {
            kept.push(*name);
        }
    }
    escaped |= absolute && !roots.iter().any(|root| depth_below(&kept, root).is_some());
    let path = given.to_owned();
    match escaped {
        true => Refusal::Outside { path },
        false => Refusal::BadPath { path, reason: "it has `..` in it", hint: "Write it without `..`." },
    }
}

/// Returns the number of names of a root, if the given names begin with all of them.
fn depth_below(names: &[&str], root: &Path) -> Option<usize> {
    let mut depth = 0;
    for component in root.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) if names.get(depth)?.as_bytes() == name.as_bytes() => depth += 1,
            _ => return None,
        }
    }
    Some(depth)
}

/// Returns why a name is protected, and what to do instead.
fn protection(name: &str, allow_vcs: bool) -> Option<(&'static str, &'static str)> {
    let folded = fold(name);
    if temporary::looks_like_ours(&folded) {
        return Some(("Scrubjay's own temporary files have such names", "Choose another name."));
    }
    // Some file systems treat `:` and `\` as separators, and drop dots and spaces at the end of a name: there `.git.`
    // and `.git::$INDEX_ALLOCATION` are `.git`.
    let names_control = folded
        .split(['\\', ':'])
        .map(|part| part.trim_end_matches([' ', '.']))
        .any(|part| matches!(part, ".git" | ".hg" | ".svn") || is_short_name(part));
    (names_control && !allow_vcs).then_some((
        "version control keeps its own files there, and runs some",
        "Leave it to version control, or ask the user to set files.allow_vcs.",
    ))
}

/// Recognises the 8.3 names that some file systems give `.git`, `.hg` and `.svn`.
fn is_short_name(part: &str) -> bool {
    part.rsplit_once('~').is_some_and(|(stem, number)| {
        matches!(stem, "git" | "hg" | "svn")
            && !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit())
    })
}

/// Folds names to one form that some file systems treat as one: names that differ only in case, in Unicode composition,
/// or in invisible characters.
fn fold(text: &str) -> String {
    // Upper case first, then lower: so `ſ`, `ς` and `ß` meet `s`, `σ` and `ss`. The dotless `ı` is a letter of
    // its own, which upper case would lose.
    let upper = |c: char| {
        let kept = (c == 'ı').then_some(c);
        kept.into_iter().chain(c.to_uppercase().filter(move |_| kept.is_none()))
    };
    text.nfd().filter(|c| !is_ignorable(*c)).flat_map(upper).flat_map(char::to_lowercase).nfc().collect()
}

/// Unicode's default-ignorable characters, which case-folding file systems ignore.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_file_system_may_treat_as_one_fold_to_one_form() {
        for (one, other) in [
            ("Foo.txt", "foo.TXT"),
            ("é", "e\u{301}"),
            ("É", "e\u{301}"),
            ("straße", "STRASSE"),
            ("ΟΔΟΣ", "οδος"),
            ("a\u{200b}b", "ab"),
            ("\u{212a}", "k"),
        ] {
            assert_eq!(fold(one), fold(other), "{one} {other}");
        }
        for (one, other) in [("a", "b"), ("e", "é"), ("a/b", "a:b"), ("ı", "i")] {
            assert_ne!(fold(one), fold(other), "{one} {other}");
        }
    }
}
