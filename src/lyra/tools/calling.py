"""One call of a tool; an agent's turn, a registry and a middleware all make it here.

`invoke` runs a function that is not async in a thread, with the context of its caller. An exception that is no ordinary
error (a tool that cancels itself, exits, or raises StopIteration) becomes a ToolError of that call; a cancellation from
outside is passed on. Arguments are checked here for a function that was given to `Tool` as it is; other tools check
theirs, and the caller checks the rights.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from lyra.core.tool import PLAIN_FUNCTIONS, Tool, ToolCall
from lyra.errors import ConfigError, ToolError

_THREADS: Final = 64  # for blocking functions, if the caller passes no executor; they mostly wait

# The call that is being made, for middleware that needs its id.
calling: Final[ContextVar[ToolCall | None]] = ContextVar("lyra_calling", default=None)
_threads: Final[ContextVar[Executor | None]] = ContextVar("lyra_threads", default=None)


async def invoke(tool: Tool, arguments: dict[str, Any], *, threads: Executor | None = None) -> Any:
    """The result of the tool; `threads` also serve the calls that are made inside this one."""
    run = tool.run
    if run is None:
        raise ConfigError(f"tool {tool.name!r} has nothing to run", key="run")
    if isinstance(run, PLAIN_FUNCTIONS):
        from lyra.core.checking.schema_subset import CheckedSchema  # few programs write a schema themselves

        try:
            CheckedSchema(tool.schema, f"tool {tool.name!r}", key="schema").check(arguments)
        except ValueError as misfit:
            message = f"bad arguments for {tool.name}: {misfit}"
            raise ToolError(message, tool=tool.name, reason="invalid_arguments") from None
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
    """Await `work`. A tool that cancels itself or exits fails its own call; a cancellation from outside is passed
    on."""
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
    """Run in a thread. Exceptions that asyncio would lose, or that would end more than this call, become ToolErrors."""
    try:
        return run(**arguments)
    except (StopIteration, StopAsyncIteration, asyncio.CancelledError, KeyboardInterrupt, SystemExit) as error:
        raise _own_end(tool, error) from error


def _own_end(tool: Tool, error: BaseException) -> ToolError:
    error_text = f"{type(error).__name__}({error})" if str(error) else type(error).__name__
    reason = "cancelled" if isinstance(error, asyncio.CancelledError) else "exec_failed"
    return ToolError(f"tool {tool.name} ended with {error_text}", tool=tool.name, reason=reason)


@cache
def _own_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="lyra-tool")
