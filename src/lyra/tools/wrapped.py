"""A Tool with middleware around it: each layer gets the call, and the result of the layers inside it.

    async def mw(call: ToolCall, next: Next) -> Any:
        output = await next(call)
        return output

`next` runs the rest; `next.tool` is the tool. The first layer is the outermost. Layers are inside the effect of the
call: they run once, where a replay takes the result from the journal. A tool that takes `ctx` is a part of its agent's
program and runs again on a replay, so only `pure` layers, which do not change its course, wrap it. Rights are checked
before, with the arguments that the model sent; where a layer changes them, they are checked again.
"""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import msgspec

from lyra.core.tool import PLAIN_FUNCTIONS, Tool, ToolCall, rights
from lyra.errors import ConfigError, ToolError

if TYPE_CHECKING:  # asyncio is imported with the first call: it takes longer than all that declares an agent
    from concurrent.futures import Executor, ThreadPoolExecutor


class Next:
    """The rest of the layers and then the tool: `await next(call)`."""

    __slots__ = ("_run", "tool")

    def __init__(self, tool: Tool, run: Callable[[ToolCall], Awaitable[Any]]) -> None:
        self.tool = tool
        self._run = run

    async def __call__(self, call: ToolCall) -> Any:
        given: object = call
        if not isinstance(given, ToolCall) or given.name != self.tool.name:
            raise ConfigError(f"a middleware of tool {self.tool.name!r} hands on {given!r}, not a call of it")
        return await self._run(call)


Middleware = Callable[[ToolCall, Next], Awaitable[Any]]


def check_middleware(value: Any) -> Middleware:
    if not callable(value) or not (
        inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None))  # noqa: B004
    ):
        raise ConfigError(
            f"{value!r} is not a middleware", hint="async def mw(call, next): return await next(call)", key="middleware"
        )
    middleware: Middleware = value
    return middleware


def pure(middleware: Middleware) -> Middleware:
    """Mark a layer that always runs the rest, once, and by itself changes nothing but the output: `@pure`."""
    _pure.add(check_middleware(middleware))
    return middleware


_pure: Final[WeakSet[Any]] = WeakSet()


def add_layers(tool: Tool, layers: Sequence[Middleware]) -> Tool:
    """Return the tool wrapped in the layers; without layers the tool itself."""
    if "ctx" in getattr(tool.run, "takes", ()):
        layers = [layer for layer in layers if layer in _pure]
    if not layers or tool.run is None:
        return tool
    return msgspec.structs.replace(tool, run=_Layered(tool, tuple(layers)))


class _Layered:
    """The function of a wrapped tool. It is async; a blocking function still runs in a thread."""

    __slots__ = ("_layers", "_tool", "function", "is_async", "rights", "takes")

    def __init__(self, tool: Tool, layers: tuple[Middleware, ...]) -> None:
        self._tool = tool
        self._layers = layers
        self.is_async = True
        self.takes: frozenset[str] = getattr(tool.run, "takes", frozenset())
        self.rights = getattr(tool.run, "rights", ())  # the rights that a YAML tool names
        self.function = getattr(tool.run, "function", tool.run)  # called when the Tool itself is called

    async def __call__(self, **arguments: Any) -> Any:
        hidden = {key: arguments.pop(key) for key in tuple(arguments) if key in self.takes}
        asked = calling.get()
        call_id = asked.id if asked is not None and asked.name == self._tool.name else ""
        call = ToolCall(call_id, self._tool.name, arguments)

        async def last(given: ToolCall) -> Any:
            if given.arguments != call.arguments:
                grant = rights.get()
                if grant is not None and self._tool.needs_of is not None:
                    for need in self._tool.needs_of(given.arguments):
                        grant.check(need)
            return await invoke(self._tool, {**given.arguments, **hidden})

        step = Next(self._tool, last)
        for layer in reversed(self._layers):
            step = Next(self._tool, _bind(layer, step))
        return await step(call)


def _bind(layer: Middleware, inner: Next) -> Callable[[ToolCall], Awaitable[Any]]:
    return lambda call: layer(call, inner)


# ---------------------------------------------------------------- calling
# One call of a tool; an agent's turn, a registry and a middleware all make it here.

_THREADS: Final = 64  # for blocking functions, if the caller passes no executor; they mostly wait

# The call that is being made, for middleware that needs its id.
calling: Final[ContextVar[ToolCall | None]] = ContextVar("lyra_calling", default=None)
_threads: Final[ContextVar[Executor | None]] = ContextVar("lyra_threads", default=None)


async def invoke(tool: Tool, arguments: dict[str, Any], *, threads: Executor | None = None) -> Any:
    """Return the result of the tool; `threads` also serve the calls that are made inside this one."""
    run = tool.run
    if run is None:
        raise ConfigError(f"tool {tool.name!r} has nothing to run", key="run")
    if isinstance(run, PLAIN_FUNCTIONS):
        from lyra.core.checking.schema import CheckedSchema  # few programs write a schema themselves

        try:
            CheckedSchema(tool.schema, f"tool {tool.name!r}", key="schema").check(arguments)
        except ValueError as misfit:
            message = f"bad arguments for {tool.name}: {misfit}"
            raise ToolError(message, tool=tool.name, reason="invalid_arguments") from None
    if threads is not None:
        _threads.set(threads)
    if getattr(run, "is_async", False) or inspect.iscoroutinefunction(run):
        return await contain(tool, run(**arguments))
    from asyncio import get_running_loop

    inside = contextvars.copy_context()
    loop = get_running_loop()
    pool = _threads.get() or _get_threads()
    value = await loop.run_in_executor(pool, lambda: inside.run(_in_thread, tool, run, arguments))
    return await contain(tool, value) if isinstance(value, Coroutine) else value


async def contain(tool: Tool, work: Awaitable[Any]) -> Any:
    """Await `work`. A tool that cancels itself or exits fails its own call; a cancellation from outside is passed
    on."""
    from asyncio import CancelledError, current_task

    task = current_task()
    try:
        return await work
    except CancelledError as error:
        if task is None or task.cancelling() or current_task() is not task:  # or the kernel closes it
            raise
        raise _make_end_error(tool, error) from error
    except SystemExit as error:
        raise _make_end_error(tool, error) from error


def _in_thread(tool: Tool, run: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Run in a thread. Exceptions that asyncio would lose, or that would end more than this call, become ToolErrors."""
    from asyncio import CancelledError

    try:
        return run(**arguments)
    except (StopIteration, StopAsyncIteration, CancelledError, KeyboardInterrupt, SystemExit) as error:
        raise _make_end_error(tool, error) from error


def _make_end_error(tool: Tool, error: BaseException) -> ToolError:
    error_text = f"{type(error).__name__}({error})" if str(error) else type(error).__name__
    from asyncio import CancelledError

    reason = "cancelled" if isinstance(error, CancelledError) else "exec_failed"
    return ToolError(f"tool {tool.name} ended with {error_text}", tool=tool.name, reason=reason)


@cache
def _get_threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="lyra-tool")
