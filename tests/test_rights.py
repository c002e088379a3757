"""Every right of the table stops its act when it is denied, for every caller, and lets it pass when it is allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from lyra import Agent, Kernel, tool, vega
from lyra.core.effect import effect
from lyra.core.rights.capability import VERBS, Grant
from lyra.errors import CapabilityDenied, InvalidTransition
from lyra.kernel import Child
from lyra.models.client import LLMClient
from lyra.models.script import Reply
from lyra.models.sim import SimProvider
from lyra.tools.registry import ToolRegistry
from tests.agents.support import calls, says

Act = Callable[[Any, Kernel], Awaitable[Any]]

# What programs do besides the right in question.
SCOPES = {
    "fs.read": "/project/a.txt",
    "fs.write": "/project/a.txt",
    "process.exec": "pytest",
    "net.http": "api.example.com",
    "net.listen": "127.0.0.1:8080",
    "secrets.read": "api_key",
    "env.read": "HOME",
    "db.read": "orders",
    "db.write": "orders",
    "process.spawn": "worker",
    "process.send": "editor",
    "events.publish": "orders.created",
    "events.subscribe": "orders.created",
    "model.use": "sim/one",
    "tool.use": "add",
    "human.ask": "clarification",
}


class Row(NamedTuple):
    """One act of one caller. `right` is the rule that it needs; `beside` are rights that it needs too. `act` gives
    False where the caller was told of a denial in words."""

    verb: str
    caller: str
    right: str
    act: Callable[[Kernel, Grant], Awaitable[Any]]
    beside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.verb} by {self.caller}"


async def passes(row: Row, grant: Grant) -> bool:
    """Whether the act happens under the grant."""
    async with Kernel() as kernel:
        kernel.on_event(lambda event: answer(kernel, event), kinds=["interrupt.created"])
        try:
            return await row.act(kernel, grant) is not False
        except CapabilityDenied as error:
            if not error.fields["capability"].startswith(row.verb):
                raise
            return False


def answer(kernel: Kernel, event: Any) -> None:
    if event.pid != "entry":  # its question is answered, or not, by the act
        kernel.resolve_interrupt(event.data["id"], {"text": "yes", "approved": True})


# ---------------------------------------------------------------------- callers


async def editor(ctx: Any) -> None:
    await ctx.receive()


async def worker(ctx: Any) -> str:
    return "done"


def program(act: Act) -> Callable[[Kernel, Grant], Awaitable[Any]]:
    """The act in a program, beside a process with the name `editor` in the group `desk`."""

    async def run(kernel: Kernel, grant: Grant) -> Any:
        at_desk = kernel.spawn(editor, name="editor")
        kernel.groups.create("desk")
        kernel.groups.join("desk", at_desk)
        kernel.groups.bb_set("desk", "key", 1)

        async def main(ctx: Any) -> Any:
            return await act(ctx, kernel)

        return await kernel.run(main, grant=grant)

    return run


def inside(act: Callable[[Any, Kernel], Any]) -> Callable[[Kernel, Grant], Awaitable[Any]]:
    """The act through the kernel's own face, in an effect of a program: no process is named in the call."""

    async def effected(ctx: Any, kernel: Kernel) -> Any:
        async def call() -> None:
            result = act(ctx, kernel)
            if hasattr(type(result), "__await__"):
                await result

        return await ctx.do(call)

    return program(effected)


ENTRY = "process.send:entry"
KERNEL = "process.send:kernel"
PIPELINE = {"name": "review", "agents": [{"name": "draft"}]}


def with_entry(act: Callable[[Kernel, str], Any]) -> Callable[[Kernel, Grant], Awaitable[Any]]:
    """The act inside a process, on an entry of a worker outside, which asks a question."""

    async def run(kernel: Kernel, grant: Grant) -> Any:
        kernel.submit("entry")
        asked = kernel.create_interrupt("entry", "confirmation").id
        return await inside(lambda ctx, kernel: act(kernel, asked))(kernel, grant)

    return run


def with_pipeline(act: Callable[[Kernel], Any]) -> Callable[[Kernel, Grant], Awaitable[Any]]:
    """The act inside a process, on a pipeline that a worker outside drives."""

    async def run(kernel: Kernel, grant: Grant) -> Any:
        kernel.initialize_orchestration("entry", PIPELINE)
        kernel.get_next_instruction("entry")
        return await inside(lambda ctx, kernel: act(kernel))(kernel, grant)

    return run


def resumes(kernel: Kernel) -> None:
    """It waits for no answer, which only a process that may resume it is told."""
    with suppress(InvalidTransition):
        kernel.orchestrator.resume_after_interrupt("entry", None, {})


