"""The program that starts a command with network access inside the sandbox: a relay to the proxy, then the command.

`python -IS relay.py PORT SOCKET FILTER -- COMMAND…`. Imports only the standard library, since nothing else is there.
A child relays a port of the sandbox's loopback to the proxy's unix socket; this process then installs a second filter
of system calls (which forbids unix sockets, and so cannot be installed before) and becomes the command. The relaying
child cannot be traced by the command.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import socket
import struct
import sys

_SECCOMP, _FILTER, _DUMPABLE, _DEATH = 22, 2, 4, 1
_CHUNK_BYTES = 65_536
_PAIRS_MAX = 64


def _relay(server: socket.socket, path: str) -> None:
    """Copy both ways for ever; a slow side delays the other pairs at most until its time-out."""
    watch = selectors.DefaultSelector()
    server.setblocking(False)
    watch.register(server, selectors.EVENT_READ)
    other: dict[socket.socket, socket.socket] = {}
    while True:
        for key, _ in watch.select():
            here = key.fileobj
            if here is server:
                _accept(server, path, watch, other)
            elif isinstance(here, socket.socket) and here in other:
                _forward(here, watch, other)


def _accept(
    server: socket.socket, path: str, watch: selectors.BaseSelector, other: dict[socket.socket, socket.socket]
) -> None:
    try:
        near, _ = server.accept()
    except OSError:
        return
    far = socket.socket(socket.AF_UNIX)
    try:
        if len(other) >= 2 * _PAIRS_MAX:
            raise OSError("too many")
        far.connect(path)
    except OSError:
        near.close()
        far.close()
        return
    for side, opposite in ((near, far), (far, near)):
        side.settimeout(30)
        other[side] = opposite
        watch.register(side, selectors.EVENT_READ)


def _forward(here: socket.socket, watch: selectors.BaseSelector, other: dict[socket.socket, socket.socket]) -> None:
    there = other[here]
    try:
        data = here.recv(_CHUNK_BYTES)
        there.sendall(data)
    except OSError:
        data = b""
    if not data:
        for side in (here, there):
            if other.pop(side, None) is not None:
                watch.unregister(side)
                side.close()


def _main(port: str, path: str, program: str, command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    server = socket.create_server(("127.0.0.1", int(port)))
    parent = os.getpid()
    libc.prctl(
        _DUMPABLE, zero, zero, zero, zero
    )  # before the fork, so that the relay can never be traced; exec resets it for the command
    if os.fork() == 0:
        libc.prctl(_DEATH, ctypes.c_ulong(9), zero, zero, zero)
        if os.getppid() != parent:
            os._exit(0)
        for stream in (0, 1, 2):  # else the command's output pipes would stay open as long as the relay
            os.dup2(os.open("/dev/null", os.O_RDWR), stream)
        _relay(server, path)
    server.close()
    with open(program, "rb") as file:
        code = file.read()
    held = ctypes.create_string_buffer(code, len(code))
    argument = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(code) // 8, ctypes.addressof(held)))
    search = os.environ.get("PATH", "/usr/bin:/bin").split(":")
    names = [command[0]] if "/" in command[0] else [f"{folder}/{command[0]}" for folder in search]
    if libc.prctl(_SECCOMP, ctypes.c_ulong(_FILTER), argument, zero, zero):
        sys.exit("the filter of system calls was refused")
    for name in names:
        try:
            os.execv(name, command)  # noqa: S606 - this is the command, and no shell may read it
        except OSError:
            continue
    os.write(2, f"{command[0]}: cannot be run\n".encode())
    os._exit(127)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[5:])
