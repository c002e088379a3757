"""`session budget` and `budget::`: scopes that every call inside draws on, in this process and in those it starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.errors import BudgetExceeded
from lyra.kernel.process.call_keys import upcoming
from lyra.vega.values.values import Money

if TYPE_CHECKING:
    from lyra.vega.runtime.job import VegaJob


_RESERVE: Final = "session.reserve"


def _budget_enter(job: VegaJob, limit: Money) -> None:
    """A session: a scope inside the one around it, for this process and all it starts."""
    outer = scopes.get()
    job.state.sessions.append(outer)
    world = job.world
    if world.is_durable:
        name = f"{job.ctx.own_process.pid}/{job.state.number()}"
        inner = world.session(name, limit, outer[-1])
    else:
        inner = outer[-1].child({"usd": limit})
    scopes.set((*outer[:-1], inner))
    if job.world.picture is not None:
        job.world.picture.session(inner)


def _budget_exit(job: VegaJob) -> None:
    record = job.world.record
    if record is not None:
        record.leave(scopes.get()[-1].name)
    scopes.set(job.state.sessions.pop())


def _budget(job: VegaJob, what: str) -> float:
    scope = scopes.get()[-1]
    reading: Callable[[], Any] = {
        "used": lambda: scope.used("usd"),
        "limit": lambda: scope.limit("usd"),
        "remaining": lambda: scope.remaining("usd"),
    }[what]
    micro_usd = job.ctx.journaled_read(
        f"session.{what}", lambda: None if (amount := reading()) is None else int(amount)
    )
    return math.inf if micro_usd is None else micro_usd / 1_000_000


def _budget_reserve(job: VegaJob, amount: Money) -> None:
    """Whether there is room for an amount; BudgetExceeded before anything is spent."""
    scope = scopes.get()[-1]

    def missing() -> int | None:
        """What is left, where that is not enough."""
        return None if scope.covers("usd", int(amount)) else int(scope.remaining("usd") or 0)

    entry = upcoming(job.process)
    is_kept = entry is None or entry.name == _RESERVE  # runs of old did not write it down
    rest = job.ctx.journaled_read(_RESERVE, missing) if is_kept else missing()
    if rest is not None:
        left = Money(rest)
        raise BudgetExceeded(f"{left} is left, and {amount} was asked for", remaining=left, asked=amount)


BUDGETS: Final[dict[str, Callable[..., Any]]] = {
    "budget_enter": _budget_enter,
    "budget_exit": _budget_exit,
    "budget": _budget,
    "budget_reserve": _budget_reserve,
}
