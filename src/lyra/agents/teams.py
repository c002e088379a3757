"""Teams: several agents on one piece of work.

    await batch(coder.send_async("A"), coder.send_async("B"))       # results in call order
    await batch([(writer, "A"), (critic, "B")], limit=4)            # who is asked what
    await pipeline(writer, editor)("Write about bees")              # each answer is the next one's message
    await fan_in(await fan_out("Review this", reviewers), judge)
    await router(question, {"billing": billing, "tech": tech}, by=clerk)
    await map_reduce(files, summariser, editor)

A member is an Agent (a process is started for the question and stopped after it), an agent process, or a function of
the message, sync or async. `on` says where Agents run: in a Kernel, or in a program by its `ctx`, where they are child
processes and everything is durable; without it a kernel is made for the call. At most `limit` calls run at a time;
errors and cancellation are those of `gather_in_order`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Generic, Literal, Self, TypeAlias, TypeVar, overload

from lyra.agents.agent import Agent
from lyra.agents.declaration.output import content_of, text_of
from lyra.agents.helpers.task import ask_child
from lyra.agents.session.agent_handle import AgentHandle
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.open_questions import attend
from lyra.agents.session.replies import MarkedReply
from lyra.core.checking.check import check_integer
from lyra.core.hints import Out_co
from lyra.errors import AgentFailed, ConfigError
from lyra.kernel.kernel import Kernel
from lyra.kernel.programs.context import Context

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
F = TypeVar("F", bound=Callable[..., Any])
Asked: TypeAlias = "Agent[T] | AgentProcess[T] | Pipeline[T] | Callable[[Any], Awaitable[T]]"  # whom a team asks
Call: TypeAlias = "Awaitable[T] | Callable[[], Awaitable[T]]"
Place: TypeAlias = "Kernel | Context | None"

LIMIT: Final = 8  # calls at a time, unless the caller says otherwise
_NOTE_CHARS_MAX: Final = 200  # of a message that failed, in the note of the error


class _Members:
    """The place where agents run: a kernel, a program, or a kernel made for one call."""

    def __init__(self, on: Any) -> None:
        if not (on is None or isinstance(on, (Kernel, Context))):
            raise ConfigError(f"on is a Kernel or a program's ctx, not {type(on).__name__}", key="on")
        self._on = on
        self._kernel: Kernel | None = on if isinstance(on, Kernel) else None
        self._open = AsyncExitStack()
        self._marked = False  # a member has read text from outside; later members are tainted by its answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def start(self, targets: Iterable[Any]) -> None:
        """Open a kernel if one is needed."""
        if self._on is None and self._kernel is None and any(_needs_kernel(target) for target in targets):
            self._kernel = await self._open.enter_async_context(Kernel())
            attend(self._kernel, None)

    async def ask(self, target: Any, message: Any) -> Any:
        if isinstance(target, Agent):
            content = content_of(_sayable(message))
            if isinstance(self._on, Context):
                return await ask_child(self._on, target, content)
            assert self._kernel is not None
            process = await self._kernel.spawn(target)
            try:
                return await self._send(process, message, content)
            finally:
                await process.stop()
        if isinstance(target, AgentProcess):
            return await self._send(target, message, _sayable(message))
        if isinstance(target, Pipeline):
            return await target.through(self, message)
        if isinstance(target, AgentHandle):  # an agent process on another shard
            return await self._ask_abroad(target, _sayable(message))
        value = _callable(target)(message)
        return await value if inspect.isawaitable(value) else value

    async def _ask_abroad(self, target: Any, content: Any) -> Any:
        if self._marked:
            content = MarkedReply(text_of(content))
        answer = await (target.ask(self._on, content) if isinstance(self._on, Context) else target.send(content))
        self._marked = self._marked or isinstance(answer, MarkedReply)
        return answer

    async def _send(self, process: AgentProcess, message: Any, content: Any) -> Any:
        taint, pid = process.kernel.taint, process._process.pid
        if self._marked or getattr(message, "tainted", False):
            taint.mark(pid, "an agent's answer")
        try:
            return await process.send(content)
        finally:
            self._marked = self._marked or taint.is_tainted(pid)


def _needs_kernel(target: Any) -> bool:
    return isinstance(target, Agent) or (isinstance(target, Pipeline) and any(map(_needs_kernel, target.stages)))


def _callable(target: Any) -> Callable[[Any], Any]:
    if isinstance(target, (Agent, AgentProcess, Pipeline)) or not callable(target):
        raise ConfigError(f"{target!r} cannot be asked", hint="give an Agent, an agent process or a function")
    function: Callable[[Any], Any] = target
    return function


def _check(target: Any) -> Any:
    if not isinstance(target, (Agent, AgentProcess, Pipeline, AgentHandle)):
        _callable(target)
    return target


def _sayable(message: Any) -> Any:
    """Return an answer as a message: text, an Image and lists of both as they are, anything else as JSON."""
    try:
        content_of(message)
    except ConfigError:
        return text_of(message)
    return message


# ---------------------------------------------------------------------- together


# As in `asyncio.gather`, the results of a few calls are a tuple to type checkers, each with its own type.
@overload
def parallel(*, limit: int | None = None) -> _NoCalls: ...
@overload
def parallel(function: F, /) -> F: ...
@overload
def parallel(first: Call[T1], /, *, limit: int | None = None) -> Coroutine[Any, Any, list[T1]]: ...
@overload
def parallel(
    first: Call[T1], second: Call[T2], /, *, limit: int | None = None
) -> Coroutine[Any, Any, tuple[T1, T2]]: ...
@overload
def parallel(
    first: Call[T1], second: Call[T2], third: Call[T3], /, *, limit: int | None = None
) -> Coroutine[Any, Any, tuple[T1, T2, T3]]: ...
@overload
def parallel(
    first: Call[T1], second: Call[T2], third: Call[T3], fourth: Call[T4], /, *, limit: int | None = None
) -> Coroutine[Any, Any, tuple[T1, T2, T3, T4]]: ...
@overload
def parallel(
    first: Call[T],
    second: Call[T],
    third: Call[T],
    fourth: Call[T],
    fifth: Call[T],
    /,
    *more: Call[T],
    limit: int | None = None,
) -> Coroutine[Any, Any, list[T]]: ...
def parallel(*works: Any, limit: int | None = None) -> Any:
    """Return the results of awaitables (or functions that give one), in their order; all at once, or `limit` at a time.

    As a decorator, `@lyra.parallel`, the same function with its agent calls made side by side: those that are awaited
    one after another and do not need each other (see docs/how-to/parallel-python.md).
    """
    if not works:
        return _NoCalls(limit)
    if len(works) == 1 and limit is None and _is_decorated(works[0]):
        from lyra.agents.parallel.source.source import parallel_function

        return parallel_function(works[0])
    return gather_in_order(works, limit=limit)


def _is_decorated(work: Any) -> bool:
    """Return whether `parallel(work)` is a decorator's use and not a list of one call: calls are lambdas and
    partials."""
    if isinstance(work, (type, staticmethod, classmethod, property)):
        return True
    return inspect.isfunction(work) and work.__name__ != "<lambda>"


class _NoCalls(Coroutine[Any, Any, list[Any]]):
    """`parallel()`: awaited, the results of no calls; called with a function, the decorator."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._results = gather_in_order((), limit=limit)

    def __call__(self, function: F) -> F:
        self._results.close()
        if self._limit is not None:
            raise ConfigError("@lyra.parallel takes no limit=", hint="write @lyra.parallel alone", key="limit")
        from lyra.agents.parallel.source.source import parallel_function

        rewritten: F = parallel_function(function)
        return rewritten

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        return self._results.__await__()

    def send(self, value: Any) -> Any:
        return self._results.send(value)

    def throw(self, *error: Any) -> Any:
        return self._results.throw(*error)

    def close(self) -> None:
        self._results.close()


