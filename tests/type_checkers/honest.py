"""A user's program in which a type checker finds nothing: every public call that carries a type, used as intended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, assert_type

import lyra
from lyra import Agent, AgentProcess, Charged, Context, Effect, Kernel, Money, Reply, effect, tool
from lyra.agents.teams import Pipeline
from lyra.kernel import Handle


@dataclass
class Review:
    summary: str
    score: int


@dataclass
class Order:
    total: float


@tool
def weather(city: str, days: int = 1) -> str:
    return f"{city} {days}"


@tool(needs=["net.http:example.com"], timeout_s=5)
async def look_up(word: str) -> list[str]:
    return [word]


class Shelf:
    @tool
    def find(self, title: str) -> str:
        return title


@effect
async def fetch(url: str, depth: int = 1) -> Review:
    return Review(url, depth)


@effect(cost="$0.01", idempotent=True, retry=3, needs="net.http:example.com")
async def pay(amount: int) -> Charged[Order]:
    return Charged(Order(amount), "$0.01")


async def charge(amount: int, *, idempotency_key: str) -> str:
    return idempotency_key


async def refund(amount: int, idempotency_key: str) -> str:
    return idempotency_key


async def transfer(amount: int, note: str, *, idempotency_key: str) -> str:
    return note + idempotency_key


async def post(url: str, *, body: Mapping[str, Any], tags: Sequence[str] = ()) -> int:
    return len(url)


async def wide(numbers: Sequence[float], name: str | None, settings: Mapping[str, Any]) -> Review:
    return Review(name or "", len(numbers))


reviewer = Agent("reviewer", model="sim/echo", output=Review, tools=[weather, look_up, Shelf().find], budget="$0.50")
writer = Agent("writer", model="sim/echo", tools=[reviewer, len], budget=Money(500_000), retry=2, memory=True)
clerk = Agent("clerk", model="sim/echo", budget={"usd": "$1.00", "seconds": 30}, fallback=["sim/echo"])
lister = Agent("lister", model="sim/echo", output=list[Review], budget=Decimal("0.5"))
by_schema = Agent("by_schema", model="sim/echo", output={"type": "object"})
either: Agent[Review | Order] = Agent("either", model="sim/echo", output=Review | Order)


async def child(ctx: Context, path: str, times: int = 1) -> Review:
    plain = await ctx.do(fetch, path)
    assert_type(plain, Review)
    assert_type(await ctx.do(fetch, url=path, depth=2), Review)
    assert_type(await ctx.do(fetch, path, times, idempotent=True), Review)
    assert_type(await ctx.do(pay, 5), Order)
    assert_type(await ctx.do(pay, 5, timeout_s=3.0), Order)
    assert_type(await ctx.do(charge, 5), str)
    assert_type(await ctx.do(charge, 5, idempotent=True), str)
    assert_type(await ctx.do(transfer, 5, "rent", idempotent=True), str)
    assert_type(await ctx.do(refund, 5), str)
    assert_type(await ctx.do(post, path, body={"a": 1}), int)
    assert_type(await ctx.do(post, path, body={"a": 1}, tags=["x"], idempotent=True), int)
    assert_type(await ctx.do(wide, [1, 2], None, {"a": 1}), Review)
    assert_type(await ctx.do(wide, [1.5], "x", {"a": 1, "b": "c"}, idempotent=True), Review)
    answer = await lyra.run(reviewer, path, on=ctx)
    assert_type(answer, Review)
    return plain


async def program(ctx: Context, path: str) -> Order:
    ended = await ctx.spawn(child, path).wait()
    assert_type(ended.result, Review)
    await ctx.spawn(child, path, 2, budget="$0.10", name="second")
    helper = ctx.spawn(reviewer, "a task", grant=["net.http:example.com"])
    print(helper.pid, ended.result.summary)
    return Order(1.0)


async def untyped(ctx: Any, *rest: Any) -> Any:
    return rest


async def main() -> None:
    async with Kernel(programs=[program]) as kernel:
        order = await kernel.run(program, "a.txt", budget="$1.00")
        assert_type(order, Order)
        handle = kernel.spawn(program, "a.txt", pid="p1", supervision="restart")
        assert_type(handle, Handle[Order])
        print((await handle.wait()).result.total)
        print(await kernel.run(untyped, 1, 2))
        assert_type(await kernel.run(reviewer, "Look", budget="$0.05"), Review)
        assert_type(await kernel.run(writer, "Hi"), Reply)
        assert_type((await kernel.spawn(reviewer, "Look").wait()).result, Review)
        stop_watching = kernel.monitor(handle, lambda down: print(down.pid, down.reason))
        stop_watching()
        process = await kernel.spawn(reviewer, name="reviewer")
        assert_type(process, AgentProcess[Review])
        assert_type(await process.send("Look", timeout=3, budget="$0.05"), Review)
        pending = process.send_async(["Look", lyra.Image.from_url("https://example.com/a.png")])
        print((await pending).score, pending.result().score)
        async for piece in process.stream("Look"):
            assert_type(piece, str)
        async for event in process.stream("Look", events=True):
            if event.type == "interrupt":
                print(event.question)
            elif event.type == "text_delta":
                print(event.delta)
        assert_type(await process.stream("Look"), Review)
        chat = await kernel.spawn(writer)
        assert_type(await chat.send("Hi"), Reply)
        print((await chat.send("Hi")).cost_usd)
        print((await lyra.run(writer, "Hi", on=kernel)).upper(), (await lyra.run(writer, "Hi")).status)
        steps = lyra.pipeline(writer, reviewer)
        assert_type(steps, Pipeline[Review])
        assert_type(await steps("Bees"), Review)
        assert_type(await lyra.fan_out("Look", [reviewer, reviewer]), list[Review])
        assert_type(await lyra.fan_in(["a", "b"], reviewer), Review)
        assert_type(await lyra.map_reduce(["a"], writer, reviewer), Review)
        assert_type(await lyra.batch([(reviewer, "a"), (reviewer, "b")], limit=2), list[Review])
        assert_type(await lyra.batch([(reviewer, "a")], return_exceptions=True), list[Review | Exception])
        assert_type(await lyra.router("a", {"one": reviewer}, by=clerk), Review)
        review, reply = await lyra.parallel(process.send("a"), chat.send("b"))
        print(review.summary, reply.status)
        assert_type(await lyra.parallel(*[process.send(text) for text in "abc"], limit=2), list[Review])


@lyra.parallel
async def side_by_side(process: AgentProcess[Review]) -> int:
    first = await process.send("a")
    second = await process.send("b")
    return first.score + second.score


async def remote() -> None:
    async with lyra.connect("127.0.0.1:8420", user_id="ada", timeout_s=3) as kernel:
        block = await kernel.submit("job-1", priority="high")
        print(block.pid, block.state, (await kernel.check_quota("job-1")).within_bounds)
        print([process.user_id for process in await kernel.list_processes(state="ready")])
        async for event in kernel.execute_pipeline({"name": "p", "agents": [{"name": "a"}]}, "the input"):
            print(event.type)
    async with lyra.LLMClient({"here": {"base_url": "http://127.0.0.1:8000/v1"}}) as client:
        model = client.model("here/qwen-3", price={"input_usd_per_mtok": 1, "output_usd_per_mtok": 2})
        print(Agent("local", model=model))


def partial_text(error: lyra.errors.BudgetExceeded) -> str:
    return error.partial.upper()


def script() -> None:
    assert_type(lyra.run(reviewer, "Look"), Review)
    print(lyra.run(writer, "Hi").upper(), lyra.run(writer, "Hi", store="run.db").status)
    first: Review = lyra.run(lister, "Look", timeout=3)[0]
    print(first.score, lyra.run(by_schema, "Look")["anything"])
    with lyra.budget("$1.00", llm_calls=3) as spent:
        for text in lyra.stream(reviewer, "Look"):
            print(text.upper(), spent.remaining)
    print(weather("Oslo", days=2).upper(), Shelf().find("Emma").upper())


def any_agent(agent: Agent, act: Effect, handle: Handle, process: AgentProcess) -> None:
    """Without its parameter a class is one of anything."""
    print(lyra.run(agent, "Hi").anything, act, handle.pid, process.pid)
