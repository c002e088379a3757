"""Orchestration: several agents on one piece of work.

    await batch(coder.send_async("A"), coder.send_async("B"))       # results in call order
    await batch([(writer, "A"), (critic, "B")], limit=4)            # who is asked what
    await pipeline(writer, editor)("Write about bees")              # each answer is the next one's message
    await fan_in(await fan_out("Review this", reviewers), judge)
    await router(question, {"billing": billing, "tech": tech}, by=clerk)
    await map_reduce(files, summariser, editor)

Whoever is asked is an Agent (a process is started for the question and stopped after it), an agent process, or a
function of the message, sync or async. `on` says where Agents live: a Kernel, or a program's `ctx`, where they are
child processes and everything is durable; without it a kernel of its own lives as long as the call. Concurrency is
bounded by `limit`; errors and cancellation are `in_order`'s.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self

from lyra.agents.declaration.agent import Agent
from lyra.agents.declaration.content import content_of
from lyra.agents.helpers.delegate import ask_child, text_of
from lyra.agents.ordered_gather import in_order
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.replies import MarkedReply
from lyra.errors import AgentFailed, ConfigError
from lyra.kernel.kernel import Kernel
from lyra.kernel.programs.context import Context

__all__ = ["Pipeline", "batch", "fan_in", "fan_out", "map_reduce", "parallel", "pipeline", "router"]

LIMIT: Final = 8  # calls at a time, where nothing else is said


class _Desk:
    """Where agents are asked: in a kernel, in a program, or in a kernel made for the purpose."""

    __slots__ = ("_kernel", "_marked", "_on", "_open")

    def __init__(self, on: Any) -> None:
        if not (on is None or isinstance(on, (Kernel, Context))):
            raise ConfigError(f"on is a Kernel or a program's ctx, not {type(on).__name__}", key="on")
        self._on = on
        self._kernel: Kernel | None = on if isinstance(on, Kernel) else None
        self._open = AsyncExitStack()
        self._marked = False  # one of those who were asked has read text from outside; the others hear of it

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
        value = _callable(target)(message)
        return await value if inspect.isawaitable(value) else value

    async def _send(self, process: AgentProcess, message: Any, content: Any) -> Any:
        taint, pid = process._kernel.taint, process._process.pid
        if self._marked or getattr(message, "tainted", False):
            taint.mark(pid, "an agent's answer")
        try:
            return await process.send(content)
        finally:
            self._marked = self._marked or taint.tainted(pid)


def _needs_kernel(target: Any) -> bool:
    return isinstance(target, Agent) or (isinstance(target, Pipeline) and any(map(_needs_kernel, target.stages)))


def _callable(target: Any) -> Callable[[Any], Any]:
    if isinstance(target, (Agent, AgentProcess, Pipeline)) or not callable(target):
        raise ConfigError(f"{target!r} cannot be asked", hint="give an Agent, an agent process or a function")
    found: Callable[[Any], Any] = target
    return found


def _check(target: Any) -> Any:
    if not isinstance(target, (Agent, AgentProcess, Pipeline)):
        _callable(target)
    return target


def _sayable(message: Any) -> Any:
    """Text, an Image and lists of both are messages; any other answer is passed on as JSON."""
    try:
        content_of(message)
    except ConfigError:
        return text_of(message)
    return message


# ---------------------------------------------------------------------- together


def parallel(*works: Any, limit: int | None = None) -> Any:
    """The results of awaitables (or functions that give one), in their order; all at once, or `limit` at a time.

    As a decorator, `@lyra.parallel`, the same function with its agent calls made side by side: those that are awaited
    one after another and do not need each other (see docs/how-to/parallel-python.md).
    """
    if not works:
        return _NoCalls(limit)
    if len(works) == 1 and limit is None and _is_decorated(works[0]):
        from lyra.agents.parallel.source.source import overlapping

        return overlapping(works[0])
    return in_order(works, limit=limit)


def _is_decorated(work: Any) -> bool:
    """What stands below the decorator, and not one call alone: of a list of calls may be one left, and that is a lambda
    or a `partial` then."""
    if isinstance(work, (type, staticmethod, classmethod, property)):
        return True
    return inspect.isfunction(work) and work.__name__ != "<lambda>"


class _NoCalls(Coroutine[Any, Any, list[Any]]):
    """`parallel()`: the results of no calls when it is awaited, the decorator when it is given a function."""

    __slots__ = ("_limit", "_made")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._made = in_order((), limit=limit)

    def __call__(self, function: Any) -> Any:
        self._made.close()
        if self._limit is not None:
            raise ConfigError("@lyra.parallel takes no limit=", hint="write @lyra.parallel alone", key="limit")
        from lyra.agents.parallel.source.source import overlapping

        return overlapping(function)

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        return self._made.__await__()

    def send(self, value: Any) -> Any:
        return self._made.send(value)

    def throw(self, *error: Any) -> Any:
        return self._made.throw(*error)

    def close(self) -> None:
        self._made.close()


async def batch(*calls: Any, limit: int = LIMIT, on: Kernel | Context | None = None) -> list[Any]:
    """The results of many calls, in call order: awaitables, functions of no argument, or pairs (whom, message)."""
    if len(calls) == 1 and not _is_call(calls[0]):
        calls = tuple(calls[0])
    async with _Desk(on) as desk:
        await desk.start(call[0] for call in calls if isinstance(call, tuple))
        works = [_work(desk, call) for call in calls]
        return await in_order(works, limit=limit)


def _is_call(value: Any) -> bool:
    return inspect.isawaitable(value) or callable(value) or (isinstance(value, tuple) and len(value) == 2)


def _work(desk: _Desk, call: Any) -> Any:
    if not isinstance(call, tuple):
        return call
    if len(call) != 2:
        raise ConfigError(f"a call is a pair of whom to ask and the message, not {call!r}")
    target, message = call
    _check(target)
    return lambda: desk.ask(target, message)


async def fan_out(
    message: Any, agents: Iterable[Any], *, limit: int = LIMIT, on: Kernel | Context | None = None
) -> list[Any]:
    """The same message to all of them; their answers in their order."""
    return await batch([(agent, message) for agent in agents], limit=limit, on=on)


async def fan_in(
    results: Iterable[Any], agent: Any, *, task: str = "Put these together.", on: Kernel | Context | None = None
) -> Any:
    """One answer out of many: an agent gets them in one message after `task`; a function gets the list."""
    results = list(results)
    async with _Desk(on) as desk:
        await desk.start([_check(agent)])
        plain = not isinstance(agent, (Agent, AgentProcess, Pipeline))
        return await desk.ask(agent, results if plain else _joined(task, results))


def _joined(task: str, results: list[Any]) -> str:
    parts = [f"{number}.\n{text_of(result)}" for number, result in enumerate(results, 1)]
    return _marked_like("\n\n".join([task, *parts]), results)


def _marked_like(text: str, sources: Iterable[Any]) -> str:
    """The text, marked as somebody else's words where one of those is that it was made of."""
    return MarkedReply(text) if any(isinstance(source, MarkedReply) for source in sources) else text


