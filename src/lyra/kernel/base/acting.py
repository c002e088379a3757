"""Acting: which process makes the call that runs now, and whether its Grant allows it.

A Grant binds what a process does, also where a call names no process: `kernel.bus.publish(…)` in a program, a tool or a
handler. The process that runs here is the one that the kernel steps, or the one that the context names: a process with
a limited Grant, or with a mark of text from outside, is in its own context, which every task and thread that it starts
copies. Code outside any process (the embedding Python program) acts for the kernel itself and is not checked; what it
starts is narrowed by the kernel's own Grant.

A function that is handed in to be called later (a subscriber, a listener, a handler) acts for the process that handed
it in, not for the one whose call makes it run: see `as_registered`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar
from functools import wraps
from inspect import iscoroutine
from typing import Any, Final

from lyra.errors import CapabilityDenied, error_to_data

_OUTSIDE: Final = "outside"
# `asyncio.current_task` is written in C from 3.12 on; before, a look at the table behind it costs a third.
task_of: Final[Callable[[Any], Any]] = (
    asyncio.current_task if sys.version_info >= (3, 12) else asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]
)
# The Process whose program, tool or handler runs here, or _OUTSIDE; None where the stepped process says it.
_named: Final[ContextVar[Any]] = ContextVar("lyra_acting", default=None)


def acting() -> Any:
    """Return the process that runs here; None outside any."""
    named = _named.get()
    if named is not None:
        return None if named is _OUTSIDE else named
    loop = asyncio._get_running_loop()
    if loop is None:
        return None
    task = task_of(loop)
    return task if getattr(task, "stepping", False) else None  # a process is a task of the kernel's own


def act_as(process: Any) -> None:
    """From here on, what this context and its copies do is done by the process."""
    _named.set(process)


def name_in(context: Context, process: Any) -> None:
    """Name a process in its context. Of one with all rights only what was copied is corrected: to name each costs a
    tenth of its start."""
    if not process.grant.is_all or context.get(_named) is not None:
        context.run(_named.set, process)


def require(verb: str, *names: str, implied: bool = False) -> None:
    """Raise CapabilityDenied if the process that runs here may not do this to the thing that goes by these names."""
    process = acting()
    if process is not None and not process.grant.is_all:
        check_right(process, verb, names, implied=implied)


def require_signal(pid: Any) -> None:
    """Raise CapabilityDenied if the process that runs here may not direct the process, entry or pipeline with this pid:
    end it, answer for it, report its results, change its quota. Its own it may; `kernel` is the kernel itself."""
    process = acting()
    if process is not None and not process.grant.is_all and isinstance(pid, str):
        check_right(process, "process.send", (pid,), implied=process.pid == pid)


def check_right(process: Any, verb: str, names: tuple[str, ...], *, implied: bool = False) -> None:
    """Check the right of a process that is known. A refusal is an Event, too."""
    if process.grant.is_all:
        return
    try:
        process.grant.check_any(verb, names, implied=implied)
    except CapabilityDenied as refusal:
        process.core.publish(process.pid, "capability.denied", {"effect": verb, "error": error_to_data(refusal)})
        raise


def as_registered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as a part of the process that hands it in, or of the outside, wherever it is called."""
    owner = acting() or _OUTSIDE

    @wraps(function, updated=())
    def call(*args: Any) -> Any:
        if _named.get() is owner:
            return function(*args)
        token = _named.set(owner)
        try:
            result = function(*args)
        finally:
            _named.reset(token)
        return _await_as(owner, result) if result is not None and iscoroutine(result) else result

    return call


async def _await_as(owner: Any, work: Any) -> Any:
    token = _named.set(owner)
    try:
        return await work
    finally:
        with suppress(ValueError):  # closed from another context, which this one's process must not be named in
            _named.reset(token)
