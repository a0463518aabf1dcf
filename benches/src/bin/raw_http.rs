//! The physical limit of an HTTP gateway: a server that answers without parsing requests (`serve`), and a
//! relay in front of it that copies bytes and parses nothing (`relay PORT`). Each prints its own port.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use scrubjay_bench::wire;

fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = io::stdout();
    writeln!(out, "{}", listener.local_addr()?.port())?;
    out.flush()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve"] => accept(&listener, answer_all),
        ["relay", port] => {
            let port: u16 = port.parse().map_err(io::Error::other)?;
            accept(&listener, move |client| relay(client, port))
        }
        _ => Err(io::Error::other("usage: raw-http serve | raw-http relay PORT")),
    }
}

fn accept(
    listener: &TcpListener,
    serve: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<()> {
    loop {
        let (client, _) = listener.accept()?;
        client.set_nodelay(true)?;
        let serve = serve.clone();
        // Clients leave by closing their connections, so an error here is expected.
        thread::spawn(move || drop(serve(client)));
    }
}

fn relay(client: TcpStream, port: u16) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port))?;
    server.set_nodelay(true)?;
    let (up, down) = ((client.try_clone()?, server.try_clone()?), (server, client));
    let upward = thread::spawn(move || copy(up.0, up.1));
    copy(down.0, down.1)?;
    upward.join().map_err(|_| io::Error::other("the upward copy panicked"))?
}

fn copy(mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer)? {
            0 => return to.shutdown(std::net::Shutdown::Write),
            n => to.write_all(&buffer[..n])?,
        }
    }
}

/// Answers every request of one connection with the small answer.
fn answer_all(mut client: TcpStream) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        while let Some((whole, body)) = scrubjay_bench::http_load::message(&buffer) {
            let mut answer = Vec::new();
            if let Some(id) = wire::raw_id(&buffer[body..whole]) {
                answer.extend_from_slice(wire::HEAD);
                answer.extend_from_slice(id);
                answer.extend_from_slice(wire::ECHO_ANSWER.trim_ascii_end());
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            client.write_all(&[head.as_bytes(), &answer].concat())?;
            buffer.drain(..whole);
        }
        match client.read(&mut chunk)? {
            0 => return Ok(()),
            n => buffer.extend_from_slice(&chunk[..n]),
        }
    }
}