async def map_reduce(
    items: Iterable[Any], mapper: Any, reducer: Any, *, limit: int = LIMIT, on: Kernel | Context | None = None
) -> Any:
    """`mapper` is asked for each item, `reducer` once with all of its answers (see `fan_in`)."""
    async with _Desk(on) as desk:
        await desk.start([_check(mapper), _check(reducer)])
        mapped = await in_order([_work(desk, (mapper, item)) for item in items], limit=limit)
        plain = not isinstance(reducer, (Agent, AgentProcess, Pipeline))
        return await desk.ask(reducer, mapped if plain else _joined("Put these together.", mapped))


# ---------------------------------------------------------------------- one after the other


class Pipeline:
    """Stages in a row. Call it with a message; it can be a stage itself."""

    __slots__ = ("_on", "stages")

    def __init__(self, stages: tuple[Any, ...], on: Kernel | Context | None) -> None:
        self.stages = stages
        self._on = on

    async def __call__(self, message: Any, *, on: Kernel | Context | None = None) -> Any:
        """The last stage's answer."""
        async with _Desk(on if on is not None else self._on) as desk:
            await desk.start(self.stages)
            return await self.through(desk, message)

    async def through(self, desk: _Desk, message: Any) -> Any:
        for stage in self.stages:
            message = await desk.ask(stage, message)
        return message

    def __repr__(self) -> str:
        return f"<Pipeline of {len(self.stages)}>"


def pipeline(*stages: Any, on: Kernel | Context | None = None) -> Pipeline:
    """Each answer is the next one's message."""
    if not stages:
        raise ConfigError("a pipeline has at least one stage")
    return Pipeline(tuple(_check(stage) for stage in stages), on)


# ---------------------------------------------------------------------- one of several


async def router(
    message: Any,
    routes: Mapping[str, Any],
    *,
    by: Any,
    default: str | None = None,
    on: Kernel | Context | None = None,
) -> Any:
    """The answer of the route that `by` chooses: a function of the message that gives its name, or an agent who is
    asked for it. A choice that is no route takes `default`; without one it is an AgentFailed."""
    if not routes or (default is not None and default not in routes):
        raise ConfigError(f"routes are {', '.join(routes) or 'none'}; the default is {default!r}", key="routes")
    async with _Desk(on) as desk:
        await desk.start([_check(by), *(_check(target) for target in routes.values())])
        chosen = await _choice(desk, message, routes, by)
        if chosen not in routes:
            if default is None:
                raise AgentFailed(
                    f"there is no route {chosen!r}; there are: {', '.join(routes)}", status="no_route", choice=chosen
                )
            chosen = default
        return await desk.ask(routes[chosen], message)


async def _choice(desk: _Desk, message: Any, routes: Mapping[str, Any], by: Any) -> str:
    if not isinstance(by, (Agent, AgentProcess)):
        return str(await desk.ask(by, message))
    described = "\n".join(f"- {name}{_about(target)}" for name, target in routes.items())
    question = (
        f"Who should answer the message below? Choose one of these and say its name, nothing else:\n{described}"
        f"\n\nMessage:\n{text_of(message) if not isinstance(message, list) else message}"
    )
    said = str(await desk.ask(by, _marked_like(question, [message]))).strip().strip("`'\".").lower()
    return next((name for name in routes if name.lower() == said), said)


def _about(target: Any) -> str:
    return f": {target.description}" if isinstance(target, Agent) and target.description else ""
