//! Whether somebody else could put another file in the place of one that is gone by: a configuration, a token, a key.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use scrubjay_store::private::{NotPrivate, check_above_file};

/// Refuses a file in a directory that others may write; who owns the file may own that, too.
///
/// # Errors
/// Others could replace it; the message says how to mend that.
pub(super) fn check(path: &Path, file: &File) -> io::Result<()> {
    let facts = file.metadata()?;
    // What is no file, as a pipe, is what whoever started us made it.
    if !facts.is_file() {
        return Ok(());
    }
    check_above_file(path, facts.uid()).map_err(|e| {
        let why = match e {
            NotPrivate::Replaceable { path, mode, .. } => format!(
                "{} can be written by others (its mode is {mode:04o}): run `chmod go-w` on that directory",
                path.display()
            ),
            NotPrivate::OtherOwner { path, uid } => {
                format!("{} belongs to another user (uid {uid}): keep it elsewhere", path.display())
            }
            other => other.to_string(),
        };
        io::Error::other(format!("others could put another file in its place: {why}"))
    })
}
