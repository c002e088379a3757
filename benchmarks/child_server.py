"""ChildServer: a server in a process of its own that a benchmark measures, and a plain client of HTTP on loopback.

The child is a module of the benchmarks, run with arguments. It prints a line when it is ready and ends with its
standard input. The client writes bytes that were made before and reads answers by their length or to the last chunk.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import Final, Self

from benchmarks.measure import Timing

__all__ = ["AT_ONCE", "ChildServer", "http_request", "read_answer"]

AT_ONCE: Final = 16  # connections


class ChildServer:
    """See the module; `words` are what the child said when it was ready."""

    def __init__(self, module: str, *args: str) -> None:
        command = [sys.executable, "-m", module, *args]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.words = self._process.stdout.readline().split()

    def cpu_s(self) -> float:
        with open(f"/proc/{self._process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> float:
        with open(f"/proc/{self._process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    async def requests(self, port: int, request: bytes, count: int) -> Timing:
        """Make a request so many times, sixteen at once: CPU of the child, and wall time."""

        async def some(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(number):
                writer.write(request)
                await read_answer(reader)
            writer.close()

        await some(20)
        began, cpu = time.perf_counter(), self.cpu_s()
        await asyncio.gather(*(some(count // AT_ONCE) for _ in range(AT_ONCE)))
        return Timing(self.cpu_s() - cpu, time.perf_counter() - began, count // AT_ONCE * AT_ONCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate("")


def http_request(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def read_answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 20"), head
    if b"content-length:" in head:
        await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
    else:
        await reader.readuntil(b"\r\n0\r\n\r\n")
