"""Runs a file or a function in a process forked by `tests.warm`: `python -IS warm_client.py SOCKET TARGET …`.

For programs that can only start a command, and for tests that signal one. It imports no more than it needs, so that
it starts in milliseconds, and passes on the signals that a person or a terminal sends.
"""

import json
import os
import signal
import socket
import sys


def call(place: str, request: object, streams: list[int]) -> socket.socket:
    """Ask the server at `place` to fork; it answers with two lines: the pid, and at the end the exit code."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(place)
    body = json.dumps(request).encode()
    socket.send_fds(connection, [len(body).to_bytes(4, "big")], streams)
    connection.sendall(body)
    return connection


def exit_code(connection: socket.socket) -> int:
    """Wait for the end of the process. Negative: the signal that ended it, as `subprocess` counts."""
    with connection, connection.makefile() as answer:
        lines = answer.read().split()
    if len(lines) != 2:
        raise ConnectionError("the server of tests/warm.py has ended")
    return int(lines[1])


if __name__ == "__main__":
    request = {"target": sys.argv[2], "args": sys.argv[3:], "cwd": os.getcwd(), "env": dict(os.environ)}
    connection = call(sys.argv[1], request, [0, 1, 2])
    pid = int(connection.recv(16, socket.MSG_PEEK).split()[0])

    def pass_on(number: int, _: object) -> None:
        if os.path.exists(f"/proc/{pid}"):
            os.kill(pid, number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGWINCH):
        signal.signal(number, pass_on)
    code = exit_code(connection)
    sys.exit(code if code >= 0 else 128 - code)
