"""The agents of the web demo, the durable programs that use them, and the tree that supervises those.

    team              one_for_one
    ├ reviewers       one_for_one, 3 restarts in 60 s
    │ ├ style         each has an agent review one change after the other, inside a budget
    │ ├ security      crashes now and then: its model is overloaded
    │ └ correctness
    ├ writers         one_for_one
    │ └ summary       writes a line for the change log
    └ refunds         has the support agent answer customers; that one asks a person before it pays

A change (`change`) is its own run: it asks the reviewers, waits for their reports and has the line written. A
`release` asks a person for its version. The programs are ordinary ones; `show` sends them their work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from lyra.agents.agent import Agent
from lyra.agents.teams import pipeline
from lyra.core.budgets.budget import Usage
from lyra.core.effect import Charged, Effect
from lyra.core.naming import give_name
from lyra.kernel.programs.context import Context
from lyra.kernel.supervision.child import Child
from lyra.models.sim import SimProvider
from lyra.tools.function import tool

TEAM: Final = "team"
TEAM_BUDGET: Final = "$20.00"
CHANGE_BUDGET: Final = "$0.05"
_REVIEWER_BUDGET: Final = "$2.00"
_REPORT_S: Final = 8.0  # a change waits so long for its reviewers


def _reviewer_rights(topic: str) -> list[str]:
    """Start its agent, use the model, and tell the change the outcome of it; nothing else."""
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

    @give_name("lyra:demo.web.reviewer")
    async def reviewer(self, ctx: Context, topic: str) -> None:
        """Review one change after the other; a model that fails is a crash, and the supervisor's business."""
        await self._work(ctx, topic)

    @give_name("lyra:demo.web.summary")
    async def summary(self, ctx: Context) -> None:
        await self._work(ctx, "summary")

    @give_name("lyra:demo.web.refunds")
    async def refunds(self, ctx: Context) -> None:
        """Have each letter answered; a question to a person is the agent's own."""
        await self._work(ctx, "support")

    async def _work(self, ctx: Context, agent: str) -> None:
        """Have an agent do one job after the other, and send its answer to the process that wants it."""
        done = int(ctx.restored or 0)
        ask = pipeline(self._cast[agent], on=ctx)
        while True:
            job = await ctx.receive()
            answer = await ask(job["text"])
            if "to" in job:
                await ctx.send(job["to"], {"from": agent, "verdict": str(answer)})
            done += 1
            await ctx.checkpoint(done)

    @give_name("lyra:demo.web.change")
    async def change(self, ctx: Context, number: int, title: str, trouble: str) -> dict[str, Any]:
        """One change: read it, have it reviewed, merge it. A reviewer that crashed is asked again once."""
        lines = await ctx.do(self._fetch, number)
        job = {"text": f"Change {number}: {title}", "to": ctx.pid}
        for topic in REVIEW_TOPICS:
            await ctx.send(topic, job if topic != trouble else {**job, "text": f"{job['text']} ({OVERLOADED})"})
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

    @give_name("lyra:demo.web.release")
    async def release(self, ctx: Context, number: int) -> str:
        message = "The text that you write is the name of the version. Without an answer it is not released."
        answer = await ctx.ask(f"Change {number} is merged. Which version has it?", message=message)
        await ctx.do(self._merge, number)
        return f"change {number} is in {answer.text}"

    async def _fetch_diff(self, number: int) -> Charged:
        await asyncio.sleep(0.4 * self._pace)
        return Charged(20 + number * 37 % 400, Usage(usd="$0.0012"))

    async def _merge_change(self, number: int) -> bool:
        await asyncio.sleep(0.3 * self._pace)
        return number > 0


_PRICE: Final = {"input_usd_per_mtok": "3", "output_usd_per_mtok": "15"}
OVERLOADED: Final = "overloaded"  # in a question: the simulated model fails

REVIEW_TOPICS: Final[dict[str, tuple[str, ...]]] = {
    "style": (
        "Two names are hard to read: `tmp2` and `do_it`. Otherwise fine.",
        "Reads well. One function of 80 lines could be three.",
        "Good. The docstring of `export` says what it does, not how to call it.",
    ),
    "security": (
        "The new endpoint checks the owner before it reads. No finding.",
        "`shell=True` with a name from the request: use a list of arguments.",
        "The token is compared with `==`; use a comparison in constant time.",
    ),
    "correctness": (
        "The loop skips the last page when the total is a multiple of 50.",
        "Tests cover both branches. No finding.",
        "`None` is a valid discount here and is treated as 0: probably meant.",
    ),
}


