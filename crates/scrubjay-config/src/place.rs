//! Whether a file may be trusted as ours (a configuration, a token, a key): it belongs to us or to root, and no other user
//! could replace it.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use scrubjay_tape::private::{NotPrivate, check_above_file};

/// Refuses a file of another user, who could write into it whatever its mode says; root can do so anyway.
///
/// # Errors
/// It belongs to another user.
pub(crate) fn check_owner(facts: &Metadata) -> io::Result<()> {
    let me = rustix::process::geteuid().as_raw();
    if may_own(facts.uid(), me) {
        return Ok(());
    }
    let why = format!(
        "it belongs to another user (uid {}): look at it, then copy it or `chown {me}` it",
        facts.uid()
    );
    Err(io::Error::other(why))
}

/// Tells whether a file of that owner counts as ours.
pub(crate) fn may_own(owner: u32, me: u32) -> bool {
    owner == me || owner == 0
}

/// Refuses a file in a directory that others may write; the file's owner may own the directory.
///
/// # Errors
/// Others could replace it; the message says how to mend that.
pub(crate) fn check(path: &Path, file: &File) -> io::Result<()> {
    let facts = file.metadata()?;
    // A pipe, for example, was opened by the process that started us.
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
