"""Time won by overlapping calls, and how a program gives it back before it meets a limit that goes by the clock.

An overlapped program reaches rate limits, circuit breakers and restart windows earlier than its line-by-line run would:
a rate limit has had less time to refill, a breaker is still open, two crashes are closer together. Before such a check
the program waits until the limit is as permissive as it can get, or until the time won is used up. So overlap fails no
call that would not have failed without it, and is never slower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from lyra.agents.session.early_call import current_early_call

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.agents.session.shared import AgentRuntime


class TimeWon:
    __slots__ = ("is_open", "seconds")

    def __init__(self) -> None:
        self.is_open = True  # until the function that wins it has ended
        self.seconds = 0.0  # negative if the overlapped run is behind the line-by-line run

    def win(self, seconds: float) -> None:
        """Add what a call took beyond the program's wait for it; negative if the program waited for nothing."""
        self.seconds += seconds

    async def give_back(self, wanted: Callable[[], float] = lambda: inf) -> None:
        """Wait as long as `wanted` says, which is asked again afterwards; without it, all the time won."""
        while (wait_s := min(self.seconds, wanted())) > 0.0:
            self.seconds -= wait_s
            await asyncio.sleep(wait_s)


# Of the Python program that runs here: the time won by the outermost `@lyra.parallel` function, or by the last one.
# Earlier ones do not count: a program that waits for others in between is not paced by its calls alone.
time_won: ContextVar[TimeWon | None] = ContextVar("lyra_lead", default=None)


async def wait_for_limits(runtime: AgentRuntime, agent: AgentDeclaration, *, timed: bool) -> None:
    """Before an agent is asked, give its limits the time that they have in the line-by-line run."""
    won, early_call = time_won.get(), current_early_call.get()
    if won is not None and won.seconds > 0.0 and (early_call is None or early_call.is_due):
        await won.give_back(partial(runtime.models.ready_in, agent, timed=timed))
