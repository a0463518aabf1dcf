//! Byte streams over file descriptors, without a thread in between.
//!
//! Hosts start us with pipes or sockets, which can be polled. A terminal or a file cannot, or must not be made
//! non-blocking because others share it: those get a thread that copies to or from a pipe.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::pipe::PipeFlags;
use scrubjay_core::inert::inert;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};

/// How often it is checked whether the reader is gone.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// pipe(7): a pipe that is ready for writing takes this many bytes without blocking.
const PIPE_BUF: usize = 4096;

/// The size of a pipe after a read of 64 KiB: large messages pass in fewer writes.
const PIPE_BYTES: usize = 256 * 1024;

/// The reading end of a stream.
#[derive(Debug)]
pub enum Source {
    /// The end of a pipe.
    Pipe(Receiver),
    /// A socket.
    Socket(UnixStream),
}

/// The writing end of a stream.
#[derive(Debug)]
pub struct Sink {
    /// `Some` until the sink is dropped.
    end: Option<End>,
    /// The thread that copies to a descriptor that cannot be polled.
    drain: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum End {
    Pipe(Sender),
    Socket(UnixStream),
}

impl Drop for Sink {
    fn drop(&mut self) {
        // In this order: the thread ends when its pipe is closed and empty. Joined before that, it would never end.
        drop(self.end.take());
        if let Some(drain) = self.drain.take() {
            // A panic there was reported by its thread.
            let _ = drain.join();
        }
    }
}

impl Source {
    fn pipe(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self::Pipe(Receiver::from_owned_fd(fd)?))
    }

    /// Opens this process's standard input.
    ///
    /// # Errors
    /// It is closed, or the process is out of descriptors.
    pub fn stdin() -> io::Result<Self> {
        let stdin = rustix::stdio::stdin();
        let source = match descriptor_kind(stdin)? {
            DescriptorKind::Pipe => Self::pipe(reopen(stdin, OFlags::RDONLY)?),
            DescriptorKind::Socket => Ok(Self::Socket(socket(stdin)?)),
            DescriptorKind::Other => {
                let mut from = File::from(stdin.try_clone_to_owned()?);
                let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                let mut to = File::from(write);
                std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
                    // Either end may be closed at any time; that is how a stream ends.
                    let _ = copy_unbuffered(&mut from, &mut to);
                })?;
                Self::pipe(read)
            }
        }?;
        // Replaced, so that dropping the source closes the stream: no other descriptor holds it.
        rustix::stdio::dup2_stdin(dev_null()?)?;
        Ok(source)
    }

    /// Enlarges a pipe for large messages.
    pub(crate) fn widen(&self) {
        if let Self::Pipe(pipe) = self {
            widen(pipe.as_fd());
        }
    }

    /// Waits for bytes and appends them to the buffer; 0 means that the stream has ended.
    ///
    /// # Errors
    /// The system refuses the read.
    pub async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let read = match self {
            Self::Pipe(pipe) => pipe.read_buf(buffer).await,
            Self::Socket(socket) => socket.read_buf(buffer).await,
        };
        match read {
            // The other end of a socket was closed before it had read everything.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            read => read,
        }
    }
}

