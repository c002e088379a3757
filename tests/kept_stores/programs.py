"""The programs, effects, tools and agents that the kept stores name.

A journal knows a program, an effect and an exception by `module:qualname`, an agent by its name and a tool by its
name. The stores in this folder hold those names for good, so nothing here may ever be renamed, moved or given other
arguments, and no program may ask for its effects in another order. New scenes get new programs.

`performed` lists what reached the outside world in this life of the kernel: effects, tools and model calls. A name in
`held` does not come to an end in this life; that is how `make` leaves work in flight.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import lyra
from lyra import Agent, Context, Kernel, Memory, effect, tool
from lyra.errors import CircuitOpen, Denied, EffectInDoubt, NoSuchProcess, RateLimited
from lyra.kernel import Child
from lyra.models import (
    Finished,
    LLMProvider,
    Request,
    Started,
    StreamEvent,
    TextDelta,
    TokenUsage,
    ToolCall,
    ToolEnd,
    ToolStart,
    UsageSeen,
)

performed: list[str] = []
held: set[str] = set()
kernels: list[Kernel] = []  # the one of this life, for effects that use its services
LARGE = "0123456789abcdef" * 4_100  # too long for a row: the store keeps it as a blob


class Broken(Exception):
    """Raised by programs and effects that are meant to fail."""


async def reach_outside(what: str) -> None:
    performed.append(what)
    if what in held:
        await asyncio.Event().wait()


# ---------------------------------------------------------------------- effects


@effect(idempotent=True)
async def note(text: str) -> str:
    """May be performed twice: after a crash in the middle it is performed again."""
    await reach_outside(f"note {text}")
    return f"noted {text}"


@effect
async def pay(text: str) -> str:
    """May not be performed twice: after a crash in the middle a person decides."""
    await reach_outside(f"pay {text}")
    return f"paid {text}"


@effect(idempotent=True)
async def fetch_large() -> str:
    await reach_outside("fetch_large")
    return LARGE


@effect(idempotent=True)
async def fail(text: str) -> str:
    await reach_outside(f"fail {text}")
    raise Broken(f"{text} is broken")


@effect(idempotent=True, needs="net.http:example.org")
async def browse(url: str) -> str:
    await reach_outside(f"browse {url}")
    return url


@effect(idempotent=True, cost="$0.25")
async def buy(text: str) -> str:
    await reach_outside(f"buy {text}")
    return f"bought {text}"


@effect(idempotent=True, circuit_breaker={"threshold": 2, "reset_after": 7200.0})
async def call_shaky_service(text: str) -> str:
    await reach_outside(f"shaky {text}")
    raise Broken("out of order")


@effect(idempotent=True, rate_limit={"requests_per_minute": 1, "burst": 2, "strategy": "reject"})
async def call_scarce_service(text: str) -> str:
    await reach_outside(f"scarce {text}")
    return f"served {text}"


@effect(idempotent=True)
async def use_service(name: str, text: str) -> str:
    response = await kernels[-1].dispatch(name, {"metadata": {"text": text}})
    return str(response.metadata["answer"])


async def serve(request: Any) -> dict[str, Any]:
    """What the services of the scenes do."""
    await reach_outside(f"service {request.metadata['text']}")
    return {"metadata": {"answer": f"served {request.metadata['text']}"}}


# ---------------------------------------------------------------------- programs


async def worker(ctx: Context, label: str) -> str:
    """A child of supervisors and a member of groups: notes each message; `fall` makes it fail, `end` ends it."""
    await ctx.do(note, f"{label} starts")
    while True:
        message = await ctx.receive()
        if message == "fall":
            raise Broken(f"{label} fell")
        if message == "end":
            return label
        await ctx.do(note, f"{label} hears {message}")


async def head(ctx: Context) -> str:
    """Supervises a child of its own."""
    ctx.supervise([Child("own", worker, ("own",), name="own")])
    return str(await ctx.receive())


async def ask_once(ctx: Context, question: str, kind: str) -> list[Any]:
    answer = await ctx.ask(question, kind=kind)
    noted = await ctx.do(note, f"{question} {answer.text}")
    return [answer.text, answer.approved, noted]


async def client(ctx: Context, request: str) -> list[str]:
    """Two calls of a service, through the door."""
    first = await ctx.do(use_service, "printer", f"{request} one")
    return [first, await ctx.do(use_service, "printer", f"{request} two")]


async def collect(ctx: Context, count: int) -> list[Any]:
    return [await ctx.receive() for _ in range(count)]


async def sleeper(ctx: Context, seconds: float) -> list[Any]:
    """A timer in the middle of the program."""
    began = ctx.now()
    await ctx.do(note, f"sleeps {seconds:g}")
    await ctx.sleep(seconds)
    return [ctx.now() - began, await ctx.do(note, f"slept {seconds:g}")]


async def patient(ctx: Context, seconds: float) -> Any:
    return await ctx.receive(timeout_s=seconds)


async def watcher(ctx: Context, watched: str, linked: str) -> list[Any]:
    """A monitor, a link and trapped exits."""
    ctx.trap_exit()
    ctx.monitor(watched)
    ctx.link(linked)
    signals = [await ctx.receive(), await ctx.receive()]
    return sorted([type(signal).__name__, signal.pid, signal.reason] for signal in signals)


async def tied(ctx: Context, other: str) -> None:
    ctx.link(other)
    await ctx.receive()


async def undecided(ctx: Context, other: str) -> str:
    """Undoes a monitor and a link."""
    ref = ctx.monitor(other)
    ctx.demonitor(ref)
    ctx.link(other)
    ctx.unlink(other)
    return str(await ctx.do(note, "undecided"))


async def parent(ctx: Context) -> list[Any]:
    child = ctx.spawn(collect, 2, name="child")
    ctx.send(child, "from the parent")
    try:
        ctx.send("no such process", "lost")
    except NoSuchProcess as error:
        missing = error.code
    ended = await child.wait()
    return [ended.reason, ended.result, missing]


async def errands(ctx: Context) -> list[Any]:
    """One of each kind of effect; the last is in flight in a parallel branch."""
    results: list[Any] = [await ctx.do(note, "first"), await ctx.do(pay, "once")]
    results.append(len(await ctx.do(fetch_large)))
    try:
        await ctx.do(fail, "it")
    except Broken as error:
        results.append(str(error))
    try:
        await ctx.do(browse, "http://example.org")
    except Denied as error:
        results.append(error.code)
    results.append(await ctx.do(buy, "bread"))
    results.append(str(ctx.budget.remaining("usd")))
    results.append(0.0 <= ctx.random() < 1.0 < ctx.now())
    results += await asyncio.gather(ctx.do(note, "left"), ctx.do(note, "right"))
    results.append(str(ctx.budget.remaining("usd")))
    return results


async def payer(ctx: Context, text: str) -> str:
    try:
        return str(await ctx.do(pay, text))
    except EffectInDoubt as error:
        return str(error.code)


async def counter(ctx: Context) -> int:
    """Checkpoints its count; a restart goes on with it."""
    state = ctx.restored or {"count": 0}
    while state["count"] < 5:
        state["count"] += 1
        await ctx.do(note, f"count {state['count']}")
        await ctx.checkpoint(state)
    return int(state["count"])


async def gated(ctx: Context) -> list[str]:
    """Fails until the circuit breaker is open, and calls until the rate limit refuses; both are shared and durable."""
    results = []
    for text in ("one", "two", "three"):
        try:
            results.append(await ctx.do(call_scarce_service, text))
        except RateLimited:
            results.append("rate limited")
        try:
            await ctx.do(call_shaky_service, text)
        except Broken:
            results.append("broken")
        except CircuitOpen:
            results.append("circuit open")
    return [*results, await ctx.do(note, "gated")]


async def learner(ctx: Context, text: str) -> Any:
    await ctx.receive()
    return await ctx.do(note, text)


# ---------------------------------------------------------------------- pipelines

LINE: dict[str, Any] = {
    "name": "line",
    "agents": [
        {"name": "draft", "default_next": "check"},
        {
            "name": "check",
            "routing_rules": [{"condition": "again", "value": True, "target": "draft"}],
            "default_next": "confirmation",
        },
        {"name": "publish"},
    ],
    "edge_limits": [{"from": "check", "to": "draft", "max_count": 3}],
    "confirmation_resume_stage": "publish",
}
FORK: dict[str, Any] = {
    "name": "fork",
    "agents": [
        {"name": "plan", "default_next": "spread"},
        {"name": "spread", "node_kind": "fork", "branches": ["left", "right"], "default_next": "sum"},
        {"name": "left"},
        {"name": "right"},
        {"name": "sum", "default_next": "clarification"},
        {"name": "tell"},
    ],
    "clarification_resume_stage": "tell",
}
STAGES = ("draft", "check", "publish", "plan", "left", "right", "sum", "tell")


async def run_stage(envelope: Any) -> dict[str, Any]:
    """Every stage of the pipelines that the kernel runs itself: a pipeline checks once, and is sent back once."""
    stage, runs = envelope.current_stage, len(envelope.outputs)
    await reach_outside(f"stage {envelope.raw_input} {stage}")
    return {"said": f"{stage} after {runs}", "again": stage == "check" and "check" not in envelope.outputs}


# ---------------------------------------------------------------------- agents


class KeptModel(LLMProvider):
    """A model whose answer depends on the last message alone.

    `use TOOL ARGUMENTS` calls that tool; the result of a tool is repeated; anything else comes back in brackets.
    """

    name = "kept"

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        last = request.messages[-1]
        said = " ".join(str(result.output) for result in last.tool_results) or last.text.partition("\n")[0]
        if request.system.startswith("You shorten conversations"):
            said = "a summary"
        yield Started("kept", "kept")
        if f"model {said}" in held:
            yield TextDelta("half of ")
        await reach_outside(f"model {said}")
        reason = "end"
        if said.startswith("use ") and not last.tool_results:
            _, name, arguments = said.split(" ", 2)
            yield ToolStart(0, "call", name)
            yield ToolEnd(0, ToolCall("call", name, json.loads(arguments)))
            reason = "tool_calls"
        else:
            for word in f"[{said}]".split(" "):
                yield TextDelta(word if word.endswith("]") else f"{word} ")
        yield UsageSeen(TokenUsage(10, 5))
        yield Finished(reason)


@tool(idempotent=True)
async def look_up(word: str) -> str:
    """Look a word up.

    Args:
        word: which
    """
    await reach_outside(f"look_up {word}")
    return f"meaning of {word}"


@tool
async def order(thing: str) -> str:
    """Order a thing.

    Args:
        thing: which
    """
    await reach_outside(f"order {thing}")
    return f"ordered {thing}"


@tool
async def confirm(ctx: Any, question: str) -> str:
    """Ask a person.

    Args:
        question: which
    """
    answer = await ctx.ask(question, kind="clarification")
    return f"a person said {answer.text}"


KEPT_MODEL = KeptModel()
plain_agent = Agent("plain", model=KEPT_MODEL)
tool_agent = Agent("tool user", model=KEPT_MODEL, tools=[look_up, order, confirm])
helper = Agent("helper", model=KEPT_MODEL, description="Helps.")
lead = Agent("lead", model=KEPT_MODEL, tools=[helper])
remembering = Agent("remembering", model=KEPT_MODEL, memory=Memory("facts", tools=True))
compacting = Agent("compacting", model=KEPT_MODEL, context={"kind": "compact", "tokens": 64, "summary_tokens": 16})
guarded = Agent("guarded", model=KEPT_MODEL, supervision={"strategy": "restart", "max_restarts": 3})
first_of_three = Agent("first", model=KEPT_MODEL)
second_of_three = Agent("second", model=KEPT_MODEL)
third_of_three = Agent("third", model=KEPT_MODEL)


@lyra.parallel
async def review(ctx: Context) -> list[str]:
    """Two calls that do not need each other, and one that needs the second: the first two are made side by side."""
    first = await lyra.run(first_of_three, "one", on=ctx)
    second = await lyra.run(second_of_three, "two", on=ctx)
    third = await lyra.run(third_of_three, f"after {second}", on=ctx)
    return [first, second, third]


PROGRAMS: tuple[Any, ...] = (
    worker, head, ask_once, client, collect, sleeper, patient, watcher, tied, undecided, parent, errands, payer,
    counter, gated, learner, review,
)  # fmt: skip
AGENTS = (
    plain_agent, tool_agent, helper, lead, remembering, compacting, guarded, first_of_three, second_of_three,
    third_of_three,
)  # fmt: skip
