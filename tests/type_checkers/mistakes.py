"""A user's program with planted mistakes: a type checker complains about each line marked `wrong`, and no other."""

from dataclasses import dataclass

import lyra
from lyra import Agent, Charged, Context, Kernel, effect, tool


@dataclass
class Review:
    summary: str
    score: int


@tool
def weather(city: str, days: int = 1) -> str:
    return f"{city} {days}"


class Shelf:
    @tool
    def find(self, title: str) -> str:
        return title


@effect
async def fetch(url: str, depth: int = 1) -> Review:
    return Review(url, depth)


@effect(cost="$0.01")
async def pay(amount: int) -> Charged[Review]:
    return Charged(Review("", amount), "$0.01")


async def charge(amount: int, *, idempotency_key: str) -> str:
    return idempotency_key


async def plain(url: str) -> int:
    return len(url)


reviewer = Agent("reviewer", model="sim/echo", output=Review)
writer = Agent("writer", model="sim/echo")


async def child(ctx: Context, path: str, times: int = 1) -> Review:
    await ctx.do(fetch)  # wrong
    await ctx.do(fetch, 5)  # wrong
    await ctx.do(fetch, path, idempotent="yes")  # wrong
    await ctx.do(fetch, 5, idempotent=True)  # wrong
    await ctx.do(fetch, path, dept=2)  # wrong
    await ctx.do(plain, 5)  # wrong
    await ctx.do(plain, path, path)  # wrong
    await ctx.do(plain, path, retry="often")  # wrong
    await ctx.do(pay, "much")  # wrong
    await ctx.do(pay, 5, cost=0.5)  # wrong
    await ctx.do(charge, "much")  # wrong
    await ctx.do(charge, "much", idempotent=True)  # wrong
    print((await ctx.do(fetch, path)).sumary)  # wrong
    print((await ctx.do(pay, 5)).sumary)  # wrong
    print((await ctx.do(charge, 5)).sumary)  # wrong
    print((await lyra.run(reviewer, path, on=ctx)).sumary)  # wrong
    return await ctx.do(plain, path)  # wrong


async def program(ctx: Context, path: str) -> int:
    ctx.spawn(child)  # wrong
    ctx.spawn(child, 5)  # wrong
    ctx.spawn(child, path, "twice")  # wrong
    ctx.spawn(child, path, budget=1)  # wrong
    ctx.spawn(child, path, nam="x")  # wrong
    ctx.spawn(weather, path)  # wrong
    print((await ctx.spawn(child, path).wait()).result.sumary)  # wrong
    return 1


async def main() -> None:
    async with Kernel(budget=1) as kernel:  # wrong
        await kernel.run(program)  # wrong
        await kernel.run(program, 5)  # wrong
        await kernel.run(program, "a", budget=1)  # wrong
        (await kernel.run(program, "a")).sumary  # wrong
        kernel.spawn(program, 5)  # wrong
        (await kernel.run(reviewer, "Look")).sumary  # wrong
        (await kernel.spawn(reviewer, "Look").wait()).result.sumary  # wrong
        kernel.monitor(program, print)  # wrong
        kernel.monitor("p1", "print")  # wrong
        kernel.spawn(program, "a", bugdet="$1")  # wrong
        (await kernel.spawn(child, "a").wait()).result.sumary  # wrong
        process = await kernel.spawn(reviewer)
        (await process.send("Look")).sumary  # wrong
        await process.send(5)  # wrong
        await process.send("Look", budget=1)  # wrong
        await process.send("Look", timeout="3")  # wrong
        (await process.send_async("Look")).sumary  # wrong
        process.send_async("Look").result().sumary  # wrong
        async for piece in process.stream("Look"):
            piece.delta  # wrong
        (await process.stream("Look")).sumary  # wrong
        kernel.spawn(reviewer, budget=1)  # wrong
        (await lyra.pipeline(writer, reviewer)("Bees")).sumary  # wrong
        (await lyra.fan_out("Look", [reviewer]))[0].sumary  # wrong
        (await lyra.fan_in(["a"], reviewer)).sumary  # wrong
        (await lyra.map_reduce(["a"], writer, reviewer)).sumary  # wrong
        (await lyra.batch([(reviewer, "a")]))[0].sumary  # wrong
        (await lyra.batch([(reviewer, "a")], return_exceptions=True))[0].summary  # wrong
        (await lyra.router("a", {"one": reviewer}, by=writer)).sumary  # wrong
        review, reply = await lyra.parallel(process.send("a"), kernel.run(program, "a"))
        print(review.sumary)  # wrong
        print(reply.sumary)  # wrong


async def remote() -> None:
    lyra.connect("127.0.0.1:8420", timout_s=3)  # wrong
    async with lyra.connect("127.0.0.1:8420") as kernel:
        await kernel.submitt("job-1")  # wrong
        await kernel.submit("job-1", prio="high")  # wrong
        await kernel.submit(5)  # wrong
        (await kernel.submit("job-1")).stat  # wrong
        (await kernel.list_processes()).pid  # wrong
        kernel.submit("job-1").pid  # wrong


def script() -> None:
    print(lyra.run(reviewer, "Look").sumary)  # wrong
    print(lyra.run(writer, "Look").sumary)  # wrong
    lyra.run(reviewer, 5)  # wrong
    lyra.run(reviewer, "Look", budget=1)  # wrong
    lyra.run(reviewer, "Look", stor="run.db")  # wrong
    lyra.run("reviewer", "Look")  # wrong
    for text in lyra.stream(reviewer, "Look"):
        print(text.delta)  # wrong
    with lyra.budget(1):  # wrong
        pass
    weather(5)  # wrong
    weather("Oslo", dais=2)  # wrong
    weather("Oslo").sumary  # wrong
    Shelf().find(5)  # wrong
    fetch(5)  # wrong
    Agent("a")  # wrong
    Agent("a", model="sim/echo", budget=1)  # wrong
    Agent("a", model="sim/echo", budget=0.5)  # wrong
    Agent("a", model="sim/echo", output=Review, budget=1)  # wrong
    Agent("a", model="sim/echo", tools="weather")  # wrong
    Agent("a", model="sim/echo", tools=["weather"])  # wrong
    Agent("a", model="sim/echo", tools=[5])  # wrong
    Agent("a", model="sim/echo", output=Review, tools=weather)  # wrong
    Agent("a", model="sim/echo", retry="often")  # wrong
    Agent("a", model="sim/echo", modell="sim/echo")  # wrong
