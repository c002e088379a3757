"""Lines of stdin, read in a thread: as they come, bounded, and errors of the file are told."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from lyra.cli import process_io
from lyra.errors import ConfigError


async def _all(fd: int, **cut: int) -> list[bytes]:
    async with asyncio.timeout(20):
        return [line async for line in process_io.stdin_lines(fd, **cut)]


def _piped(data: bytes, **cut: int) -> list[bytes]:
    read, write = os.pipe()

    def feed() -> None:
        with os.fdopen(write, "wb") as sink:
            sink.write(data)

    threading.Thread(target=feed, daemon=True).start()
    try:
        return asyncio.run(_all(read, **cut))
    finally:
        _close_after_reading(read)


def _close_after_reading(fd: int) -> None:
    """Close a pipe once its thread has seen the end: it must not read from a later pipe of the same number."""
    for thread in threading.enumerate():
        if thread.name == "lyra-stdin":
            thread.join(20)
    os.close(fd)


def test_lines_come_without_their_ends(tmp_path: Path) -> None:
    """More of them than may wait, long ones, and a last one without an end; from a pipe and from a file."""
    lines = [b"line %d" % number for number in range(300)] + [b"x" * 200_000, b"", b"last"]
    assert _piped(b"\r\n".join(lines)) == lines
    assert _piped(b"") == []
    assert _piped(b"one\n") == [b"one"]
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo")
    with file.open("rb") as opened:
        assert asyncio.run(_all(opened.fileno())) == [b"one", b"two"]


def test_a_line_comes_before_the_next_is_written() -> None:
    read, write = os.pipe()

    async def first() -> bytes:
        os.write(write, b"one\ntw")
        async with asyncio.timeout(10):
            line = await anext(aiter(process_io.stdin_lines(read)))
        os.close(write)
        return line

    assert asyncio.run(first()) == b"one"
    _close_after_reading(read)


def test_a_line_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that never ends: what is read of it stays small."""
    monkeypatch.setattr(process_io, "LINE_BYTES_MAX", 10)
    with pytest.raises(ConfigError, match="longer than 10 bytes"):
        _piped(b"x" * 100)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as opened, pytest.raises(ConfigError, match="stdin cannot be read"):
        asyncio.run(_all(opened.fileno()))


def test_a_line_is_cut_for_a_caller_that_answers_it() -> None:
    """One byte more than allowed says that it was longer; the next line comes whole."""
    lines = _piped(b"x" * 200_000 + b"\nshort\n" + b"y" * 11, cut_to_bytes=10)
    assert lines == [b"x" * 11, b"short", b"y" * 11]