@overload
async def batch(
    *calls: Call[T], limit: int = ..., on: Place = ..., return_exceptions: Literal[False] = ...
) -> list[T]: ...
@overload
async def batch(
    *calls: tuple[Asked[T], Any], limit: int = ..., on: Place = ..., return_exceptions: Literal[False] = ...
) -> list[T]: ...
@overload
async def batch(
    calls: Iterable[Call[T]], /, *, limit: int = ..., on: Place = ..., return_exceptions: Literal[False] = ...
) -> list[T]: ...
@overload
async def batch(
    calls: Iterable[tuple[Asked[T], Any]],
    /,
    *,
    limit: int = ...,
    on: Place = ...,
    return_exceptions: Literal[False] = ...,
) -> list[T]: ...
@overload
async def batch(*calls: Call[T], limit: int = ..., on: Place = ..., return_exceptions: bool) -> list[T | Exception]: ...
@overload
async def batch(
    *calls: tuple[Asked[T], Any], limit: int = ..., on: Place = ..., return_exceptions: bool
) -> list[T | Exception]: ...
@overload
async def batch(
    calls: Iterable[Call[T]], /, *, limit: int = ..., on: Place = ..., return_exceptions: bool
) -> list[T | Exception]: ...
@overload
async def batch(
    calls: Iterable[tuple[Asked[T], Any]], /, *, limit: int = ..., on: Place = ..., return_exceptions: bool
) -> list[T | Exception]: ...
@overload
async def batch(*calls: Any, limit: int = ..., on: Place = ..., return_exceptions: bool = ...) -> list[Any]: ...
async def batch(*calls: Any, limit: int = LIMIT, on: Place = None, return_exceptions: bool = False) -> list[Any]:
    """Return the results of many calls, in call order: awaitables, functions of no argument, or pairs (member,
    message).

    A call that fails ends the batch with its error, which names the call in a note and in `error.call`; the results
    that were there by then are in `error.results`, by the number of their call. With `return_exceptions` every call
    is made, and the error of one stands in the list in its place; a cancellation is raised all the same.
    """
    if len(calls) == 1 and not _is_call(calls[0]):
        calls = tuple(calls[0])
    async with _Members(on) as members:
        await members.start(call[0] for call in calls if isinstance(call, tuple))
        works = [_work(members, call) for call in calls]
        return await gather_in_order(works, limit=limit, return_exceptions=return_exceptions)


