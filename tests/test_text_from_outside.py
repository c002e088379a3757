"""The mark of text from outside goes every way that text can go from one process to another, and only there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from lyra import Agent, Kernel
from lyra.agents.session.shared import runtime_of
from lyra.errors import AgentFailed, EffectFailed
from lyra.kernel.process.links import Down
from tests.agents.support import says
from tests.kernel.conftest import settle

# A way: makes text of the process `giver` reach the process `taker`, given the kernel and an effect runner of each.
Do = Callable[[Callable[[Any], Any]], Awaitable[Any]]
Way = Callable[[Kernel, str, Do, str, Do], Awaitable[None]]


async def listener(ctx: Any) -> None:
    while True:
        await ctx.receive()


async def performer(ctx: Any) -> None:
    """Performs the functions that it is sent, each as an effect, and answers the future that comes with it."""
    while not isinstance(request := await ctx.receive(), Down):
        function, done = request

        async def call(function: Any = function) -> None:
            result = function(ctx)
            if hasattr(type(result), "__await__"):
                result = await result

        await ctx.do(call)
        done.set_result(None)


async def message(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: ctx.send(taker, (lambda _: None, asyncio.get_running_loop().create_future())))


async def sent_by_kernel(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: kernel.send(taker, (lambda _: None, asyncio.get_running_loop().create_future())))


async def broadcast(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.groups.create("desk")
    kernel.groups.join("desk", taker)
    text = (lambda _: None, asyncio.get_running_loop().create_future())
    await gives(lambda ctx: kernel.groups.broadcast("desk", text))


async def blackboard(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.groups.create("desk")
    await gives(lambda ctx: kernel.groups.bb_set("desk", "key", "text"))
    await takes(lambda ctx: kernel.groups.bb_get("desk", "key"))


async def blackboard_whole(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.groups.create("desk")
    await gives(lambda ctx: kernel.groups.bb_set("desk", "key", "text"))
    await takes(lambda ctx: kernel.groups.bb_snapshot("desk"))


async def memory(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: kernel.memories.add("us", "text"))
    await takes(lambda ctx: kernel.memories.items("us"))


async def memory_search(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: kernel.memories.add("us", "text"))
    await takes(lambda ctx: kernel.memories.search("us", "text"))


async def published(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await takes(lambda ctx: kernel.bus.subscribe("news", lambda _: None))
    await gives(lambda ctx: kernel.bus.publish("news", "text"))


async def streamed(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    streams: list[Any] = []
    await takes(lambda ctx: streams.append(kernel.bus.stream("news")))
    await gives(lambda ctx: kernel.bus.publish("news", "text"))


async def commanded(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await takes(lambda ctx: kernel.bus.register_handler("news", lambda _: None))
    await gives(lambda ctx: kernel.bus.send("news", "text"))


async def queried(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The answer to a query goes back to the process that asked."""
    await gives(lambda ctx: kernel.bus.register_handler("news", lambda _: "text"))
    await takes(lambda ctx: kernel.bus.query("news", 1))


