//! Finds the process at the other end of a loopback connection.
//!
//! [`process`] returns a process of this machine that holds the client's end of the connection, with its start time, so
//! that a reused pid means another process. It returns `None` for a peer on another machine, if `/proc` is missing or
//! cannot be read (another user's process), and if the connection is already gone. The result is a hint that
//! distinguishes conversations; it authenticates nobody. The search reads the descriptors of every process: call it
//! once for each connection, on a thread for blocking work.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use rustix::process::Pid;

use crate::tree;

/// A process and the clock tick at which it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerProcess {
    pub(super) pid: u32,
    pub(super) started: u64,
}

/// Finds the process that holds `peer`, the far end of a connection to `local`.
pub(super) fn process(peer: SocketAddr, local: SocketAddr) -> Option<PeerProcess> {
    let (peer, local) = (plain(peer), plain(local));
    // The tables of this machine know nothing of processes on another.
    if !peer.ip().is_loopback() {
        return None;
    }
    let socket = format!("socket:[{}]", inode(peer, local)?);
    let pids =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pid = pids.into_iter().find(|pid: &u32| holds(*pid, &socket))?;
    let (started, _) = tree::start_and_name(Pid::from_raw(pid.cast_signed())?)?;
    Some(PeerProcess { pid, started })
}

/// Turns an IPv4-mapped IPv6 address into the IPv4 address.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn inode(peer: SocketAddr, local: SocketAddr) -> Option<String> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().filter_map(|path| fs::read_to_string(path).ok());
    tables.into_iter().find_map(|table| {
        table.lines().skip(1).find_map(|row| {
            let mut fields = row.split_ascii_whitespace().skip(1);
            let (own, other) = (address(fields.next()?)?, address(fields.next()?)?);
            // The inode comes after the state, both queues, timer, retransmissions, user and timeout.
            (plain(own) == peer && plain(other) == local).then(|| fields.nth(6).map(str::to_owned)).flatten()
        })
    })
}

/// Parses an address as the kernel prints it: words of four bytes in the machine's byte order, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words = ip.as_bytes().chunks(8).map(|word| {
        let word = std::str::from_utf8(word).ok()?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<_>>>()?.concat();
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => IpAddr::from(four),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?),
    };
    Some(SocketAddr::new(ip, port))
}

fn holds(pid: u32, socket: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == socket))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_process_at_the_other_end_is_found() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            // Some machines have no IPv6.
            let Ok(listener) = TcpListener::bind(loopback) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            let found = process(peer, server.local_addr().unwrap()).expect("it is this process");
            assert_eq!(found.pid, std::process::id());
            drop(client);
        }
        let elsewhere = "192.0.2.1:80".parse().unwrap();
        assert_eq!(process(elsewhere, "127.0.0.1:1".parse().unwrap()), None);
    }

    #[test]
    fn addresses_are_read_as_the_kernel_prints_them() {
        if cfg!(target_endian = "little") {
            assert_eq!(address("0100007F:1F90"), "127.0.0.1:8080".parse().ok());
            assert_eq!(address("00000000000000000000000001000000:0050"), "[::1]:80".parse().ok());
        }
        assert_eq!(address("rubbish"), None);
    }
}
