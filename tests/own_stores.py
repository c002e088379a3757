"""Stores that a test opens by itself are closed at its end; those that Lyra opens, Lyra has to close.

Python 3.13 warns of a connection that is dropped without being closed, and warnings are errors here.
The records of stores that went with the folder of a test are removed: a user has few of them, and Lyra looks at each
when there are more than a thousand.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from lyra.store import standing
from lyra.store.sqlite import SqliteStore

_opened: list[SqliteStore] = []
_recorded: list[tuple[str, str]] = []  # the file of a record, and the place that it is about
_open = SqliteStore.__init__
_record = standing._write_record


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


SqliteStore.__init__ = _opening  # type: ignore[method-assign, assignment]
standing._write_record = _recording


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """After the fixtures, which may still use them."""
    result = yield
    while _opened:
        _opened.pop().close()
    while _recorded:
        path, place = _recorded.pop()
        if place.startswith("/") and not os.path.lexists(place):
            with suppress(OSError):
                os.unlink(path)
    return result