async def shuts_down(kernel: Kernel, grant: Grant) -> Any:
    """Whether a process that tries to shut the kernel down is not refused."""
    outcome: list[bool] = []

    async def main(ctx: Any) -> None:
        try:
            await asyncio.wait_for(kernel.shutdown(drain_s=0.1), 5)
        except CapabilityDenied:
            outcome.append(False)
            raise
        finally:
            outcome.append(True)

    process = kernel.spawn(main, grant=grant)
    await process.wait()
    return outcome[0]


def agent(*replies: Any, **settings: Any) -> Callable[[Kernel, Grant], Awaitable[Any]]:
    """An agent that gives these replies; False if a tool's result says that the call was denied."""

    async def run(kernel: Kernel, grant: Grant) -> Any:
        model = says(*replies)
        process = await kernel.spawn(Agent("asked", model=model, **settings), grant=grant)
        await process.send("go")
        results = [result for message in process.messages for result in message.tool_results]
        return not any(result.error_code == "permission_denied" for result in results)

    return run


def in_vega(source: str) -> Callable[[Kernel, Grant], Awaitable[Any]]:
    """A Vega program that prints `ok`."""

    async def run(kernel: Kernel, grant: Grant) -> Any:
        lines: list[str] = []
        client = LLMClient()
        client.register("sim", SimProvider(script=lambda request: "fine"))
        kernel.parts["models"] = client
        function, _, body = source.partition("} ") if source.startswith("fn") else ("", "", source)
        guarded = f"{function}}} try {{ {body} }} catch CapabilityDenied(why) {{ print(why); }}"
        await vega.run(guarded if function else source, kernel=kernel, grant=grant, stdout=lines.append)
        assert lines == ["ok"] or "denied" in lines[0], lines
        return lines == ["ok"]

    return run


_WORK = 'fn work() {{ return 1; }} let p = spawn fn work(); {} print("ok");'


def in_vega_with_agent(body: str) -> Callable[[Kernel, Grant], Awaitable[Any]]:
    declared = 'agent Writer { model "sim/script" }\n'
    return in_vega(declared + f"try {{ {body} }} catch CapabilityDenied(why) {{ print(why); }}")


def declared(verb: str) -> Row:
    """An effect that says that it needs the right."""

    @effect(needs=f"{verb}:{SCOPES[verb]}")
    async def act() -> None:
        pass

    async def do(ctx: Any, kernel: Kernel) -> None:
        await ctx.do(act)

    return Row(verb, "a declared effect", f"{verb}:{SCOPES[verb]}", program(do))


@tool
def add(one: int, two: int) -> int:
    """Add two numbers."""
    return one + two


@tool
async def ask_user(ctx: Any) -> str:
    """Ask."""
    return str((await ctx.ask("well?")).text)


async def stage(envelope: Any) -> dict[str, Any]:
    return {"answer": 1}


async def run_pipeline(kernel: Kernel, stage_agent: Any = stage) -> None:
    kernel.register_agent("first", stage_agent)
    config = {"name": "review", "agents": [{"name": "first", "agent": "first"}]}
    async for _ in kernel.execute_pipeline(config, {"raw_input": "x"}):
        pass


async def handler(request: Any) -> None:
    return None


def service(kernel: Kernel) -> None:
    kernel.register_service({"name": "printer", "service_type": "worker", "status": "healthy"})
    kernel.register_handler("printer", handler)


def service_again(kernel: Kernel) -> None:
    kernel.register_handler("printer", handler)


def with_service(act: Callable[[Kernel], Any]) -> Callable[[Kernel, Grant], Awaitable[Any]]:
    async def run(kernel: Kernel, grant: Grant) -> Any:
        service(kernel)
        kernel.register_service(
            {"name": "models", "service_type": "inference", "status": "healthy", "capabilities": ["gpt"]}
        )
        kernel.register_handler("models", handler)
        return await inside(lambda ctx, kernel: act(kernel))(kernel, grant)

    return run


async def asks_agent(kernel: Kernel, grant: Grant) -> Any:
    helper = await kernel.spawn(Agent("helper", model=says("fine")))
    return await inside(lambda ctx, kernel: helper.send("go"))(kernel, grant)


async def spawned(ctx: Any, kernel: Kernel) -> None:
    await ctx.spawn(worker).wait()


async def guarded(ctx: Any, kernel: Kernel) -> None:
    await ctx.spawn(worker, supervision="restart").wait()


