"""SessionSpending: counts what the model calls of an open session cost, and says how much the next turn may.

Every model call of the session's kernel, also one of a sub-agent or between two turns, is added to the UsageLog as soon
as it is over. `turn_budget` is a Budget of what is left under the limits: `--max-budget-usd` of this run, and
`turn_budget_usd`, `session_budget_usd` and `daily_budget_usd` under `[sage]`. Where one of them is used up, it raises
BudgetExceeded with the name of the setting. Sessions that run at the same time see each other's calls when a turn
begins; together they can pass the limit of a day by what those turns may still spend. A log that cannot be written
stops no turn unless a limit has to be read from it (`problem` says what is wrong).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.core.budgets.budget import Budget
from lyra.core.budgets.money import Money
from lyra.core.clock import Clock
from lyra.core.event import Event, ModelCalled
from lyra.core.secrets.redact import redact
from lyra.errors import BudgetExceeded, StoreError
from lyra.kernel.kernel import Kernel
from lyra.sage.session.usage_log import UsageCall, UsageLog, local_day

_CALLED: Final = "model.called"
_FLAG: Final = "--max-budget-usd"


class SessionSpending:
    """`log` is shared by all sessions of a user; `run_budget` is of this run alone."""

    __slots__ = ("_clean", "_clock", "_config", "_run_budget", "_session", "log", "problem", "turn")

    def __init__(self, log: UsageLog, config: Config, clock: Clock, *, session: str, run_budget: Any = None) -> None:
        self.log = log
        self.turn = 0  # of the calls that come: the last one that has begun
        self.problem = ""  # why the log could not be written
        self._session = session
        self._config = config.sage
        self._clock = clock
        self._clean: Callable[[str], str] = redact  # knows the providers' keys once a kernel is listened to
        limits = Budget(usd=run_budget, name=_FLAG) if isinstance(run_budget, Money) else Budget.of(run_budget)
        self._run_budget = limits

    def listen(self, kernel: Kernel) -> Callable[[], None]:
        """Count the calls of a kernel until the function that is returned is called."""
        self._clean = runtime_of(kernel).clean
        return kernel.on_event(self._count, kinds=(_CALLED,))

    def _count(self, event: Event) -> None:
        called = ModelCalled.from_data(event.data)
        call = UsageCall(
            session=self._session,
            turn=self.turn,
            agent=self._clean(called.agent),
            model=self._clean(called.model),
            input_tokens=called.all_input_tokens,
            output_tokens=called.output_tokens,
            cache_read_tokens=called.cache_read_tokens,
            cache_write_tokens=called.cache_write_tokens,
            cost_micro_usd=None if called.cost_usd is None else called.micro_usd,
        )
        try:
            self.log.add(call, now=self._clock.now())
        except StoreError as error:
            self.problem = error.message

    # ------------------------------------------------------------------ limits

    def limits(self) -> dict[str, tuple[Money, Money]]:
        """The limits that are set: by the name of the setting, what has been spent and what may be."""
        limits: dict[str, tuple[Money, Money]] = {}
        of_run = self._run_budget.limit()
        if of_run is not None:
            limits[_FLAG] = (Money(int(self._run_budget.used())), Money(int(of_run)))
        config = self._config
        if config.turn_budget_usd is not None:
            limits["sage.turn_budget_usd"] = (Money(0), config.turn_budget_usd)
        if config.session_budget_usd is not None:
            limits["sage.session_budget_usd"] = (self.log.spent(session=self._session), config.session_budget_usd)
        if config.daily_budget_usd is not None:
            spent = self.log.spent(day=local_day(self._clock.now()))
            limits["sage.daily_budget_usd"] = (spent, config.daily_budget_usd)
        return limits

    def turn_budget(self) -> Budget | None:
        """What the next turn may spend; None without a limit. BudgetExceeded where nothing is left."""
        left: dict[str, Money] = {}
        for name, (spent, limit) in self.limits().items():
            left[name] = Money(max(limit - spent, 0))
            if spent >= limit:
                raise _used_up(name, spent, limit)
        least = min(left, key=lambda name: left[name], default=None)
        if least is None or least == _FLAG:
            run = self._run_budget
            return run if run.limits_money or run.limits_tokens or run.seconds is not None else None
        return self._run_budget.child(usd=left[least], name=least)


def _used_up(name: str, spent: Money, limit: Money) -> BudgetExceeded:
    words = {
        _FLAG: "this run has",
        "sage.turn_budget_usd": "this turn has",
        "sage.session_budget_usd": "this session has",
        "sage.daily_budget_usd": "today's sessions have",
    }
    return BudgetExceeded(
        f"{words[name]} spent {spent}, and {name} is {limit}",
        hint=f"raise {name}" + (", or wait until tomorrow" if "daily" in name else ""),
        setting=name,
        spent_micro_usd=int(spent),
        limit=int(limit),
    )
