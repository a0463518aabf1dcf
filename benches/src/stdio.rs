//! Standard input and output as plain files, without the buffers and locks of `std::io`.
//!
//! The relay and the server decide themselves how much one `read` or `write` carries; that
//! decision is what they are measured by.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Returns standard input, unbuffered.
pub fn input() -> io::Result<File> {
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

/// Returns standard output, unbuffered.
pub fn output() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}
