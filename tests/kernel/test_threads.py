"""A kernel belongs to the thread of its loop: calls from another are refused in one sentence, and change nothing."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lyra.errors import LyraError, ProcessError
from lyra.kernel import CircuitBreakerMiddleware, Kernel
from lyra.store.sqlite import SqliteStore
from lyra.testing import SimClock
from tests.kernel.conftest import run, settle
from verify.fuzz.kernel_calls import ask, furnish, idle, methods, states_of

# What a caller would give, by the name of the parameter; any other gets the first that is not refused elsewhere.
ARGUMENTS: dict[str, Any] = {
    "name": "group",
    "process": "program",
    "to": "program",
    "one": "program",
    "other": "boss",
    "key": "k",
    "value": 1,
    "scope": "user",
    "text": "t",
    "kind": "confirmation",
    "program": idle,
    "state": "ready",
    "user_id": "user",
    "endpoint": "e",
    "config": {"name": "line", "agents": [{"name": "a"}]},
    "info": {"name": "other"},
    "result": {"agent_name": "a"},
    "report": {"agent_name": "a"},
    "envelope": {},
    "handler": idle,
    "listener": print,
    "children": [],
    "message": "m",
    "reason": "r",
    "question": "q",
    "response": {"approved": True},
    "quota": {"llm_calls": 5},
    "spec": {"id": "d", "program": idle},
    "child_id": "c",
    "grant": None,
    "number": 1,
    "by": "x",
    "event": {"kind": "process.created", "pid": "x"},
}


def arguments_of(method: Any) -> tuple[list[Any], dict[str, Any]]:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in inspect.signature(method).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        value = ARGUMENTS.get(parameter.name, "worker")
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        else:
            positional.append(value)
    return positional, named


def called(method: Any) -> BaseException | None:
    """Call a method, and await what it gives, in a thread with a loop of its own."""
    positional, named = arguments_of(method)

    async def work() -> None:
        value = method(*positional, **named)
        if isinstance(value, SqliteStore):  # a connection of its own, which the caller closes
            value.close()
        if hasattr(value, "__anext__"):
            value = anext(value)
        if inspect.isawaitable(value):
            await asyncio.wait_for(value, 0.2)

    try:
        asyncio.run(work())
    except BaseException as error:
        return error
    return None


def test_no_public_method_changes_anything_from_another_thread(path):
    """Each public method of the kernel and its parts: a value or an error, and nothing is another than before."""

    async def main() -> None:
        async with Kernel(path, SimClock(1_800_000_000.0), programs=[idle, ask]) as kernel:
            await furnish(kernel)
            await settle(kernel)
            problems = []
            with ThreadPoolExecutor(1) as thread:
                for word, method in sorted(methods(kernel).items()):
                    before = (kernel.journal.seq, states_of(kernel), sorted(kernel.names), kernel.live)
                    error = await kernel.loop.run_in_executor(thread, called, method)
                    await settle(kernel)
                    if (kernel.journal.seq, states_of(kernel), sorted(kernel.names), kernel.live) != before:
                        problems.append(f"{word} changed something: {error!r}")
                    elif isinstance(error, (RuntimeError, AssertionError)) or kernel.failure is not None:
                        problems.append(f"{word}: {error!r}")
            assert not problems, "\n".join(problems)
            assert all(handle.state != "terminated" for handle in (kernel.process("program"), kernel.process("boss")))
        async with Kernel(path, programs=[idle, ask]) as kernel:
            assert kernel.process("program").alive

    run(main())


WRITES = {
    "spawn": lambda kernel: kernel.spawn(idle),
    "send": lambda kernel: kernel.send("program", 1),
    "kill": lambda kernel: kernel.kill("program"),
    "link": lambda kernel: kernel.link("program", "boss"),
    "supervise": lambda kernel: kernel.supervise([]),
    "bb_set": lambda kernel: kernel.groups.bb_set("group", "k", 1),
    "memories.add": lambda kernel: kernel.memories.add("user", "new"),
    "submit": lambda kernel: kernel.submit("another"),
    "terminate": lambda kernel: kernel.terminate("worker"),
    "create_interrupt": lambda kernel: kernel.create_interrupt("worker", "confirmation", question="q"),
    "get_next_instruction": lambda kernel: kernel.get_next_instruction("line"),
    "resolve": lambda kernel: kernel.interrupts.resolve(kernel.interrupts.pending()[0].id, {"approved": True}),
    "cancel": lambda kernel: kernel.interrupts.cancel(kernel.interrupts.pending()[0].id),
    "handle.kill": lambda kernel: kernel.process("program").kill(),
}


REGISTERS = {
    "on_event": lambda kernel: kernel.on_event(print),
    "register_agent": lambda kernel: kernel.register_agent("stage", idle),
    "handle.regrant": lambda kernel: kernel.process("program").regrant(None),
    "bus.subscribe": lambda kernel: kernel.bus.subscribe("news", print),
    "bus.stream": lambda kernel: kernel.bus.stream("news"),
    "bus.use": lambda kernel: kernel.bus.use(CircuitBreakerMiddleware()),
    "bus.register_handler": lambda kernel: kernel.bus.register_handler("order", print),
    "bus.unregister_handler": lambda kernel: kernel.bus.unregister_handler("known"),
    "services.register_handler": lambda kernel: kernel.services.register_handler("service", print),
    "services.acquire_slot": lambda kernel: kernel.services.acquire_slot("service"),
    "services.release_slot": lambda kernel: kernel.services.release_slot("service"),
    "register": lambda kernel: kernel.register(ask),
    "hold_back": lambda kernel: kernel.hold_back(),
    "let_go": lambda kernel: kernel.let_go(),
    "graft": lambda kernel: kernel.graft({}),
    "watch": lambda kernel: kernel.watch({"process.created": print}),
    "processes_max": lambda kernel: setattr(kernel, "processes_max", 1),
    "health.stop": lambda kernel: kernel.health.stop(),
    "groups.on_join": lambda kernel: kernel.groups.on_join(print),
    "groups.on_leave": lambda kernel: kernel.groups.on_leave(print),
    "close": lambda kernel: asyncio.run(kernel.close()),
    "shutdown": lambda kernel: asyncio.run(kernel.shutdown()),
}


@pytest.mark.parametrize("word", REGISTERS)
def test_what_only_lives_in_memory_is_refused_from_another_thread_too(word):
    async def main() -> None:
        async with Kernel(programs=[idle, ask]) as kernel:
            await furnish(kernel)
            kernel.bus.register_handler("known", print)
            kernel.services.register_service({"name": "service"})
            with ThreadPoolExecutor(1) as thread, pytest.raises(ProcessError, match="belongs to another thread"):
                await kernel.loop.run_in_executor(thread, REGISTERS[word], kernel)
            assert kernel.bus.subscribers("news") == 0
            assert kernel.bus.has_handler("known")
            assert not kernel.bus.has_handler("order")
            assert kernel.processes_max > 1
            await kernel.submit("later")

    run(main())


def _in_a_forked_child(work: Callable[[], object]) -> str:
    """Fork, call `work` in the child, and return the message of the error that it ended with there."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            work()
            said = "nothing was refused"
        except BaseException as error:
            said = str(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.parametrize("word", [*WRITES, "close", "shutdown", "register", "hold_back", "let_go", "on_event"])
def test_a_forked_child_cannot_use_the_kernel_of_its_parent(path, word):
    """One sentence there, and the parent's lease and its processes are as before."""

    async def main() -> None:
        async with Kernel(path, SimClock(1_800_000_000.0), programs=[idle, ask]) as kernel:
            await furnish(kernel)
            await settle(kernel)
            before = (kernel.journal.store.holder(), kernel.journal.seq, states_of(kernel))
            said = _in_a_forked_child(lambda: {**WRITES, **REGISTERS}[word](kernel))
            assert "the kernel belongs to the process that forked this one" in said
            assert (kernel.journal.store.holder(), kernel.journal.seq, states_of(kernel)) == before
            await kernel.send("program", "still here")

    run(main())


@pytest.mark.parametrize("word", WRITES)
def test_a_call_from_another_thread_is_refused_and_not_applied_after_a_restart(path, word):
    """One sentence, and the store is as if the call had not been made."""

    async def main() -> None:
        async with Kernel(path, SimClock(1_800_000_000.0), programs=[idle, ask]) as kernel:
            await furnish(kernel)
            await settle(kernel)
            before = states_of(kernel)
            with ThreadPoolExecutor(1) as thread, pytest.raises(ProcessError, match="belongs to another thread"):
                await kernel.loop.run_in_executor(thread, WRITES[word], kernel)
            await settle(kernel)
        async with Kernel(path, SimClock(1_800_000_000.0), programs=[idle, ask]) as kernel:
            assert states_of(kernel) == before
            assert kernel.process("program").alive
            assert len(kernel.processes) == 4

    run(main())


def test_text_of_a_subclass_is_a_pid_and_a_name(path):
    """An agent's Reply is a str: as pid, name or id of a part it is the text that it holds."""

    class Word(str):
        __slots__ = ()

    async def talk(ctx: Any) -> str:
        ctx.spawn(idle, Word("argument"), name=Word("kid"))
        await ctx.send(Word("ear"), Word("message"))
        ctx.monitor(Word("p"))
        with pytest.raises(LyraError, match="not now"):
            await ctx.ask(Word("Which?"), Word("clarification"), message=Word("m"))
        ctx.exit(Word("done"))
        return ""

    async def main() -> None:
        async with Kernel(path, programs=[idle, talk]) as kernel:
            await kernel.spawn(idle, pid=Word("p"), name=Word("n"))
            await kernel.spawn(idle, pid=Word("ear"))
            talker = kernel.spawn(talk, pid=Word("talker"))
            await settle(kernel)
            (question,) = kernel.interrupts.pending("talker")
            await kernel.interrupts.cancel_interrupt(Word(question.id), Word("not now"))
            assert (await talker.wait()).reason == "done"
            await kernel.submit(Word("w"), user_id=Word("u"), request_id=Word("r"), session_id=Word("s"))
            await kernel.groups.create(Word("g"))
            kernel.groups.join(Word("g"), Word("p"))
            await kernel.groups.bb_set(Word("g"), Word("k"), Word("v"))
            kernel.memories.add(Word("scope"), Word("text"), kind=Word("fact"), pid=Word("p"))
            await kernel.send(Word("p"), {Word("a"): Word("b")})
            await kernel.create_interrupt(Word("w"), Word("confirmation"), Word("m"), question=Word("q"))
            await kernel.kill(Word("p"), Word("because"))
            await kernel.durable()
            assert type(kernel.memories.items("scope")[0].pid) is str
        async with Kernel(path, programs=[idle, talk]) as kernel:
            assert kernel.memories.items("scope")[0].pid == "p"
            assert kernel.groups.bb_get("g", "k") == "v"

    run(main())


def test_a_memory_without_a_process_is_refused(path):
    """`pid=None` is no pid: it is refused, and the store opens again."""

    async def main() -> None:
        async with Kernel(path) as kernel:
            with pytest.raises(LyraError, match="a pid is text"):
                kernel.memories.add("user", "likes tea", pid=None)  # type: ignore[arg-type]
        async with Kernel(path) as kernel:
            assert kernel.memories.items("user") == []

    run(main())
