"""Every public method of a kernel and its parts, called with values that no caller should give; then it is reopened.

The methods are found by introspection, so that a new one is covered from its first day; those that cannot be called
with any value are in `LEFT_OUT`, each with its reason. A call may give a value or a LyraError; a method of a part may
also refuse a value by Python's own TypeError, AttributeError or ValueError, if it has changed nothing. Whatever it
gave, the kernel still runs, the store can be opened again, and every subsystem then knows what it knew before.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from lyra.agents.session.replies import Reply
from lyra.core import codec
from lyra.core.ids import ProcessRandom, make_random
from lyra.errors import LyraError
from lyra.kernel import Child, Kernel
from lyra.kernel.base.subsystem import State, Subsystem
from lyra.kernel.programs.handle import Handle
from lyra.kernel.supervision.handle import SupervisorHandle
from lyra.store.sqlite import SqliteStore
from lyra.testing import SimClock

__all__ = ["LEFT_OUT", "CallsFuzzed", "ask", "furnish", "idle", "methods", "run", "states_of"]

_CALLS: Final = 25  # in each world
_WAIT_S: Final = 0.02  # for a call that waits for an event which never comes

# By class and name. Methods with a parameter of type Process are for the layers above, and are left out too.
LEFT_OUT: Final[dict[str, str]] = {
    "Kernel.start": "opens the kernel",
    "Kernel.close": "ends the world",
    "Kernel.shutdown": "ends the world",
    "WorkerApi.shutdown": "ends the world",
    "Kernel.from_config": "makes another kernel",
    "Kernel.hold_back": "for durable Vega runs: stops the world",
    "Kernel.let_go": "for durable Vega runs",
    "Kernel.watch": "for the health monitor's own watchers",
    "HealthMonitor.watch": "for watchers of the layers above",
    "Kernel.cleanup_every": "starts a loop that lasts as long as the kernel",
    "WorkerApi.cleanup_every": "starts a loop that lasts as long as the kernel",
    "Rounds.begin": "starts a loop that lasts as long as the kernel",
    "Orchestrator.fact": "for the pipelines' own modules, which check what they write",
    "ResourceTracker.count": "for amounts that record_usage has checked",
    "ResourceTracker.take": "for amounts of the kernel's own",
}


class Word(str):
    """Text that is no plain str, as an agent's Reply is not."""

    __slots__ = ()


async def idle(ctx: Any, *_: Any) -> None:
    await ctx.receive()


async def ask(ctx: Any) -> None:
    await ctx.ask("Which?", "clarification")
    await ctx.receive()


async def answer(_envelope: Any) -> dict[str, Any]:
    return {}


_DEEP: Final[list[Any]] = []
for _ in range(300):
    _DEEP[:] = [list(_DEEP)]

