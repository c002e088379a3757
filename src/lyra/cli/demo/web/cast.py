"""The agents of the web demo and what their simulated models say.

Answers follow from the seed and the question alone. Prices and token counts are those of a mid-sized model, so that
budgets and costs look as they would in earnest.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.agents.agent import Agent
from lyra.kernel.programs.context import Context
from lyra.models.sim import SimProvider
from lyra.tools.function import tool

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


def _provider(replies: list[dict[str, Any]], seed: int, *, first_s: float = 0.6, chunk_s: float = 0.03) -> SimProvider:
    script = {"replies": replies, "seed": seed, "price": _PRICE, "first_s": first_s, "chunk_s": chunk_s}
    return SimProvider(script)


def _failure() -> dict[str, Any]:
    return {"contains": OVERLOADED, "error": {"kind": "overloaded", "message": "the model is overloaded"}}


def _reviewer(topic: str, seed: int, pace: float) -> Agent[Any]:
    usage = {"input_tokens": 1_900, "output_tokens": 140}
    replies: list[dict[str, Any]] = [_failure(), {"one_of": list(REVIEW_TOPICS[topic]), "usage": usage}]
    return Agent(
        topic,
        model=_provider(replies, seed, first_s=0.9 * pace, chunk_s=0.05 * pace),
        system=f"Review the change for {topic}. Be brief.",
        description=f"Reviews changes for {topic}",
        retry=1,
    )


def _writer(seed: int, pace: float) -> Agent[Any]:
    texts = ["Adds paging to the export.", "Makes the token check constant in time.", "Renames two functions."]
    reply = {"one_of": texts, "usage": {"input_tokens": 900, "output_tokens": 60}}
    return Agent(
        "summary",
        model=_provider([reply], seed, first_s=0.5 * pace, chunk_s=0.05 * pace),
        system="Write one line for the change log.",
        description="Writes the line of a change for the change log",
    )


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


def _support(seed: int, pace: float) -> Agent[Any]:
    replies: list[dict[str, Any]] = [
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
    return Agent(
        "support",
        model=_provider(replies, seed, first_s=0.5 * pace, chunk_s=0.05 * pace),
        system="You answer customers of a shop.",
        tools=[find_order, refund],
        description="Answers customers; asks a person before it pays money back",
        budget="$0.50",
    )


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
    {
        "user": "(?i)status|team|how",
        "text": "Let me look.",
        "tool_calls": [{"name": "team_status", "arguments": {}}],
    },
    {"tool": "team_status", "text": "Right now: {result}. Everything is supervised and inside its budget."},
    {"text": "Ask me what this is, how the team is doing, or for a long story, and try Stop."},
]


def _guide(status: Any, seed: int, pace: float) -> Agent[Any]:
    @tool
    async def team_status() -> str:
        """How the team is doing."""
        return str(status())

    return Agent(
        "guide",
        model=_provider(_GUIDE, seed, first_s=0.3 * pace, chunk_s=0.045 * pace),
        system="You explain what the page shows.",
        tools=[team_status],
        description="Explains what you see; ask it what this is",
        budget="$1.00",
    )


def make_cast(status: Any, *, seed: int, pace: float) -> dict[str, Agent[Any]]:
    """The agents by name; `status` is a function that says in words how the team is doing."""
    reviewers = {topic: _reviewer(topic, seed + place, pace) for place, topic in enumerate(REVIEW_TOPICS)}
    return {
        **reviewers,
        "summary": _writer(seed + 11, pace),
        "support": _support(seed, pace),
        "guide": _guide(status, seed, pace),
    }
