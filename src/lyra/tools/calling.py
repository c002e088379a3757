"""One call of a tool, made the same way by everybody who makes one: an agent's turn, a registry, a middleware.

`invoke` runs a function that is not async in a thread, with the context of its caller. What is no ordinary error (a
tool that cancels itself, exits, or ends an iteration that nobody iterates) becomes a ToolError of that one call; a
cancellation that came from outside goes on its way. Checks nothing: arguments are checked by the tool, rights before.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from lyra.core.tool import Tool, ToolCall
from lyra.errors import ConfigError, ToolError

__all__ = ["calling", "contained", "invoke"]

_THREADS: Final = 64  # for functions that block, where the caller has no threads of its own; they wait, mostly

# The call that is being made: whoever stands between a model and a tool finds its id here.
calling: Final[ContextVar[ToolCall | None]] = ContextVar("lyra_calling", default=None)
_threads: Final[ContextVar[Executor | None]] = ContextVar("lyra_threads", default=None)


async def invoke(tool: Tool, arguments: dict[str, Any], *, threads: Executor | None = None) -> Any:
    """What the tool gives; `threads` also serve the calls that are made inside of this one."""
    run = tool.run
    if run is None:
        raise ConfigError(f"tool {tool.name!r} has nothing to run", key="run")
    if threads is not None:
        _threads.set(threads)
    if getattr(run, "is_async", False) or asyncio.iscoroutinefunction(run):
        return await contained(tool, run(**arguments))
    inside = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    pool = _threads.get() or _own_threads()
    value = await loop.run_in_executor(pool, lambda: inside.run(_in_thread, tool, run, arguments))
    return await contained(tool, value) if asyncio.iscoroutine(value) else value


async def contained(tool: Tool, work: Awaitable[Any]) -> Any:
    """A tool that cancels or exits ends its own call; a cancellation that came from outside goes on its way."""
    task = asyncio.current_task()
    try:
        return await work
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() or asyncio.current_task() is not task:  # or the kernel closes it
            raise
        raise _own_end(tool, error) from error
    except SystemExit as error:
        raise _own_end(tool, error) from error


def _in_thread(tool: Tool, run: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """What is no ordinary error would be lost on its way out of a thread, or end more than this call."""
    try:
        return run(**arguments)
    except (StopIteration, StopAsyncIteration, asyncio.CancelledError, KeyboardInterrupt, SystemExit) as error:
        raise _own_end(tool, error) from error


def _own_end(tool: Tool, error: BaseException) -> ToolError:
    said = f"{type(error).__name__}({error})" if str(error) else type(error).__name__
    reason = "cancelled" if isinstance(error, asyncio.CancelledError) else "exec_failed"
    return ToolError(f"tool {tool.name} ended with {said}", tool=tool.name, reason=reason)


@cache
def _own_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="lyra-tool")