def _is_call(value: Any) -> bool:
    return inspect.isawaitable(value) or callable(value) or (isinstance(value, tuple) and len(value) == 2)


def _work(members: _Members, call: Any) -> Any:
    if not isinstance(call, tuple):
        return call
    if len(call) != 2:
        raise ConfigError(f"a call is a pair of whom to ask and the message, not {call!r}")
    target, message = call
    _check(target)

    async def ask() -> Any:
        try:
            return await members.ask(target, message)
        except Exception as error:
            asked = text_of(message)
            shown = asked if len(asked) <= _NOTE_CHARS_MAX else f"{asked[:_NOTE_CHARS_MAX]}…"
            name = getattr(target, "name", None) or repr(target)
            error.add_note(f"{name} was asked: {shown}")
            raise

    return ask


@overload
async def fan_out(message: Any, agents: Iterable[Asked[T]], *, limit: int = ..., on: Place = ...) -> list[T]: ...
@overload
async def fan_out(message: Any, agents: Iterable[Any], *, limit: int = ..., on: Place = ...) -> list[Any]: ...
async def fan_out(message: Any, agents: Iterable[Any], *, limit: int = LIMIT, on: Place = None) -> list[Any]:
    """Send one message to all of them, and return their answers in their order."""
    calls: list[Any] = [(agent, message) for agent in agents]
    return await batch(calls, limit=limit, on=on)