async def supervised(ctx: Any, kernel: Kernel) -> None:
    ctx.supervise([Child("w", worker, restart="temporary")])


async def sent(ctx: Any, kernel: Kernel) -> None:
    await ctx.send("editor", "hello")


async def sent_to_child(ctx: Any, kernel: Kernel) -> None:
    await ctx.send(ctx.spawn(editor), "hello")


async def linked(ctx: Any, kernel: Kernel) -> None:
    ctx.link("editor")


async def monitored(ctx: Any, kernel: Kernel) -> None:
    ctx.monitor("editor")


async def stopped(ctx: Any, kernel: Kernel) -> None:
    ctx.stop(ctx.spawn(editor))


async def asked(ctx: Any, kernel: Kernel) -> None:
    await ctx.ask("well?")


@tool(name="add")
async def add_later(one: int, two: int) -> int:
    """Add two numbers."""
    return one + two


async def did_tool(ctx: Any, kernel: Kernel) -> None:
    assert await ctx.do(add_later, 1, 2) == 3


async def pipeline_asks(kernel: Kernel, grant: Grant) -> Any:
    """A stage of a pipeline has a question; the pipeline is started by a process, whose rights it has."""
    from lyra.kernel import AgentResult

    async def curious(envelope: Any) -> Any:
        return AgentResult(interrupt={"kind": "clarification", "question": "well?"})

    ended: list[str] = []
    kernel.on_event(lambda event: ended.append(event.kind), kinds=["capability.denied"])
    await inside(lambda ctx, kernel: run_pipeline(kernel, curious))(kernel, grant)
    return not ended


async def registry_call(kernel: Kernel, grant: Grant) -> Any:
    result = await ToolRegistry([add]).call("add", {"one": 1, "two": 2}, grant=grant)
    return result.error_code != "permission_denied"


async def falls_back(kernel: Kernel, grant: Grant) -> Any:
    """The first model is down, and the second is the one in question."""
    client = LLMClient()
    down = Reply.from_data({"error": {"kind": "overloaded", "message": "busy"}})
    client.register("sim", SimProvider(lambda request: down if request.model == "x" else "fine", every_model=True))
    kernel.parts["models"] = client
    process = await kernel.spawn(Agent("asked", model="sim/x", fallback=["sim/one"], retry=1), grant=grant)
    return await process.send("go")


def bus(act: Callable[[Kernel], Any]) -> Callable[[Kernel, Grant], Awaitable[Any]]:
    async def run(kernel: Kernel, grant: Grant) -> Any:
        kernel.bus.register_handler("orders.known", lambda message: 1)
        return await inside(lambda ctx, kernel: act(kernel))(kernel, grant)

    return run


SPAWN, SEND = "process.spawn:worker", "process.send:editor"
PUBLISH, SUBSCRIBE = "events.publish:orders.**", "events.subscribe:orders.**"
READ, WRITE = "db.read:memories.us", "db.write:memories.us"
BOARD_READ, BOARD_WRITE = "db.read:blackboard.desk", "db.write:blackboard.desk"
MODEL = "model.use:sim/**"