impl Sink {
    fn pipe(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { end: Some(End::Pipe(Sender::from_owned_fd(fd)?)), drain: None })
    }

    /// Opens this process's standard output.
    ///
    /// # Errors
    /// It is closed, or the process is out of descriptors.
    pub fn stdout() -> io::Result<Self> {
        let sink = Self::standard(rustix::stdio::stdout())?;
        // Replaced, so that dropping the sink closes the stream: no other descriptor holds it.
        rustix::stdio::dup2_stdout(dev_null()?)?;
        Ok(sink)
    }

    /// Opens this process's standard error.
    ///
    /// # Errors
    /// It is closed, or the process is out of descriptors.
    pub fn stderr() -> io::Result<Self> {
        Self::standard(rustix::stdio::stderr())
    }

    fn standard(fd: BorrowedFd<'_>) -> io::Result<Self> {
        match descriptor_kind(fd)? {
            DescriptorKind::Pipe => Self::pipe(reopen(fd, OFlags::WRONLY)?),
            DescriptorKind::Socket => Ok(Self { end: Some(End::Socket(socket(fd)?)), drain: None }),
            DescriptorKind::Other => {
                let mut to = File::from(fd.try_clone_to_owned()?);
                let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                let mut from = File::from(read);
                let drain = std::thread::Builder::new().name("drain".to_owned()).spawn(move || {
                    // Either end may go away at any time; that is how a stream ends.
                    let _ = copy_unbuffered(&mut from, &mut to);
                })?;
                let mut sink = Self::pipe(write)?;
                sink.drain = Some(drain);
                Ok(sink)
            }
        }
    }

    /// Writes all bytes, waiting for room.
    ///
    /// # Errors
    /// The reading end is gone, or the system refuses the write.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            bytes = &bytes[self.write_some(bytes).await?..];
        }
        Ok(())
    }

    /// Waits for room and writes as many bytes as fit; returns how many.
    ///
    /// # Errors
    /// The reading end is gone, or the system refuses the write.
    pub(crate) async fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let written = match self.end() {
                End::Pipe(pipe) => pipe.try_write(bytes),
                End::Socket(socket) => socket.try_write(bytes),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self.end() {
                    End::Pipe(pipe) => pipe.writable().await?,
                    End::Socket(socket) => socket.writable().await?,
                },
                written => return written,
            }
        }
    }

    /// Enlarges a pipe for large messages.
    pub(crate) fn widen(&self) {
        if let End::Pipe(pipe) = self.end() {
            widen(pipe.as_fd());
        }
    }

    /// Waits until the other end is closed.
    ///
    /// # Errors
    /// The descriptor cannot be polled.
    pub(crate) async fn reader_gone(&self) -> io::Result<()> {
        let fd = match self.end() {
            End::Pipe(pipe) => pipe.as_fd(),
            End::Socket(socket) => socket.as_fd(),
        };
        while !ready(fd, PollFlags::empty())?.intersects(PollFlags::ERR | PollFlags::HUP) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn end(&self) -> &End {
        self.end.as_ref().expect("open until dropped")
    }
}

/// Makes a pipe to a child: our end, and the child's.
///
/// # Errors
/// The process is out of descriptors.
pub fn to_child() -> io::Result<(Sink, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Sink::pipe(write)?, read))
}

/// Makes a pipe from a child: our end, and the child's.
///
/// # Errors
/// The process is out of descriptors.
pub fn from_child() -> io::Result<(Source, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Source::pipe(read)?, write))
}

/// Opens `/dev/null` for reading and writing.
pub(crate) fn dev_null() -> io::Result<File> {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")
}

/// Writes a line to standard error, unless that means waiting: the host may never read it, and the relay must go on.
///
/// The text may quote a stranger's file or a server, so control characters are made inert.
pub fn write_to_stderr(text: &str) {
    let text = inert(text);
    // At most as much as a ready pipe takes, or the write could block.
    let mut line = text.as_bytes()[..text.len().min(PIPE_BUF - 1)].to_vec();
    line.push(b'\n');
    let stderr = rustix::stdio::stderr();
    if ready(stderr, PollFlags::OUT).is_ok_and(|now| now.contains(PollFlags::OUT)) {
        // Standard error is where a failure would be reported.
        let _ = rustix::io::write(stderr, &line);
    }
}

/// Returns the state of a descriptor, without waiting.
fn ready(fd: BorrowedFd<'_>, asked: PollFlags) -> io::Result<PollFlags> {
    use rustix::event::{PollFd, Timespec};
    let mut polled = [PollFd::from_borrowed_fd(fd, asked)];
    rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(polled[0].revents())
}

enum DescriptorKind {
    Pipe,
    Socket,
    Other,
}

fn descriptor_kind(fd: BorrowedFd<'_>) -> io::Result<DescriptorKind> {
    // By its kind, and not by an attempt to poll it: a terminal can be polled, but its open file is shared.
    Ok(match FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) {
        FileType::Fifo => DescriptorKind::Pipe,
        FileType::Socket => DescriptorKind::Socket,
        _ => DescriptorKind::Other,
    })
}

/// Opens an inherited pipe again: non-blocking is a property of the open file, which other processes (a shell's other
/// commands) may share.
fn reopen(fd: BorrowedFd<'_>, access: OFlags) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => Ok(fd),
        // Without /proc, or for another user's pipe, the inherited descriptor is used.
        Err(_) => fd.try_clone_to_owned(),
    }
}

/// Enlarges a pipe; the system may refuse, since a user's pipes share a budget.
fn widen(pipe: BorrowedFd<'_>) {
    #[cfg(target_os = "linux")]
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
}

fn socket(fd: BorrowedFd<'_>) -> io::Result<UnixStream> {
    let socket = StdUnixStream::from(fd.try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

fn copy_unbuffered(from: &mut File, to: &mut File) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => to.write_all(&buffer[..n])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
