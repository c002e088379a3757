"""Runs many calls at once and gives their results in order; teams of agents run all their calls by it.

At most `limit` run at a time, begun in order. When one fails, those after it are cancelled (or never begun); those
before it go on, because the error that is raised is the first in call order, not the first by the clock. So the
outcome is that of running them one after the other, on every run and on every replay. The error says which call it was
(`error.call`, and a note) and has the results that were there by then (`error.results`, by the number of the call).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from lyra.core.checking.check import whole
from lyra.errors import AgentFailed, ConfigError

_NO_RESULT: Final = object()

Work = Awaitable[Any] | Callable[[], Any]


async def ordered_gather(works: Sequence[Work], *, limit: int | None, return_exceptions: bool = False) -> list[Any]:
    """Return the results in the order of `works`: awaitables, or functions of no argument that give one (or a value).

    With `return_exceptions` the error of a call is its result, and the other calls are made all the same.
    """
    try:
        _check(works, limit)
    except ConfigError:
        for work in works:
            _discard(work)
        raise
    run = _Gathering(works, limit if limit is not None else max(1, len(works)), return_exceptions)
    try:
        async with asyncio.TaskGroup() as group:
            for index in range(len(works)):
                run.tasks.append(group.create_task(run.call(index)))
    finally:
        for index in range(len(works)):
            if not run.begun[index]:
                _discard(works[index])
    if run.error is not None:
        run.error.add_note(f"call {run.first_failed} of {len(works)} failed (the first is call 0)")
        results = {index: value for index, value in enumerate(run.results) if value is not _NO_RESULT}
        vars(run.error).update(call=run.first_failed, results=results)
        raise run.error
    return run.results


def _check(works: Sequence[Work], limit: int | None) -> None:
    if limit is not None:
        whole(limit, "limit", least=1)
    seen: set[int] = set()
    for index, work in enumerate(works):
        if inspect.iscoroutine(work):
            if id(work) in seen:
                raise ConfigError(f"call {index} is the coroutine of an earlier call", hint="make one for each call")
            seen.add(id(work))
        if not inspect.isawaitable(work) and not callable(work):
            raise ConfigError(f"call {index} is {work!r}, which cannot be awaited or called")


class _Gathering:
    __slots__ = ("_places", "_returns_errors", "_works", "begun", "error", "first_failed", "results", "tasks")

    def __init__(self, works: Sequence[Work], limit: int, returns_errors: bool) -> None:
        self._returns_errors = returns_errors
        self._works = works
        self._places = asyncio.Semaphore(limit)
        self.first_failed = len(works)
        self.begun = [False] * len(works)
        self.results: list[Any] = [_NO_RESULT] * len(works)
        self.error: BaseException | None = None
        self.tasks: list[asyncio.Task[None]] = []

    async def call(self, index: int) -> None:
        async with self._places:
            if index > self.first_failed:
                return
            self.begun[index] = True
            try:
                self.results[index] = await _value(self._works[index])
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Not this call was cancelled, but something that it waited for.
                self._failed(index, AgentFailed(f"call {index} was cancelled", status="cancelled"))
            except Exception as error:  # noqa: BLE001 - raised at the end, if it is the first
                self._failed(index, error)

    def _failed(self, index: int, error: BaseException) -> None:
        if self._returns_errors:
            self.results[index] = error
            return
        if index > self.first_failed:
            return
        self.first_failed, self.error = index, error
        for task in self.tasks[index + 1 :]:
            task.cancel()


async def _value(work: Work) -> Any:
    value = work if inspect.isawaitable(work) else work()
    return await value if inspect.isawaitable(value) else value


def _discard(work: Any) -> None:
    """Close a coroutine that will not run, so that Python does not warn of it; give up a pending answer."""
    if inspect.iscoroutine(work):
        work.close()
    elif hasattr(work, "cancel"):
        work.cancel()
