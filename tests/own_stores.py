"""Stores that a test opens by itself are closed at its end; those that Lyra opens, Lyra has to close.

A connection that is dropped without being closed is an error of the test after which it went, with the test and the
lines that made it; Python 3.13 warns of them too, some time later and without a word of where they are from.
The records of stores that went with the folder of a test are removed: a user has few of them, and Lyra looks at each
when there are more than a thousand.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from lyra.store import standing
from lyra.store.sqlite import SqliteStore

_FRAMES = 14
_COLLECTED_EACH = 500  # tests: a collection goes through all that a worker has imported, up to half a second
_opened: list[SqliteStore] = []
_recorded: list[tuple[str, str]] = []  # the file of a record, and the place that it is about
_dropped: list[str] = []  # connections that went without being closed
_test = ""
_count = 0
_connect = sqlite3.connect
_open = SqliteStore.__init__
_record = standing._write_record


class _Connection(sqlite3.Connection):
    """Remembers where it was made, and tells when it goes without having been closed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._is_closed = False
        super().__init__(*args, **options)
        lines: list[str] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and len(lines) < _FRAMES:
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
            frame = frame.f_back
        self._made = (_test, os.getpid(), lines)

    def close(self) -> None:
        self._is_closed = True
        super().close()

    def __del__(self) -> None:
        test, process, lines = getattr(self, "_made", ("", 0, []))
        if not self._is_closed and process == os.getpid():
            _dropped.append(f"{test or 'no test'} made a connection that was not closed:\n  " + "\n  ".join(lines))


def _connecting(*args: Any, **options: Any) -> sqlite3.Connection:
    connection: sqlite3.Connection = _connect(*args, **{"factory": _Connection, **options})
    return connection


def _opening(store: SqliteStore, *args: Any, **kwargs: Any) -> None:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("lyra.store"):
        frame = frame.f_back
    _open(store, *args, **kwargs)
    if frame.f_globals.get("__name__", "").startswith("tests."):
        _opened.append(store)


def _recording(name: str, known: Any) -> None:
    _record(name, known)
    path = standing._record_path(name)
    if path is not None:
        _recorded.append((str(path), known.location))


sqlite3.connect = _connecting  # type: ignore[assignment]
SqliteStore.__init__ = _opening  # type: ignore[method-assign, assignment]
standing._write_record = _recording


def pytest_runtest_logstart(nodeid: str) -> None:
    global _test, _count
    _test, _count = nodeid, _count + 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """After the fixtures, which may still use them."""
    result = yield
    while _opened:
        _opened.pop().close()
    while _recorded:
        path, place = _recorded.pop()
        if place.startswith("/") and not os.path.lexists(place):
            with suppress(OSError):
                os.unlink(path)
    if _count % _COLLECTED_EACH == 0 or nextitem is None:  # None: the last test of its worker
        gc.collect()
    if _dropped:
        message = "\n".join(_dropped)
        _dropped.clear()
        pytest.fail(message, pytrace=False)
    return result