async def requested(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.register_service({"name": "printer", "service_type": "worker", "status": "healthy"})
    await takes(lambda ctx: kernel.register_handler("printer", lambda _: None))
    await gives(lambda ctx: kernel.dispatch("printer", {"metadata": {"text": "text"}}))


async def served(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The response of a service goes back to the process that asked."""
    kernel.register_service({"name": "printer", "service_type": "worker", "status": "healthy"})
    await gives(lambda ctx: kernel.register_handler("printer", lambda _: {"text": "text"}))
    await takes(lambda ctx: kernel.dispatch("printer"))


async def waited_for(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """How a process ended, with its result, read by another."""
    kernel.kill(giver)
    await takes(lambda ctx: kernel.process(giver).wait())


async def signalled(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The text of the error that a monitored process ended with."""
    await takes(lambda ctx: kernel.links.monitor(ctx.own_process, kernel.processes[giver], "ref"))

    def fail(_ctx: Any) -> None:
        raise RuntimeError("text")

    kernel.send(giver, (fail, None))
    await settle(kernel)
    assert kernel.processes[giver].exit is not None


async def asked_agent(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """A question to an agent, and its answer to another process."""
    helper = await kernel.spawn(Agent("helper", model=says("text")))
    await gives(lambda ctx: helper.send("hello"))
    assert kernel.taint.is_tainted(helper.pid) is kernel.taint.is_tainted(giver)
    await takes(lambda ctx: helper.send("hello"))


async def piped(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """A pipeline that one process begins, and whose events another reads."""

    async def stage(envelope: Any) -> dict[str, Any]:
        return {"text": "text"}

    async def read(_ctx: Any) -> None:
        async for _ in kernel.execute_pipeline(config, pid="line"):
            pass

    kernel.register_agent("first", stage)
    config = {"name": "review", "agents": [{"name": "first"}]}
    await gives(read)
    await takes(read)


async def blackboard_keys(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.groups.create("desk")
    await gives(lambda ctx: kernel.groups.bb_set("desk", "text", 1))
    await takes(lambda ctx: kernel.groups.bb_keys("desk"))


async def group_keys(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.groups.create("desk")
    await gives(lambda ctx: kernel.groups.bb_set("desk", "text", 1))
    await takes(lambda ctx: kernel.groups.get("desk"))


async def heard_of(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The Event of a row without a pid that a marked process made."""
    kernel.groups.create("desk")
    await takes(lambda ctx: kernel.on_event(lambda _: None, kinds=["group.set"]))
    await gives(lambda ctx: kernel.groups.bb_set("desk", "key", "text"))


async def heard_about(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The Event of a row about a marked process."""
    await takes(lambda ctx: kernel.on_event(lambda _: None, kinds=["interrupt.created"]))
    await gives(lambda ctx: kernel.create_interrupt(ctx.pid, "confirmation", question="text"))


async def emitted(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await takes(lambda ctx: kernel.on_event(lambda _: None, kinds=["budget.warning"]))
    await gives(lambda ctx: kernel.emit_event({"kind": "budget.warning", "data": {"text": "text"}}))


async def followed(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The answer of an agent to another's question, by `current`."""
    helper = await kernel.spawn(Agent("helper", model=says({"text": "text", "first_s": 0.05})))
    pending: list[Any] = []
    await gives(lambda ctx: pending.append(helper.send_async("hello")))
    await takes(lambda ctx: kernel.agent(helper.pid).current)
    await pending[0]


def asked_again(*, late: bool) -> Way:
    """The answer to a question from before a restart, whose caller asks again before (or after) it is there."""

    async def way(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
        helper, runtime = await kernel.spawn(Agent("helper", model=says("text"))), runtime_of(kernel)
        await gives(lambda ctx: helper.send("hello"))
        process = kernel.processes[helper.pid]
        runtime.questions.expect("key", process, (), stream=False)
        if late:
            runtime.questions.take("key")
        await takes(lambda ctx: [runtime.ask(process, "hello", request_id="key")])
        runtime.questions.take("key")

    return way


async def cut_off(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The reason with which an agent is ended, read by the process whose question it has not come to."""
    helper = await kernel.spawn(Agent("helper", model=says({"text": "text", "first_s": 60.0})))
    pending = [helper.send_async("hello")]
    await settle(kernel)
    await takes(lambda ctx: pending.append(helper.send_async("and?")))
    await gives(lambda ctx: kernel.kill(helper, "text"))
    for answer, told in zip(pending, ("stopped", "text"), strict=True):
        with pytest.raises(AgentFailed, match=told):
            await answer


async def overheard(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    helper = await kernel.spawn(Agent("helper", model=says("text")))
    await gives(lambda ctx: helper.send("hello"))
    await takes(lambda ctx: kernel.agent(helper.pid).messages)


async def looked_at(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    helper = await kernel.spawn(Agent("helper", model=says("text")))
    await gives(lambda ctx: helper.send("hello"))
    await takes(lambda ctx: kernel.agent(helper.pid).execution)


async def question(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.submit("entry")
    await gives(lambda ctx: kernel.create_interrupt("entry", "confirmation", question="text"))
    await takes(lambda ctx: kernel.get_pending_interrupt("entry"))


async def listed_question(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.submit("entry")
    await gives(lambda ctx: kernel.create_interrupt("entry", "confirmation", question="text"))
    await takes(lambda ctx: kernel.interrupts.list_interrupts())


async def question_of_program(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    process = kernel.processes[giver]
    await gives(lambda ctx: kernel.interrupts.create(process, "confirmation", question="text"))
    await takes(lambda ctx: kernel.interrupts.pending(giver))


async def question_in_block(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.submit("entry")
    await gives(lambda ctx: kernel.create_interrupt("entry", "confirmation", question="text"))
    await takes(lambda ctx: kernel.get_process("entry"))


def answered_with(answer: Callable[[Kernel, str], Any]) -> Way:
    """An answer that one process gives to the question of another."""

    async def way(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
        asked = kernel.interrupts.create(kernel.processes[taker], "confirmation", question="?")
        await gives(lambda ctx: answer(kernel, asked.id))

    return way


async def read_answer(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """An answer that a third process reads."""
    kernel.submit("entry")
    asked = kernel.create_interrupt("entry", "confirmation", question="?")
    await gives(lambda ctx: kernel.resolve_interrupt(asked.id, {"text": "text"}))
    await takes(lambda ctx: kernel.interrupts.get_interrupt(asked.id))


LINE = {"name": "line", "agents": [{"name": "first", "default_next": "second"}, {"name": "second"}]}


def reported_and(read: Callable[[Kernel], Any]) -> Way:
    """The result of a stage that a worker reports, read by another."""

    async def way(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
        kernel.initialize_orchestration("line", LINE)
        kernel.get_next_instruction("line")
        result = {"agent_name": "first", "output": {"text": "text"}}
        await gives(lambda ctx: kernel.report_agent_result("line", result))
        await takes(lambda ctx: read(kernel))

    return way


def killed_and(watch: Callable[[Kernel, Any, str], Any], read: Callable[[Any], Any] = lambda _: None) -> Way:
    """The reason with which one process ends another, read by a third."""

    async def way(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
        victim = await kernel.spawn(listener)
        await takes(lambda ctx: watch(kernel, ctx, victim.pid))
        await gives(lambda ctx: kernel.kill(victim, "text"))
        await settle(kernel)
        if kernel.processes[taker].exit is None:  # else the link ended it
            await takes(lambda ctx: read(victim))

    return way


async def left_with_reason(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    async def leaver(ctx: Any) -> None:
        await ctx.receive()
        ctx.exit("text")

    await gives(lambda ctx: kernel.spawn(leaver, pid="leaver"))
    await takes(lambda ctx: kernel.links.monitor(ctx.own_process, kernel.processes["leaver"], "ref"))
    await kernel.send("leaver", "go")


async def named(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: kernel.spawn(listener, name="text"))
    await takes(lambda ctx: kernel.process("text").name)


async def listed(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """A pid that a process chose."""
    await gives(lambda ctx: kernel.spawn(listener, pid="text"))
    await takes(lambda ctx: kernel.list_processes())


async def submitted(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: kernel.submit("entry", request_id="text"))
    await takes(lambda ctx: kernel.get_process("entry"))


async def moved(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.submit("entry")
    await gives(lambda ctx: kernel.terminate("entry", "text"))
    await takes(lambda ctx: kernel.list_processes())


async def registered(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: kernel.register_service({"name": "printer", "metadata": {"text": "text"}}))
    await takes(lambda ctx: kernel.services.list_services())


async def started_child(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """Arguments of a child that a supervisor is asked to start, and starts again."""
    supervisor = await kernel.supervise([{"id": "own", "program": listener}], max_restarts=9)
    await gives(lambda ctx: supervisor.start_child({"id": "new", "program": hears, "args": ["text"]}))
    await passes_on_to(kernel, giver, supervisor, taker, takes)


async def started_dynamic_child(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    each = {"id": "each", "program": hears}
    supervisor = await kernel.supervise([each], strategy="simple_one_for_one", max_restarts=9)
    await supervisor.start_child(args=["the user's own"])
    await gives(lambda ctx: supervisor.start_child(args=["text"]))
    await passes_on_to(kernel, giver, supervisor, taker, takes)


async def hears(ctx: Any, text: str) -> None:
    while True:
        await ctx.receive()


async def passes_on_to(kernel: Kernel, giver: str, supervisor: Any, taker: str, takes: Do) -> None:
    """The second child has the mark of the giver, the supervisor and the first child have none, after a restart too."""
    for _ in range(2):
        own, new = (child.pid for child in await supervisor.which_children())
        marks = [kernel.taint.is_tainted(pid) for pid in (supervisor.pid, own, new)]
        assert marks == [False, False, kernel.taint.is_tainted(giver)]
        kernel.kill(new)
        kernel.kill(own)
        await settle(kernel)
    await takes(lambda ctx: kernel.supervisor(supervisor.pid).which_children())


async def listed_plan(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The ids of the children that a process gave its supervisor."""
    await gives(lambda ctx: kernel.supervise([{"id": "text", "program": listener}], pid="supervisor"))
    await takes(lambda ctx: kernel.supervisor("supervisor").which_children())


async def heard_child(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The id of a child in the Event of its restart."""
    supervisor = await kernel.supervise([])
    await gives(lambda ctx: supervisor.start_child({"id": "text", "program": listener}))
    await takes(lambda ctx: kernel.on_event(lambda _: None, kinds=["child.restarting"]))
    kernel.kill(str(supervisor.which_children()[0].pid))
    await settle(kernel)


async def left_for_parent(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The reason of a child that ended for good, which its supervisor tells its parent."""

    async def parent(ctx: Any) -> None:
        ctx.supervise([{"id": "child", "program": listener}], strategy="stop", name="supervisor")
        while True:
            await ctx.receive()
            await ctx.send(taker, (lambda _: None, asyncio.get_running_loop().create_future()))

    await kernel.spawn(parent)
    await settle(kernel)
    child = str(kernel.supervisor("supervisor").which_children()[0].pid)
    await gives(lambda ctx: kernel.kill(child, "text"))
    await settle(kernel)
    assert not kernel.taint.is_tainted(kernel.process("supervisor").pid)


def streams_of(*, in_turn: bool) -> Way:
    """Pieces of an answer, each of which is read with the mark, also of an agent that is marked in the middle."""

    async def way(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
        helper = await kernel.spawn(
            Agent("helper", model=says({"text": "a b c d e f", "first_s": 0.02, "chunk_s": 0.02}))
        )
        if not in_turn:
            await gives(lambda ctx: helper.send("hello"))

        async def read(ctx: Any) -> None:
            async for _ in kernel.agent(helper.pid).stream("hello"):
                if in_turn and kernel.taint.is_tainted(giver) and not kernel.taint.is_tainted(helper.pid):
                    kernel.taint.mark(helper.pid, "a page")
                    continue
                assert kernel.taint.is_tainted(taker) is kernel.taint.is_tainted(giver)
                break

        await takes(read)

    return way


def fails(_: Any) -> None:
    raise ValueError("text")


def failed_by(call: Callable[[Kernel], Any]) -> Way:
    """The error of a handler, which its caller gets."""

    async def way(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
        kernel.register_service({"name": "printer", "service_type": "worker", "status": "healthy"})
        await gives(lambda ctx: kernel.register_handler("printer", fails))
        await gives(lambda ctx: kernel.bus.register_handler("news", fails))

        async def ask(_ctx: Any) -> None:
            with pytest.raises((ValueError, EffectFailed), match="text"):
                await call(kernel)

        await takes(ask)

    return way


class Reads:
    def before(self, message: Any) -> Any:
        return message


class Rewrites:
    def before(self, message: Any) -> Any:
        return msgspec.structs.replace(message, payload="text")


class Answers:
    def after(self, message: Any, result: Any, error: Any) -> Any:
        return "text"


async def read_between(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await takes(lambda ctx: kernel.bus.use(Reads()))
    await gives(lambda ctx: kernel.bus.publish("news", "text"))


async def answer_read_between(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await takes(lambda ctx: kernel.bus.use(Reads()))
    await gives(lambda ctx: kernel.bus.register_handler("news", lambda _: "text"))
    await kernel.bus.query("news", 1)


async def rewritten(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: kernel.bus.use(Rewrites()))
    await takes(lambda ctx: kernel.bus.subscribe("news", lambda _: None))
    await kernel.bus.publish("news", "plain")


async def answered_between(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.bus.register_handler("news", lambda _: "plain")
    await gives(lambda ctx: kernel.bus.use(Answers()))
    await takes(lambda ctx: kernel.bus.query("news", 1))


async def done_between(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """What a middleware does is done by the process that put it there."""

    class Remembers:
        def before(self, message: Any) -> Any:
            kernel.memories.add("us", "text")
            return message

    await gives(lambda ctx: kernel.bus.use(Remembers()))
    await kernel.bus.publish("news", "plain")
    await takes(lambda ctx: kernel.memories.items("us"))


def staged(stage: Callable[[Any], Any]) -> Way:
    """The result, or the error, of a stage that a process registered, in the pipeline of another."""

    async def way(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
        async def read(_ctx: Any) -> None:
            async for _ in kernel.execute_pipeline({"name": "review", "agents": [{"name": "first"}]}, pid="line"):
                pass

        await gives(lambda ctx: kernel.register_agent("first", stage))
        await takes(read)

    return way


async def owned(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: kernel.submit("entry", user_id="text"))
    await takes(lambda ctx: kernel.lifecycle.owner("entry"))


async def granted(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: kernel.spawn(listener, pid="child", grant=["fs.read:/text/**"]))
    await takes(lambda ctx: kernel.process("child").grant)


NAMED = [
    *(message, sent_by_kernel, broadcast, blackboard, blackboard_whole, blackboard_keys, group_keys, memory),
    *(memory_search, published, streamed, commanded, queried, requested, served, waited_for, signalled, asked_agent),
    *(followed, cut_off, overheard, looked_at, piped, heard_of, heard_about, emitted, question, listed_question),
    *(question_of_program, question_in_block, read_answer, left_with_reason, named, listed, submitted, moved),
    *(registered, started_child, started_dynamic_child, listed_plan, heard_child, left_for_parent),
    *(read_between, answer_read_between, rewritten, answered_between, done_between, owned, granted),
]
WAYS: dict[str, Way] = {
    **{way.__name__: way for way in NAMED},
    "answered": answered_with(lambda kernel, asked: kernel.resolve_interrupt(asked, {"text": "text"})),
    "resolved": answered_with(lambda kernel, asked: kernel.interrupts.resolve(asked, {"text": "text"})),
    "cancelled": answered_with(lambda kernel, asked: kernel.interrupts.cancel(asked, "text")),
    "asked_again": asked_again(late=False),
    "asked_again_late": asked_again(late=True),
    "envelope": reported_and(lambda kernel: kernel.get_envelope("line")),
    "instruction": reported_and(lambda kernel: kernel.get_next_instruction("line")),
    "instructions": reported_and(lambda kernel: kernel.orchestrator.get_ready_instructions("line")),
    "checkpoint": reported_and(lambda kernel: kernel.orchestrator.checkpoint("line")),
    "status": reported_and(lambda kernel: kernel.get_request_status("line")),
    "killed": killed_and(lambda kernel, ctx, victim: None, lambda victim: victim.wait()),
    "killed_monitored": killed_and(lambda kernel, ctx, victim: ctx.monitor(victim)),
    "streamed_answer": streams_of(in_turn=False),
    "streamed_answer_in_turn": streams_of(in_turn=True),
    "failed_query": failed_by(lambda kernel: kernel.bus.query("news", 1)),
    "failed_command": failed_by(lambda kernel: kernel.bus.send("news", 1)),
    "failed_service": failed_by(lambda kernel: kernel.dispatch("printer")),
    "staged": staged(lambda _: {"text": "text"}),
    "failed_stage": staged(fails),
    "killed_linked": killed_and(lambda kernel, ctx, victim: kernel.link(ctx.pid, victim)),
}


async def marks_after(way: Way, *, marked: bool, expected: bool) -> None:
    """Run a way between two new processes, the first of which may have a mark; the taker's is as expected."""
    async with Kernel() as kernel:
        giver, taker = await kernel.spawn(performer), await kernel.spawn(performer)
        bystander = await kernel.spawn(listener)
        if marked:
            kernel.taint.mark(giver.pid, "a page")

        def runner(process: Any) -> Do:
            async def do(function: Callable[[Any], Any]) -> None:
                done = kernel.loop.create_future()
                await kernel.send(process, (function, done))
                await done

            return do

        await way(kernel, giver.pid, runner(giver), taker.pid, runner(taker))
        await settle(kernel)
        assert kernel.taint.is_tainted(taker.pid) is expected
        assert not kernel.taint.is_tainted(bystander.pid)


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "plain"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_mark_goes_with_the_text(way: Way, marked: bool) -> None:
    """A process that gets text of a marked one is marked; one that gets text of another is not, nor is a bystander."""
    asyncio.run(asyncio.wait_for(marks_after(way, marked=marked, expected=marked), 20))


async def plainly_killed(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """A process that is ended without a text of the one that ends it."""
    first, second = await kernel.spawn(listener), await kernel.spawn(listener)
    await gives(lambda ctx: kernel.kill(first))
    await takes(lambda ctx: first.wait())
    await takes(lambda ctx: ctx.monitor(second.pid))
    await gives(lambda ctx: kernel.kill(second))


async def numbered(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The table, in which a marked process has a number, a state and a program."""
    await takes(lambda ctx: kernel.list_processes())
    await takes(lambda ctx: kernel.get_process(giver))


async def counted(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """Figures about questions and services."""
    kernel.submit("entry")
    await gives(lambda ctx: kernel.create_interrupt("entry", "confirmation", question="text"))
    await gives(lambda ctx: kernel.register_service({"name": "printer", "metadata": {"text": "text"}}))
    await takes(lambda ctx: (kernel.interrupts.has_pending("entry"), kernel.interrupts.get_counts()))
    await takes(lambda ctx: (kernel.get_system_status(), kernel.services.get_stats(), kernel.get_process_counts()))


async def asked_beside(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """A question about a process that does not get to read it."""
    await gives(lambda ctx: kernel.create_interrupt(taker, "confirmation", question="text"))


async def states_heard(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """Events with states, and with words of the kernel."""
    kinds = ["process.state_changed", "process.stopping", "process.terminated", "process.tainted"]
    await takes(lambda ctx: kernel.on_event(lambda _: None, kinds=kinds))
    other = await kernel.spawn(listener)
    kernel.taint.mark(other.pid, "a page")
    kernel.kill(other)


async def restarted(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The end of a supervisor's child, of which the next child hears nothing."""

    async def child(ctx: Any) -> None:
        await ctx.receive()
        raise ValueError("text")

    supervisor = await kernel.supervise([{"id": "first", "program": child}])
    first = str(supervisor.which_children()[0].pid)
    kernel.taint.mark(first, "a page")
    await kernel.send(first, "go")
    await settle(kernel)
    again = str(supervisor.which_children()[0].pid)
    assert again != first
    assert not kernel.taint.is_tainted(again)
    assert not kernel.taint.is_tainted(supervisor.pid)


@pytest.mark.parametrize(
    "way",
    [plainly_killed, numbered, counted, asked_beside, states_heard, restarted],
    ids=lambda way: way.__name__,
)
def test_without_text_there_is_no_mark(way: Way) -> None:
    asyncio.run(asyncio.wait_for(marks_after(way, marked=True, expected=False), 20))


# What a marked process leaves behind, and what a process reads of it after a restart.
LEFT: dict[str, tuple[Callable[[Kernel], Any], Callable[[Kernel], Any]]] = {
    "a question": (
        lambda kernel: kernel.create_interrupt("entry", "confirmation", question="text"),
        lambda kernel: kernel.get_pending_interrupt("entry"),
    ),
    "an answer": (
        lambda kernel: kernel.resolve_interrupt(kernel.get_pending_interrupt("asked").id, {"text": "text"}),
        lambda kernel: kernel.interrupts.list_interrupts("asked"),
    ),
    "a report": (
        lambda kernel: kernel.report_agent_result("line", {"agent_name": "first", "output": {"text": "text"}}),
        lambda kernel: kernel.get_envelope("line"),
    ),
    "ids": (lambda kernel: kernel.submit("new", request_id="text"), lambda kernel: kernel.get_process("new")),
    "a reason": (lambda kernel: kernel.kill("victim", "text"), lambda kernel: kernel.process("victim").wait()),
    "a service": (
        lambda kernel: kernel.register_service({"name": "printer", "metadata": {"text": "text"}}),
        lambda kernel: kernel.services.get_service("printer"),
    ),
    "a child": (
        lambda kernel: kernel.supervisor("sup").start_child({"id": "text", "program": hears, "args": ["text"]}),
        lambda kernel: kernel.supervisor("sup").which_children(),
    ),
}


async def does(ctx: Any, left: str, step: int) -> None:
    await ctx.receive()

    async def call() -> None:
        result = LEFT[left][step](ctx.own_process.kernel)
        if hasattr(type(result), "__await__"):
            await result

    await ctx.do(call)


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "plain"])
@pytest.mark.parametrize("snapshot", [False, True], ids=["rows", "snapshot"])
@pytest.mark.parametrize("left", LEFT)
def test_the_mark_outlives_its_kernel(tmp_path: Any, left: str, snapshot: bool, marked: bool) -> None:
    path = str(tmp_path / "run.db")

    async def life(step: int) -> bool:
        async with Kernel(path, programs=[does, listener, hears]) as kernel:
            if step == 0:
                await kernel.supervise([], pid="sup")
                for entry in ("entry", "asked"):
                    kernel.submit(entry)
                kernel.create_interrupt("asked", "confirmation", question="?")
                kernel.initialize_orchestration("line", LINE)
                kernel.get_next_instruction("line")
                await kernel.spawn(listener, pid="victim")
            process = await kernel.spawn(does, left, step)
            if marked and step == 0:
                kernel.taint.mark(process.pid, "a page")
            process.send("go")
            ended = await process.wait()
            assert ended.error is None, ended
            if snapshot:
                await settle(kernel)
                await kernel._snapshots.write()
            return kernel.taint.is_tainted(process.pid)

    assert asyncio.run(asyncio.wait_for(life(0), 20)) is marked
    assert asyncio.run(asyncio.wait_for(life(1), 20)) is marked


async def starter(ctx: Any) -> None:
    await ctx.receive()

    async def start() -> None:
        await ctx.own_process.kernel.supervisor("sup").start_child({"id": "text", "program": hears, "args": ["text"]})

    await ctx.do(start)


@pytest.mark.parametrize("restarts", [1, 40], ids=["rows", "checkpoint"])
def test_a_child_of_marked_arguments_is_marked_in_the_next_life(tmp_path: Any, restarts: int) -> None:
    """A supervisor that comes back starts it again with its mark, and its other children without one."""

    async def life(number: int) -> list[bool]:
        async with Kernel(str(tmp_path / "run.db"), programs=[starter, hears, listener]) as kernel:
            if number == 0:
                await kernel.supervise([{"id": "own", "program": listener}], pid="sup", max_restarts=1000)
                process = await kernel.spawn(starter)
                kernel.taint.mark(process.pid, "a page")
                process.send("go")
                assert (await process.wait()).error is None
            for _ in range(restarts):
                for child in await kernel.supervisor("sup").which_children():
                    await kernel.kill(str(child.pid))
            children = await kernel.supervisor("sup").which_children()
            assert [child.id for child in children] == ["own", "text"]
            return [kernel.taint.is_tainted(pid) for pid in ("sup", *(str(child.pid) for child in children))]

    assert [asyncio.run(asyncio.wait_for(life(number), 20)) for number in range(2)] == [[False, False, True]] * 2


async def asker(ctx: Any) -> None:
    await ctx.receive()
    await ctx.ask("text")


async def reader_of_questions(ctx: Any) -> None:
    async def read() -> int:
        return len(ctx.own_process.kernel.interrupts.list_interrupts("asker", status="pending"))

    assert await ctx.do(read) == 1


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "plain"])
def test_a_question_that_waits_keeps_its_mark(tmp_path: Any, marked: bool) -> None:
    """The question of a program is open across a restart, and marks its reader then as before."""

    async def life(number: int) -> bool:
        async with Kernel(str(tmp_path / "run.db"), programs=[asker, reader_of_questions]) as kernel:
            if number == 0:
                await kernel.spawn(asker, pid="asker")
                if marked:
                    kernel.taint.mark("asker", "a page")
                await kernel.send("asker", "go")
            await settle(kernel)
            reader = await kernel.spawn(reader_of_questions)
            assert (await reader.wait()).reason == "normal"
            return kernel.taint.is_tainted(reader.pid)

    assert [asyncio.run(asyncio.wait_for(life(number), 20)) for number in range(2)] == [marked, marked]


def test_the_mark_of_an_entry_goes_with_it() -> None:
    """A pid that is forgotten and used anew has no mark."""

    async def way(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
        await gives(lambda ctx: kernel.submit("entry", request_id="text"))
        assert kernel.taint.is_tainted("entry")
        kernel.terminate("entry")
        kernel.cleanup_process("entry")
        kernel.submit("entry", request_id="the user's own")
        await takes(lambda ctx: kernel.get_process("entry"))

    asyncio.run(asyncio.wait_for(marks_after(way, marked=True, expected=False), 20))


async def board_writer(ctx: Any) -> None:
    kernel = ctx.own_process.kernel
    await ctx.receive()

    async def write() -> None:
        kernel.groups.bb_set("desk", "key", "text")

    await ctx.do(write)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_marked_value_of_a_blackboard_outlives_its_kernel(tmp_path: Any, snapshot: bool) -> None:
    """After a restart a value still marks the process that reads it; written anew by another, it does not."""
    path = str(tmp_path / "run.db")

    async def first() -> None:
        async with Kernel(path) as kernel:
            kernel.groups.create("desk")
            writer = await kernel.spawn(board_writer)
            kernel.taint.mark(writer.pid, "a page")
            writer.send("go")
            await writer.wait()
            if snapshot:
                await settle(kernel)
                await kernel._snapshots.write()

    async def second() -> list[bool]:
        async with Kernel(path) as kernel:
            marks = []
            for _ in range(2):
                reader = await kernel.spawn(board_reader)
                await reader.wait()
                marks.append(kernel.taint.is_tainted(reader.pid))
                kernel.groups.bb_set("desk", "key", "the user's own")
            return marks

    async def board_reader(ctx: Any) -> None:
        async def read() -> Any:
            return ctx.own_process.kernel.groups.bb_get("desk", "key")

        await ctx.do(read)

    asyncio.run(asyncio.wait_for(first(), 20))
    assert asyncio.run(asyncio.wait_for(second(), 20)) == [True, False]