ROWS = [
    *(declared(verb) for verb in VERBS),
    Row("model.use", "an agent", MODEL, agent("fine")),
    Row("model.use", "an agent's fallback", "model.use:sim/one", falls_back, ("model.use:sim/x",)),
    Row(
        "model.use",
        "Vega",
        MODEL,
        in_vega_with_agent('let w = spawn Writer; let said = w <- "hi"; print("ok");'),
        ("process.spawn", "process.send"),
    ),
    Row("model.use", "an inference service", "model.use:gpt", with_service(lambda k: k.dispatch_inference("gpt", "x"))),
    Row("tool.use", "an agent", "tool.use:add", agent(calls("add", one=1, two=2), "fine", tools=[add]), (MODEL,)),
    Row("tool.use", "a program", "tool.use:add", program(did_tool)),
    Row("process.spawn", "ctx.spawn", SPAWN, program(spawned)),
    Row("process.spawn", "ctx.spawn with a guard", SPAWN, program(guarded)),
    Row("process.spawn", "ctx.supervise", SPAWN, program(supervised)),
    Row("process.spawn", "kernel.spawn", SPAWN, inside(lambda ctx, kernel: kernel.spawn(worker))),
    Row("process.spawn", "kernel.supervise", SPAWN, inside(lambda ctx, kernel: kernel.supervise([Child("w", worker)]))),
    Row("process.spawn", "kernel.submit", "process.spawn:job", inside(lambda ctx, kernel: kernel.submit("job"))),
    Row(
        "process.spawn",
        "an agent's helper",
        "process.spawn:helper",
        agent(calls("helper", task="do"), "fine", tools=[Agent("helper", model=says("fine"))]),
        (MODEL, "tool.use"),
    ),
    Row("process.spawn", "a pipeline", "process.spawn:review", inside(lambda ctx, kernel: run_pipeline(kernel))),
    Row("process.spawn", "Vega", "process.spawn:work", in_vega(_WORK.format(""))),
    Row(
        "process.spawn",
        "Vega, of an agent",
        "process.spawn:Writer",
        in_vega_with_agent('let w = spawn Writer; print("ok");'),
    ),
    Row("process.send", "ctx.send", SEND, program(sent)),
    Row("process.send", "ctx.link", SEND, program(linked)),
    Row("process.send", "ctx.monitor", SEND, program(monitored)),
    Row("process.send", "kernel.send", SEND, inside(lambda ctx, kernel: kernel.send("editor", "hello"))),
    Row("process.send", "kernel.kill", SEND, inside(lambda ctx, kernel: kernel.kill("editor"))),
    Row("process.send", "kernel.link", SEND, inside(lambda ctx, kernel: kernel.link(ctx.pid, "editor"))),
    Row("process.send", "kernel.end", SEND, inside(lambda ctx, kernel: kernel.end("editor"))),
    Row(
        "process.send", "an answer", ENTRY, with_entry(lambda k, asked: k.resolve_interrupt(asked, {"approved": True}))
    ),
    Row("process.send", "a taken answer", ENTRY, with_entry(lambda k, asked: k.interrupts.cancel_interrupt(asked))),
    Row(
        "process.send",
        "an answer through the service",
        ENTRY,
        with_entry(lambda k, asked: k.interrupts.resolve_interrupt(asked, {"approved": True})),
    ),
    Row(
        "process.send",
        "an answer by resolve",
        ENTRY,
        with_entry(lambda k, asked: k.interrupts.resolve(asked, {"approved": True})),
    ),
    Row("process.send", "an answer taken by cancel", ENTRY, with_entry(lambda k, asked: k.interrupts.cancel(asked))),
    Row("process.send", "a quota", ENTRY, with_entry(lambda k, _: k.adjust_quota("entry", {"max_llm_calls": 9}))),
    Row("process.send", "a worker's state", ENTRY, with_entry(lambda k, _: k.transition_state("entry", "terminated"))),
    Row("process.send", "a pipeline's end", ENTRY, with_pipeline(lambda k: k.orchestrator.terminate_session("entry"))),
    Row("process.send", "a pipeline's next step", ENTRY, with_pipeline(lambda k: k.get_next_instruction("entry"))),
    Row(
        "process.send",
        "a report",
        ENTRY,
        with_pipeline(lambda k: k.report_agent_result("entry", {"agent_name": "draft", "output": {}})),
    ),
    Row(
        "process.send",
        "an answer that a pipeline goes on with",
        ENTRY,
        with_pipeline(resumes),
    ),
    Row("process.send", "limits", KERNEL, inside(lambda c, k: k.rate_limiter.set_user_limits("u", None))),
    Row("process.send", "a shutdown", KERNEL, shuts_down),
    Row(
        "process.spawn",
        "a pipeline of a worker",
        "process.spawn:review",
        inside(lambda c, k: k.initialize_orchestration("entry", PIPELINE)),
    ),
    Row(
        "process.send", "kernel.terminate", SEND, inside(lambda c, k: k.terminate(k.whereis("editor").pid, force=True))
    ),
    Row("process.send", "a group", "process.send:desk", inside(lambda ctx, kernel: kernel.groups.broadcast("desk", 1))),
    Row("process.send", "a service", "process.send:printer", with_service(lambda k: k.dispatch("printer"))),
    Row("process.send", "an agent's handle", "process.send:helper", asks_agent),
    Row(
        "process.send",
        "Vega",
        "process.send",
        in_vega(_WORK.format("p <- 1;")),
        ("process.spawn",),
    ),
    Row("human.ask", "ctx.ask", "human.ask:clarification", program(asked)),
    Row(
        "human.ask",
        "a tool",
        "human.ask:clarification",
        agent(calls("ask_user"), "fine", tools=[ask_user]),
        (MODEL, "tool.use"),
    ),
    Row(
        "human.ask",
        "create_interrupt",
        "human.ask:confirmation",
        inside(lambda ctx, kernel: kernel.create_interrupt(ctx.pid, "confirmation")),
    ),
    Row("human.ask", "a pipeline", "human.ask:clarification", pipeline_asks, ("process.spawn:review",)),
    Row("events.publish", "bus.publish", PUBLISH, bus(lambda kernel: kernel.bus.publish("orders.known", 1))),
    Row("events.publish", "bus.send", PUBLISH, bus(lambda kernel: kernel.bus.send("orders.known", 1))),
    Row("events.publish", "bus.query", PUBLISH, bus(lambda kernel: kernel.bus.query("orders.known", 1))),
    Row(
        "events.publish",
        "emit_event",
        "events.publish:budget.warning",
        inside(lambda ctx, kernel: kernel.emit_event({"kind": "budget.warning"})),
    ),
    Row("events.subscribe", "bus.subscribe", SUBSCRIBE, bus(lambda kernel: kernel.bus.subscribe("orders.x", print))),
    Row("events.subscribe", "bus.stream", SUBSCRIBE, bus(lambda kernel: kernel.bus.stream("orders.x"))),
    Row("events.subscribe", "a handler", SUBSCRIBE, bus(lambda kernel: kernel.bus.register_handler("orders.x", print))),
    Row(
        "events.subscribe",
        "on_event",
        "events.subscribe:process.**",
        inside(lambda ctx, kernel: kernel.on_event(str, ["process.created"])),
    ),
    Row(
        "events.subscribe",
        "joining a group",
        "events.subscribe:desk",
        inside(lambda ctx, kernel: kernel.groups.join("desk", ctx.pid)),
    ),
    Row("events.subscribe", "a service", "events.subscribe:printer", with_service(service_again)),
    Row("db.write", "memories.add", WRITE, inside(lambda ctx, kernel: kernel.memories.add("us", "x"))),
    Row("db.write", "memories.forget", WRITE, inside(lambda ctx, kernel: kernel.memories.forget(1, scope="us"))),
    Row("db.read", "memories.items", READ, inside(lambda ctx, kernel: kernel.memories.items("us"))),
    Row("db.read", "memories.search", READ, inside(lambda ctx, kernel: kernel.memories.search("us", "x"))),
    Row("db.write", "bb_set", BOARD_WRITE, inside(lambda ctx, kernel: kernel.groups.bb_set("desk", "a", 1))),
    Row("db.write", "bb_delete", BOARD_WRITE, inside(lambda ctx, kernel: kernel.groups.bb_delete("desk", "key"))),
    Row(
        "db.write", "groups.create", "db.write:blackboard.new", inside(lambda ctx, kernel: kernel.groups.create("new"))
    ),
    Row("db.read", "bb_get", BOARD_READ, inside(lambda ctx, kernel: kernel.groups.bb_get("desk", "key"))),
    Row("db.read", "bb_snapshot", BOARD_READ, inside(lambda ctx, kernel: kernel.groups.bb_snapshot("desk"))),
    Row(
        "db.read",
        "an agent's memory",
        READ,
        agent("fine", memory="us"),
        (MODEL, "db.write:memories.us"),
    ),
]


