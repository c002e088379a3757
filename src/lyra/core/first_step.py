"""Awaiting something whose first step was taken by hand.

A caller runs an awaitable up to its first wait to see whether it waits at all, and starts a timer only if it does.
`await_rest` awaits what is left, in the task of the caller.
"""

from __future__ import annotations

from collections.abc import Generator
from types import coroutine
from typing import Any


@coroutine
def await_rest(steps: Generator[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    """Await `steps`, the iterator of an awaitable, which waits for `waits_for` since its first step."""
    while True:
        try:
            yield waits_for
        except GeneratorExit:
            if hasattr(steps, "close"):
                steps.close()
            raise
        except BaseException as error:
            if not hasattr(steps, "throw"):  # a bare iterator: it cannot handle anything
                raise
            try:
                waits_for = steps.throw(error)
            except StopIteration as done:
                return done.value
        else:
            return (yield from steps)