_QUESTION: Final = "int_1"  # stands for the id of one of the kernel's questions
_PIPELINE: Final = {"name": "line", "agents": [{"name": "a", "default_next": "b"}, {"name": "b"}]}
_WORDS: Final = (
    "worker",
    "program",
    "line",
    "group",
    "svc",
    "a",
    "user",
    "confirmation",
    _QUESTION,
    "ready",
    "healthy",
)
_VALUES: Final[tuple[Any, ...]] = (
    *(None, "", "\0", "\ud800", "~root", "~", "x" * 5000, "ünï\n", Word("worker"), Word("new"), Reply("program")),
    *(0, -1, 1, 2**31, 2**63, 2**80, -(2**70), True, False, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *(b"bytes", b"", (), [], {}, [None], {"a": 1}, {1: 2}, {None: None}, {"text": "yes", "approved": True}),
    *(
        {"decision": "retry"},
        {"pid": None},
        {"name": Word("w")},
        {"agent_name": "a", "output": {"x": 1}},
        set(),
        object(),
    ),
    *(_DEEP, _PIPELINE, {**_PIPELINE, "name": Word("line")}, idle, answer, print, Exception, Exception("x"), ..., 1j),
    *(
        {"llm_calls": 1},
        {"llm_calls": -1},
        {"max_llm_calls": 2**70},
        {"requests_per_minute": 1},
        "normal",
        "terminated",
    ),
    *({"id": "c", "program": idle}, [{"id": Word("c"), "program": idle}], {"kind": "confirmation", "question": "q"}),
)
_ODD: Final = (*_VALUES, *_WORDS, *_WORDS, *_WORDS)


class CallsFuzzed(NamedTuple):
    """What came of a run."""

    worlds: int
    calls: int
    refused: int  # answered with a LyraError
    methods: int
    failures: list[str]


def methods(kernel: Kernel) -> dict[str, Callable[..., Any]]:
    """`Class.name` → the bound method, of the kernel and of each of its parts."""
    found: dict[str, Callable[..., Any]] = {}
    for owner in (kernel, *_parts(kernel)):
        for name, function in inspect.getmembers(type(owner), callable):
            word = f"{type(owner).__name__}.{name}"
            if name.startswith("_") or word in LEFT_OUT or hasattr(Subsystem, name) or not _is_open_to_all(function):
                continue
            found[word] = getattr(owner, name)
    return found


def _parts(kernel: Kernel) -> Iterator[Any]:
    """The subsystems of a kernel, and handles of its processes."""
    yield from kernel.core.subsystems.all
    yield kernel.worker_api
    for process in list(kernel.processes.present()):
        yield (SupervisorHandle if process.pid == "boss" else Handle)(kernel, process)


def _is_open_to_all(function: Any) -> bool:
    """Whether a method can be called by users: it takes no Process and no other object of the kernel's own."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return not any(_OWN.intersection(str(parameter.annotation).replace("|", " ").split()) for parameter in parameters)


_REFUSALS: Final = (TypeError, AttributeError, ValueError)
_OWN: Final = {"Process", "Interrupt", "Session", "Question", "PCB", "Token", "Watchers", "Entry", "Budget", "Feed"}


async def _world(rng: ProcessRandom, path: str, failures: list[str], counts: list[int]) -> None:
    clock = SimClock(1_800_000_000.0)
    kernel = Kernel(path, clock, programs=[idle, ask])
    await kernel.start()
    await furnish(kernel)
    called: list[str] = []
    known = methods(kernel)
    names = sorted(known)
    counts[2] = len(names)
    for _ in range(_CALLS):
        word = rng.choice(names)
        arguments = _arguments(rng, known[word], kernel)
        called.append(f"{word}({_shown(arguments)})")
        counts[0] += 1
        known_before = states_of(kernel)
        try:
            await _call(known[word], arguments)
        except LyraError:
            counts[1] += 1
        except Exception as error:  # noqa: BLE001 - that is what this looks for
            counts[1] += 1
            is_refusal = isinstance(error, _REFUSALS) and not word.startswith("Kernel.")
            if not is_refusal or states_of(kernel) != known_before:
                failures.append(f"{called[-1]}: {type(error).__name__}: {error}")
        await asyncio.sleep(0)
        if kernel.failure is not None:
            failures.append(f"{called[-1]} ended the kernel: {kernel.failure}")
            break
    before = states_of(kernel)
    try:
        try:
            if kernel.failure is None and rng.random() < 0.5:
                await kernel._snapshots.write()
        finally:
            await kernel.close(drain_s=0)
    except Exception as error:  # noqa: BLE001
        failures.append(f"closing after {called}: {type(error).__name__}: {error}")
    again = Kernel(path, clock, programs=[idle, ask])
    try:
        await again.start()
    except Exception as error:  # noqa: BLE001
        failures.append(f"cannot be opened after {called}: {type(error).__name__}: {error}")
        return
    after = states_of(again)
    failures += [f"{name} is another after {called}" for name in before if before[name] != after[name]]
    await again.close(drain_s=0)


async def furnish(kernel: Kernel) -> None:
    """Something of each kind, under the names in `_WORDS`."""
    kernel.spawn(idle, pid="program", name="named")
    kernel.spawn(ask, pid="asker")
    kernel.supervise([Child("c", idle)], pid="boss")
    kernel.submit("worker", user_id="user", request_id="r", session_id="s")
    kernel.initialize_orchestration("line", _PIPELINE)
    kernel.register_agent("a", answer)
    kernel.groups.create("group")
    kernel.groups.join("group", "program")
    kernel.memories.add("user", "likes tea")
    kernel.register_service({"name": "svc"})
    kernel.create_interrupt("worker", "confirmation", "m", question="q")
    kernel.create_interrupt("line", "clarification", "m", question="q")
    await kernel.durable()


def _arguments(rng: ProcessRandom, method: Callable[..., Any], kernel: Kernel) -> tuple[list[Any], dict[str, Any]]:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in inspect.signature(method).parameters.values():
        is_left_out = parameter.default is not parameter.empty and rng.random() < 0.6
        if parameter.kind is parameter.VAR_KEYWORD or is_left_out:
            continue
        value = rng.choice(_WORDS) if rng.random() < 0.4 else rng.choice(_ODD)
        if value == _QUESTION or "interrupt_id" in parameter.name:
            asked = kernel.interrupts.list_interrupts()
            value = rng.choice(asked).id if asked else value
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += [value] if rng.random() < 0.3 else []
        elif parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        elif not named:
            positional.append(value)
        else:
            named[parameter.name] = value
    return positional, named


async def _call(method: Callable[..., Any], arguments: tuple[list[Any], dict[str, Any]]) -> None:
    """Make a call, and await what it gives for a moment."""
    value = method(*arguments[0], **arguments[1])
    if isinstance(value, SqliteStore):  # a connection of its own, which the caller closes
        value.close()
    if isinstance(value, AsyncIterator):
        value = anext(value)
    if inspect.isawaitable(value):
        with suppress(TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(_WAIT_S):
                await value


def states_of(kernel: Kernel) -> dict[str, bytes]:
    """What each subsystem knows, as a snapshot would write it; services have no known health after a restart."""
    return {name: _written(state) for name, state in kernel.states.items() if name != "services"}


def _written(state: State) -> bytes:
    try:
        return codec.encode(state.dump())
    except LyraError as error:  # no snapshot can hold it: another than what a restart gives
        return str(error).encode()


def _shown(arguments: tuple[list[Any], dict[str, Any]]) -> str:
    parts = [repr(value)[:60] for value in arguments[0]]
    return ", ".join([*parts, *(f"{name}={value!r:.60}" for name, value in arguments[1].items())])


@contextmanager
def _without_warnings() -> Iterator[None]:
    """The processes of the worlds wait for people all the time."""
    log = logging.getLogger("lyra")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def run(n: int, seed: int) -> CallsFuzzed:
    """`n` worlds, each from a seed of its own."""
    failures: list[str] = []
    counts = [0, 0, 0]
    with _without_warnings(), tempfile.TemporaryDirectory() as folder:
        for number in range(n):
            problems: list[str] = []
            path = os.path.join(folder, f"{number}.db")
            asyncio.run(_world(make_random(seed + number), path, problems, counts))
            failures += [f"kernel calls, seed {seed + number}: {problem}" for problem in problems]
            for suffix in ("", "-wal", "-shm"):
                if os.path.exists(path + suffix):
                    os.unlink(path + suffix)
    return CallsFuzzed(n, counts[0], counts[1], counts[2], failures)
