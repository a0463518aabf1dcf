//! Byte streams over file descriptors, without a thread in between.
//!
//! Hosts hand us pipes or sockets, which can be polled; a terminal or a file cannot, or must not be made
//! non-blocking because others share it: those get a thread that copies to or from a pipe.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The reading end of a stream.
#[derive(Debug)]
pub struct Source {
    fd: AsyncFd<OwnedFd>,
}

/// The writing end of a stream.
#[derive(Debug)]
pub struct Sink {
    /// Open until the sink is dropped.
    fd: Option<AsyncFd<OwnedFd>>,
    /// Copies to a descriptor that cannot be polled.
    drain: Option<JoinHandle<()>>,
}

impl Drop for Sink {
    fn drop(&mut self) {
        // In this order: the copying ends when its pipe is closed, and all of it must be out by then.
        drop(self.fd.take());
        if let Some(drain) = self.drain.take() {
            // A panic there was reported by its thread.
            let _ = drain.join();
        }
    }
}

impl Source {
    /// Takes over a descriptor that can be polled.
    ///
    /// # Errors
    /// The descriptor cannot be polled.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&fd)?;
        Ok(Self { fd: AsyncFd::register_with_interest(fd, Interest::READABLE)? })
    }

    /// Opens this process's standard input.
    ///
    /// # Errors
    /// It is closed, or the process is out of descriptors.
    pub fn stdin() -> io::Result<Self> {
        let stdin = rustix::stdio::stdin();
        let source = match shape(stdin)? {
            Shape::Pipe => Self::new(reopen(stdin, OFlags::RDONLY)?),
            Shape::Socket => Self::new(stdin.try_clone_to_owned()?),
            Shape::Other => {
                let mut from = File::from(stdin.try_clone_to_owned()?);
                let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                let mut to = File::from(write);
                std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
                    // Either end may go away at any time; that is how a stream ends.
                    let _ = copy_unbuffered(&mut from, &mut to);
                })?;
                Self::new(read)
            }
        }?;
        // The stream ends when its source is dropped, so nothing else may hold it.
        rustix::stdio::dup2_stdin(nowhere()?)?;
        Ok(source)
    }

    /// Appends what has arrived to the buffer, waiting for some; 0 means that the stream has ended.
    ///
    /// # Errors
    /// The system refuses the read.
    pub async fn read(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let mut ready = self.fd.readable().await?;
            let room = buffer.capacity() - buffer.len();
            match rustix::io::read(self.fd.get_ref(), spare_capacity(buffer)) {
                Ok(n) => {
                    if n < room {
                        // All that was there: the next read would only say so.
                        ready.clear_ready();
                    }
                    return Ok(n);
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                // A socket whose other end died without reading everything.
                Err(Errno::CONNRESET) => return Ok(0),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Sink {
    /// Takes over a descriptor that can be polled.
    ///
    /// # Errors
    /// The descriptor cannot be polled.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&fd)?;
        let fd = AsyncFd::register_with_interest(fd, Interest::WRITABLE | Interest::ERROR)?;
        Ok(Self { fd: Some(fd), drain: None })
    }

    /// Opens this process's standard output.
    ///
    /// # Errors
    /// It is closed, or the process is out of descriptors.
    pub fn stdout() -> io::Result<Self> {
        let sink = Self::standard(rustix::stdio::stdout())?;
        // The stream ends when its sink is dropped, so nothing else may hold it.
        rustix::stdio::dup2_stdout(nowhere()?)?;
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
        match shape(fd)? {
            Shape::Pipe => Self::new(reopen(fd, OFlags::WRONLY)?),
            Shape::Socket => Self::new(fd.try_clone_to_owned()?),
            Shape::Other => {
                let mut to = File::from(fd.try_clone_to_owned()?);
                let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                let mut from = File::from(read);
                let drain = std::thread::Builder::new().name("drain".to_owned()).spawn(move || {
                    // Either end may go away at any time; that is how a stream ends.
                    let _ = copy_unbuffered(&mut from, &mut to);
                })?;
                let mut sink = Self::new(write)?;
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
            match rustix::io::write(self.fd().get_ref(), bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::AGAIN) => self.wait_for_room().await?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    async fn wait_for_room(&self) -> io::Result<()> {
        loop {
            let mut ready = self.fd().ready(Interest::WRITABLE | Interest::ERROR).await?;
            let events = poll(self.fd())?;
            if !events.is_empty() {
                return Ok(());
            }
            ready.clear_ready();
        }
    }

    /// Waits until nobody reads the other end any more.
    ///
    /// # Errors
    /// The descriptor cannot be polled.
    pub async fn abandoned(&self) -> io::Result<()> {
        use rustix::event::PollFlags;
        loop {
            let mut ready = self.fd().ready(Interest::ERROR).await?;
            if poll(self.fd())?.intersects(PollFlags::ERR | PollFlags::HUP) {
                return Ok(());
            }
            ready.clear_ready();
        }
    }

    fn fd(&self) -> &AsyncFd<OwnedFd> {
        self.fd.as_ref().expect("open until dropped")
    }
}

/// Makes a pipe to a child: our end, and the child's.
///
/// # Errors
/// The process is out of descriptors.
pub fn to_child() -> io::Result<(Sink, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Sink::new(write)?, read))
}

/// Makes a pipe from a child: our end, and the child's.
///
/// # Errors
/// The process is out of descriptors.
pub fn from_child() -> io::Result<(Source, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Source::new(read)?, write))
}

/// Opens a stream on which nothing comes and to which anything may go.
pub(crate) fn nowhere() -> io::Result<File> {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")
}

enum Shape {
    Pipe,
    Socket,
    Other,
}

fn shape(fd: BorrowedFd<'_>) -> io::Result<Shape> {
    Ok(match FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) {
        FileType::Fifo => Shape::Pipe,
        FileType::Socket => Shape::Socket,
        _ => Shape::Other,
    })
}

/// Opens an inherited pipe anew: non-blocking is a property of the open file, and whoever shares the
/// inherited one (a shell's other commands) must not be surprised by it.
fn reopen(fd: BorrowedFd<'_>, access: OFlags) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => Ok(fd),
        // Without /proc, or for another user's pipe, the inherited one has to do.
        Err(_) => fd.try_clone_to_owned(),
    }
}

fn set_nonblocking(fd: &impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    if !flags.contains(OFlags::NONBLOCK) {
        rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
    }
    Ok(())
}

fn poll(fd: &AsyncFd<OwnedFd>) -> io::Result<rustix::event::PollFlags> {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let mut polled = [PollFd::new(fd.get_ref(), PollFlags::OUT)];
    rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(polled[0].revents())
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
