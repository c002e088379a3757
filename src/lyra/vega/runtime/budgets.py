"""`session budget` and `budget::`: scopes that every call inside draws on, in this process and in those it starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.runtime import scopes
from lyra.errors import BudgetExceeded
from lyra.vega.values import Money

if TYPE_CHECKING:
    from lyra.vega.runtime.job import Job

__all__ = ["BUDGETS"]


def _budget_enter(job: Job, limit: Money) -> None:
    """A session: a scope inside the one around it, for this process and all it starts."""
    outer = scopes.get()
    job.state.sessions.append(outer)
    world = job.world
    if world.is_durable:
        name = f"{job.ctx._process.pid}/{job.state.number()}"
        inner = world.session(name, limit, outer[-1])
    else:
        inner = outer[-1].child({"usd": limit})
    scopes.set((*outer[:-1], inner))
    if job.world.picture is not None:
        job.world.picture.session(inner)


def _budget_exit(job: Job) -> None:
    scopes.set(job.state.sessions.pop())


def _budget(job: Job, what: str) -> float:
    scope = scopes.get()[-1]
    reading: Callable[[], Any] = {
        "used": lambda: scope.used("usd"),
        "limit": lambda: scope.limit("usd"),
        "remaining": lambda: scope.remaining("usd"),
    }[what]
    micro_usd = job.ctx._read(f"session.{what}", lambda: None if (found := reading()) is None else int(found))
    return math.inf if micro_usd is None else micro_usd / 1_000_000


def _budget_reserve(_job: Job, amount: Money) -> None:
    """Whether there is room for an amount; BudgetExceeded before anything is spent."""
    scope = scopes.get()[-1]
    if not scope.covers("usd", int(amount)):
        left = scope.remaining("usd")
        raise BudgetExceeded(f"{left} is left, and {amount} was asked for", remaining=left, asked=amount)


BUDGETS: Final[dict[str, Callable[..., Any]]] = {
    "budget_enter": _budget_enter,
    "budget_exit": _budget_exit,
    "budget": _budget,
    "budget_reserve": _budget_reserve,
}
