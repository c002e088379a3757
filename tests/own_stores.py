"""Stores that a test opens by itself are closed at its end; those that Lyra opens, Lyra has to close.

Python 3.13 warns of a connection that is dropped without being closed, and warnings are errors here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from lyra.store.sqlite import SqliteStore

_opened: list[SqliteStore] = []
_open = SqliteStore.__init__


def _opening(store: SqliteStore, *args: Any, **kwargs: Any) -> None:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("lyra.store"):
        frame = frame.f_back
    _open(store, *args, **kwargs)
    if frame.f_globals.get("__name__", "").startswith("tests."):
        _opened.append(store)


SqliteStore.__init__ = _opening  # type: ignore[method-assign, assignment]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """After the fixtures, which may still use them."""
    result = yield
    while _opened:
        _opened.pop().close()
    return result
