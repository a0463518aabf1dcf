//! Reads files that hold a secret: a token, a key. One that others may read is no secret, and is refused.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{place, project};

/// The mode bits that others must not have.
const OTHERS: u32 = 0o077;

/// Reads a file that its owner alone may read.
///
/// # Errors
/// It cannot be read, belongs to another user, is open to others or could be replaced by them; then the message says how
/// to mend it.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    // Of the open file, so that the file that is checked is the one that is read.
    let facts = file.metadata()?;
    place::check_owner(&facts)?;
    if facts.mode() & OTHERS != 0 {
        return Err(io::Error::other(format!(
            "others may use it (its mode is {:04o}): run `chmod 600 {}`, and use another secret if anyone may have \
             read this one",
            facts.mode() & 0o7777,
            quoted(path)
        )));
    }
    place::check(path, &file)?;
    project::read(file)
}

/// Writes a path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my token");
        std::fs::write(&path, "t0p-s3cret").unwrap();
        for mode in [0o644, 0o640, 0o604, 0o660, 0o602, 0o777] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let told = read(&path).unwrap_err().to_string();
            assert!(told.contains(&format!("{mode:04o}")) && !told.contains("s3cret"), "{told}");
            assert!(told.contains(&format!("`chmod 600 '{}'`", path.display())), "{told}");
        }
        for mode in [0o600, 0o400] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path).unwrap(), b"t0p-s3cret");
        }
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let told = read(&path).unwrap_err().to_string();
        assert!(told.contains("others could put another file in its place"), "{told}");
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains("another user (uid 65534)"));
        }
    }
}