@overload
async def fan_in(results: Iterable[Any], agent: Asked[T], *, task: str = ..., on: Place = ...) -> T: ...
@overload
async def fan_in(results: Iterable[Any], agent: Callable[[Any], T], *, task: str = ..., on: Place = ...) -> T: ...
async def fan_in(results: Iterable[Any], agent: Any, *, task: str = "Put these together.", on: Place = None) -> Any:
    """One answer out of many: an agent gets them in one message after `task`; a function gets the list."""
    results = list(results)
    async with _Members(on) as members:
        await members.start([_check(agent)])
        plain = not isinstance(agent, (Agent, AgentProcess, Pipeline, AgentHandle))
        return await members.ask(agent, results if plain else _join(task, results))


def _join(task: str, results: list[Any]) -> str:
    parts = [f"{number}.\n{text_of(result)}" for number, result in enumerate(results, 1)]
    return _mark_like("\n\n".join([task, *parts]), results)


def _mark_like(text: str, sources: Iterable[Any]) -> str:
    """Return the text, marked as tainted where one of its sources is."""
    return MarkedReply(text) if any(isinstance(source, MarkedReply) for source in sources) else text


@overload
async def map_reduce(
    items: Iterable[Any], mapper: Any, reducer: Asked[T], *, limit: int = ..., on: Place = ...
) -> T: ...
@overload
async def map_reduce(
    items: Iterable[Any], mapper: Any, reducer: Callable[[Any], T], *, limit: int = ..., on: Place = ...
) -> T: ...
async def map_reduce(items: Iterable[Any], mapper: Any, reducer: Any, *, limit: int = LIMIT, on: Place = None) -> Any:
    """`mapper` is asked for each item, `reducer` once with all of its answers (see `fan_in`)."""
    async with _Members(on) as members:
        await members.start([_check(mapper), _check(reducer)])
        mapped = await gather_in_order([_work(members, (mapper, item)) for item in items], limit=limit)
        plain = not isinstance(reducer, (Agent, AgentProcess, Pipeline, AgentHandle))
        return await members.ask(reducer, mapped if plain else _join("Put these together.", mapped))


# ---------------------------------------------------------------------- one after the other


class Pipeline(Generic[Out_co]):
    """Stages in a row; the last one gives an `Out_co`. Call it with a message; it can be a stage itself."""

    def __init__(self, stages: tuple[Any, ...], on: Place) -> None:
        self.stages = stages
        self._on = on

    async def __call__(self, message: Any, *, on: Place = None) -> Out_co:
        """Return the last stage's answer."""
        async with _Members(on if on is not None else self._on) as members:
            await members.start(self.stages)
            return await self.through(members, message)

    async def through(self, members: _Members, message: Any) -> Out_co:
        for stage in self.stages:
            message = await members.ask(stage, message)
        answer: Out_co = message
        return answer

    def __repr__(self) -> str:
        return f"<Pipeline of {len(self.stages)}>"


@overload
def pipeline(*stages: *tuple[*tuple[Any, ...], Asked[T]], on: Place = ...) -> Pipeline[T]: ...
@overload
def pipeline(*stages: *tuple[*tuple[Any, ...], Callable[[Any], T]], on: Place = ...) -> Pipeline[T]: ...
def pipeline(*stages: Any, on: Place = None) -> Pipeline[Any]:  # type: ignore[misc]  # *stages is any tuple
    """Each answer is the next one's message."""
    if not stages:
        raise ConfigError("a pipeline has at least one stage")
    return Pipeline(tuple(_check(stage) for stage in stages), on)


# ---------------------------------------------------------------------- one of several