def _agent(
    name: str, replies: list[dict[str, Any]], seed: int, *, first_s: float, chunk_s: float, **more: Any
) -> Agent[Any]:
    script = {"replies": replies, "seed": seed, "price": _PRICE, "first_s": first_s, "chunk_s": chunk_s}
    return Agent(name, model=SimProvider(script), **more)


@tool
async def find_order(order: str) -> dict[str, Any]:
    """Find an order.

    Args:
        order: its number
    """
    return {"order": order, "total": "$120.00", "paid": "by card", "delivered": "4 days ago"}


@tool
async def refund(ctx: Context, order: str, amount: str) -> str:
    """Pay the money of an order back, after a person has agreed.

    Args:
        order: its number
        amount: how much
    """
    question = f"Refund {amount} for order {order}?"
    answer = await ctx.ask(question, kind="confirmation", message="Yes: the customer is paid. No: support declines.")
    return f"{amount} paid back" if answer.approved else "a person declined the refund"


_SUPPORT: Final[list[dict[str, Any]]] = [
    {
        "user": r"order (?P<order>[A-Z]-\d+)",
        "text": "I'll look at the order.",
        "tool_calls": [{"name": "find_order", "arguments": {"order": "{order}"}}],
        "usage": {"input_tokens": 700, "output_tokens": 40},
    },
    {
        "tool": "find_order",
        "text": "It was delivered, so a person has to agree to the refund.",
        "tool_calls": [{"name": "refund", "arguments": {"order": "{0}", "amount": "$120.00"}}],
        "result": r"[A-Z]-\d+",
        "usage": {"input_tokens": 900, "output_tokens": 55},
    },
    {"tool": "refund", "text": "Done: {result}.", "usage": {"input_tokens": 1_000, "output_tokens": 30}},
    {"text": "Which order is it about? Write its number, such as A-1042.", "usage": {"output_tokens": 20}},
]
_GUIDE: Final[list[dict[str, Any]]] = [
    {
        "user": "(?i)what|lyra|who|hello|hi",
        "text": "You are looking at a team of agents that runs as processes of an operating system. Each has a parent, "
        "a budget and rights. `security` crashes now and then, because its model is overloaded: look at Processes, and "
        "see its supervisor start it again. Nothing that was finished is done twice, not even after a power cut. "
        "Inbox has what waits for you; answer there, and the agent that asked goes on.",
    },
    {
        "user": "(?i)long|story|count",
        "text": " ".join(f"Line {number} of a long answer that you can stop at any time." for number in range(1, 60)),
    },
    {"user": "(?i)status|team|how", "text": "Let me look.", "tool_calls": [{"name": "team_status", "arguments": {}}]},
    {"tool": "team_status", "text": "Right now: {result}. Everything is supervised and inside its budget."},
    {"text": "Ask me what this is, how the team is doing, or for a long story, and try Stop."},
]


_FAILURE: Final = {"contains": OVERLOADED, "error": {"kind": "overloaded", "message": "the model is overloaded"}}
_LINES: Final = ["Adds paging to the export.", "Makes the token check constant in time.", "Renames two functions."]


def make_cast(status: Callable[[], str], *, seed: int, pace: float) -> dict[str, Agent[Any]]:
    """Return the agents by name; `status` is a function that says in words how the team is doing."""

    @tool
    async def team_status() -> str:
        """Return how the team is doing."""
        return status()

    review = {"input_tokens": 1_900, "output_tokens": 140}
    reviewers = [
        _agent(
            topic,
            [_FAILURE, {"one_of": list(verdicts), "usage": review}],
            seed + place,
            first_s=0.9 * pace,
            chunk_s=0.05 * pace,
            system=f"Review the change for {topic}. Be brief.",
            description=f"Reviews changes for {topic}",
            retry=1,
        )
        for place, (topic, verdicts) in enumerate(REVIEW_TOPICS.items())
    ]
    summary = _agent(
        "summary",
        [{"one_of": _LINES, "usage": {"input_tokens": 900, "output_tokens": 60}}],
        seed + 11,
        first_s=0.5 * pace,
        chunk_s=0.05 * pace,
        system="Write one line for the change log.",
        description="Writes the line of a change for the change log",
    )
    support = _agent(
        "support",
        _SUPPORT,
        seed,
        first_s=0.5 * pace,
        chunk_s=0.05 * pace,
        system="You answer customers of a shop.",
        tools=[find_order, refund],
        description="Answers customers; asks a person before it pays money back",
        budget="$0.50",
    )
    guide = _agent(
        "guide",
        _GUIDE,
        seed,
        first_s=0.3 * pace,
        chunk_s=0.045 * pace,
        system="You explain what the page shows.",
        tools=[team_status],
        description="Explains what you see; ask it what this is",
        budget="$1.00",
    )
    return {agent.name: agent for agent in (*reviewers, summary, support, guide)}
