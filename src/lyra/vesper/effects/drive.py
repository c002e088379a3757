"""Runs a coroutine whose effects answer at once, without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result. RuntimeError if it waits for anything: its effects belong to an event loop then."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("an effect did not answer at once; await this program on an event loop")