@overload
async def router(
    message: Any, routes: Mapping[str, Asked[T]], *, by: Any, default: str | None = ..., on: Place = ...
) -> T: ...
@overload
async def router(
    message: Any, routes: Mapping[str, Any], *, by: Any, default: str | None = ..., on: Place = ...
) -> Any: ...
async def router(
    message: Any, routes: Mapping[str, Any], *, by: Any, default: str | None = None, on: Place = None
) -> Any:
    """Return the answer of the route that `by` chooses: a function of the message that gives its name, or an agent who
    is asked for it. A choice that is no route takes `default`; without one it is an AgentFailed."""
    if not routes or (default is not None and default not in routes):
        raise ConfigError(f"routes are {', '.join(routes) or 'none'}; the default is {default!r}", key="routes")
    async with _Members(on) as members:
        await members.start([_check(by), *(_check(target) for target in routes.values())])
        chosen = await _choice(members, message, routes, by)
        if chosen not in routes:
            if default is None:
                raise AgentFailed(
                    f"there is no route {chosen!r}; there are: {', '.join(routes)}", status="no_route", choice=chosen
                )
            chosen = default
        return await members.ask(routes[chosen], message)


async def _choice(members: _Members, message: Any, routes: Mapping[str, Any], by: Any) -> str:
    if not isinstance(by, (Agent, AgentProcess, AgentHandle)):
        return str(await members.ask(by, message))
    described = "\n".join(f"- {name}{_about(target)}" for name, target in routes.items())
    question = (
        f"Who should answer the message below? Choose one of these and say its name, nothing else:\n{described}"
        f"\n\nMessage:\n{text_of(message) if not isinstance(message, list) else message}"
    )
    answer = str(await members.ask(by, _mark_like(question, [message]))).strip().strip("`'\".").lower()
    return next((name for name in routes if name.lower() == answer), answer)


def _about(target: Any) -> str:
    return f": {target.description}" if isinstance(target, Agent) and target.description else ""


# ---------------------------------------------------------------- ordered gather
# Runs many calls at once and gives their results in order; teams of agents run all their calls by it.

_NO_RESULT: Final = object()

Work = Awaitable[Any] | Callable[[], Any]


async def gather_in_order(works: Sequence[Work], *, limit: int | None, return_exceptions: bool = False) -> list[Any]:
    """Return the results in the order of `works`: awaitables, or functions of no argument that give one (or a value).

    With `return_exceptions` the error of a call is its result, and the other calls are made all the same.
    """
    try:
        _check_gathered(works, limit)
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


def _check_gathered(works: Sequence[Work], limit: int | None) -> None:
    if limit is not None:
        check_integer(limit, "limit", least=1)
    seen: set[int] = set()
    for index, work in enumerate(works):
        if inspect.iscoroutine(work):
            if id(work) in seen:
                raise ConfigError(f"call {index} is the coroutine of an earlier call", hint="make one for each call")
            seen.add(id(work))
        if not inspect.isawaitable(work) and not callable(work):
            raise ConfigError(f"call {index} is {work!r}, which cannot be awaited or called")


class _Gathering:
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
                work = self._works[index]
                value = work if inspect.isawaitable(work) else work()
                self.results[index] = await value if inspect.isawaitable(value) else value
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Not this call was cancelled, but something that it waited for.
                self._on_failure(index, AgentFailed(f"call {index} was cancelled", status="cancelled"))
            except Exception as error:  # noqa: BLE001 - raised at the end, if it is the first
                self._on_failure(index, error)

    def _on_failure(self, index: int, error: BaseException) -> None:
        if self._returns_errors:
            self.results[index] = error
            return
        if index > self.first_failed:
            return
        self.first_failed, self.error = index, error
        for task in self.tasks[index + 1 :]:
            task.cancel()


def _discard(work: Any) -> None:
    """Close a coroutine that will not run, so that Python does not warn of it; give up a pending answer."""
    if inspect.iscoroutine(work):
        work.close()
    elif hasattr(work, "cancel"):
        work.cancel()
