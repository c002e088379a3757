"""A lead: how much sooner a program is somewhere than its line-by-line run would be.

Calls side by side win time. What goes by the clock can tell: a rate limit has had less of it to refill, a circuit
breaker is still open, a supervisor sees two crashes closer to each other. So a program that is about to meet one of
these gives of its lead back: it waits until the limit is as it can be at best, or until the lead is gone and it is as
late as line by line. Then overlap fails no call that would not have failed without it, and is never the slower way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from lyra.agents.session.early_call import ahead

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import Agent
    from lyra.agents.session.shared import Runtime

__all__ = ["Lead", "in_its_time", "lead"]


class Lead:
    __slots__ = ("is_open", "seconds")

    def __init__(self) -> None:
        self.is_open = True  # the function that wins it is not over
        self.seconds = 0.0  # negative where it is the later one

    def win(self, seconds: float) -> None:
        """A call took so much longer than the program has waited for it; negative: the program waited for nothing."""
        self.seconds += seconds

    async def give_back(self, wanted: Callable[[], float] = lambda: inf) -> None:
        """Wait for as long as somebody wants, who is asked again after that; the whole lead where nobody says."""
        while (wait_s := min(self.seconds, wanted())) > 0.0:
            self.seconds -= wait_s
            await asyncio.sleep(wait_s)


# Of the Python program that runs here: what the outermost `@lyra.parallel` function has won, or the last one before.
# What those before it won is forgotten: a program that waits for others in between is not paced by its calls alone.
lead: ContextVar[Lead | None] = ContextVar("lyra_lead", default=None)


async def in_its_time(runtime: Runtime, agent: Agent, *, timed: bool) -> None:
    """An agent is about to be asked: give its limits the time that they have line by line."""
    won, call = lead.get(), ahead.get()
    if won is not None and won.seconds > 0.0 and (call is None or call.is_due):
        await won.give_back(partial(runtime.ready_in, agent, timed=timed))
