#!/usr/bin/env python3
"""Forwards connections to another address, for tests of TLS and slow networks. Prints the port that it listens on.

    tcp_front.py HOST:PORT [--tls CERTIFICATE KEY] [--trickle]

With --tls its clients use TLS; with --trickle they get each byte of an answer separately.
"""

import socket
import ssl
import sys
import threading

host, port = sys.argv[1].rsplit(":", 1)
trickle = "--trickle" in sys.argv
context = None
if "--tls" in sys.argv:
    at = sys.argv.index("--tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[at + 1], sys.argv[at + 2])


def carry(source, target, size):
    try:
        while data := source.recv(size):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def converse(client):
    try:
        if context:
            client = context.wrap_socket(client, server_side=True)
    except (ssl.SSLError, OSError):
        return
    server = socket.create_connection((host, int(port)))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=carry, args=(client, server, 65536), daemon=True).start()
    carry(server, client, 1 if trickle else 65536)


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    accepted, _ = listener.accept()
    threading.Thread(target=converse, args=(accepted,), daemon=True).start()