def test_every_verb_has_a_row() -> None:
    """A verb that no row shows is one that may do nothing."""
    assert {row.verb for row in ROWS} == set(VERBS)
    by_callers = {verb for verb in VERBS if any(row.verb == verb and row.caller != "a declared effect" for row in ROWS)}
    own = {"model.use", "tool.use", "process.spawn", "process.send", "human.ask", "db.read", "db.write"}
    assert by_callers >= own | {"events.publish", "events.subscribe"}
    assert all(verb.checked for verb in VERBS.values())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_right_decides(row: Row) -> None:
    """Denied, the act does not happen; not named in a list of what is allowed, neither; named there, it does."""

    async def main() -> None:
        assert await passes(row, Grant.all()), "the act does not work at all"
        assert not await passes(row, Grant(["*"], [row.right])), "it happens under a deny"
        assert not await passes(row, Grant(["*"], [row.verb])), "it happens under a deny of the whole verb"
        assert not await passes(row, Grant(row.beside)), "it happens although the list does not name it"
        assert await passes(row, Grant([*row.beside, row.right])), "it does not happen although the list names it"

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("act", [sent_to_child, stopped], ids=["send", "stop"])
def test_own_children_need_no_rule_unless_denied(act: Act) -> None:
    """A process may send to the children that it may start: it cannot know their pids. A deny counts all the same."""

    async def main() -> None:
        row = Row("process.send", "a parent", "process.send", program(act))
        assert await passes(row, Grant(["process.spawn:editor"]))
        assert not await passes(row, Grant(["*"], ["process.send"]))

    asyncio.run(asyncio.wait_for(main(), 10))
