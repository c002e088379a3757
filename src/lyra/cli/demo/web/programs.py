"""The durable programs of the web demo, and the tree that supervises them.

    team              one_for_one
    ├ reviewers       one_for_one, 3 restarts in 60 s
    │ ├ style         each has an agent review one change after the other, inside a budget
    │ ├ security      crashes now and then: its model is overloaded
    │ └ correctness
    ├ writers         one_for_one
    │ └ summary       writes a line for the change log
    └ refunds         has the support agent answer customers; that one asks a person before it pays

A change (`change`) is a run of its own: it asks the reviewers, waits for their reports and has the line written. A
`release` asks a person for its version. The programs are ordinary ones; `office` sends them their work.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from lyra.agents.teams import pipeline
from lyra.cli.demo.web.cast import OVERLOADED, REVIEW_TOPICS
from lyra.core.budgets.budget import Usage
from lyra.core.effect import Charged, Effect
from lyra.core.naming import named
from lyra.kernel.programs.context import Context
from lyra.kernel.supervision.child import Child

TEAM: Final = "team"
TEAM_BUDGET: Final = "$20.00"
CHANGE_BUDGET: Final = "$0.05"
_REVIEWER_BUDGET: Final = "$2.00"
_REPORT_S: Final = 8.0  # a change waits so long for its reviewers


def _reviewer_rights(topic: str) -> list[str]:
    """Start its agent, use the model, and tell the change what came of it; nothing else."""
    return [f"process.spawn:{topic}", "process.send:lyra:demo.web.change", "model.use:**"]


class DemoPrograms:
    """The programs, with the agents that they use. `pace` is 1.0 as a person likes to watch it, 0.0 without pauses."""

    def __init__(self, cast: dict[str, Any], pace: float) -> None:
        self._cast = cast
        self._pace = pace
        self._fetch = Effect(self._fetch_diff, name="fetch_diff", cost="$0.002", idempotent=True)
        self._merge = Effect(self._merge_change, name="merge", cost="$0.001")

    def all(self) -> list[Any]:
        return [self.reviewer, self.summary, self.refunds, self.change, self.release]

    def tree(self) -> list[Child]:
        reviewers = [
            Child(topic, self.reviewer, (topic,), name=topic, budget=_REVIEWER_BUDGET, grant=_reviewer_rights(topic))
            for topic in REVIEW_TOPICS
        ]
        writers = [Child("summary", self.summary, name="summary", budget="$2.00")]
        return [
            Child.supervisor("reviewers", reviewers, max_restarts=3, window_s=60.0, name="reviewers", budget="$8.00"),
            Child.supervisor("writers", writers, name="writers", budget="$4.00"),
            Child("refunds", self.refunds, name="refunds", budget="$1.00"),
        ]

    # ------------------------------------------------------------ the programs
    @named("lyra:demo.web.reviewer")
    async def reviewer(self, ctx: Context, topic: str) -> None:
        """Review one change after the other; a model that fails is a crash, and the supervisor's business."""
        reviewed = int(ctx.restored or 0)
        ask = pipeline(self._cast[topic], on=ctx)
        while True:
            job = await ctx.receive()
            trouble = f" ({OVERLOADED})" if job["trouble"] else ""
            verdict = await ask(f"Change {job['change']}: {job['title']}{trouble}")
            await ctx.send(job["to"], {"from": topic, "verdict": str(verdict)})
            reviewed += 1
            await ctx.checkpoint(reviewed)

    @named("lyra:demo.web.summary")
    async def summary(self, ctx: Context) -> None:
        written = int(ctx.restored or 0)
        write = pipeline(self._cast["summary"], on=ctx)
        while True:
            job = await ctx.receive()
            line = await write(f"Change {job['change']}: {job['title']}")
            await ctx.send(job["to"], {"from": "summary", "verdict": str(line)})
            written += 1
            await ctx.checkpoint(written)

    @named("lyra:demo.web.refunds")
    async def refunds(self, ctx: Context) -> None:
        """Have each letter answered; a question to a person is the agent's own."""
        answered = int(ctx.restored or 0)
        answer = pipeline(self._cast["support"], on=ctx)
        while True:
            letter = await ctx.receive()
            await answer(letter["text"])
            answered += 1
            await ctx.checkpoint(answered)

    @named("lyra:demo.web.change")
    async def change(self, ctx: Context, number: int, title: str, trouble: str) -> dict[str, Any]:
        """One change: read it, have it reviewed, merge it. A reviewer that crashed is asked again once."""
        lines = await ctx.do(self._fetch, number)
        job = {"change": number, "title": title, "to": ctx.pid, "trouble": False}
        for topic in REVIEW_TOPICS:
            await ctx.send(topic, {**job, "trouble": topic == trouble})
        missing = set(REVIEW_TOPICS)
        verdicts: dict[str, str] = {}
        while missing:
            report = await ctx.receive(timeout=_REPORT_S * max(self._pace, 0.2))
            if report is None:
                if trouble not in missing:
                    break
                await ctx.send(trouble, job)
                trouble = ""
                continue
            missing.discard(report["from"])
            verdicts[report["from"]] = report["verdict"]
        await ctx.send("summary", job)
        report = await ctx.receive(timeout=_REPORT_S)
        merged = not missing and bool(await ctx.do(self._merge, number))
        return {"lines": lines, "verdicts": verdicts, "line": report and report["verdict"], "merged": merged}

    @named("lyra:demo.web.release")
    async def release(self, ctx: Context, number: int) -> str:
        message = "The text that you write is the name of the version. Without an answer it is not released."
        answer = await ctx.ask(f"Change {number} is merged. Which version has it?", message=message)
        await ctx.do(self._merge, number)
        return f"change {number} is in {answer.text}"

    # ------------------------------------------------------------ the world outside
    async def _fetch_diff(self, number: int) -> Charged:
        await asyncio.sleep(0.4 * self._pace)
        return Charged(20 + number * 37 % 400, Usage(usd="$0.0012"))

    async def _merge_change(self, number: int) -> bool:
        await asyncio.sleep(0.3 * self._pace)
        return number > 0
