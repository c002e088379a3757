"""The figures of an open session: what it has used, and what its context window is filled with.

`usage_figures` reads the UsageLog. `context_figures` measures the parts of the next request: the system prompt, what is
remembered, the tools, the messages. A provider counts a request as a whole; where it has, the parts are scaled to its
count, else they are estimates. SessionSpending counts what model calls cost and says how much the next turn may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lyra.agents.agent import Agent
from lyra.agents.declaration.hooks import ContextPolicy
from lyra.agents.session.session import SUMMARY_HEADING, AgentSession, cache_of
from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.core.budgets.budget import Budget
from lyra.core.budgets.money import Money
from lyra.core.clock import Clock
from lyra.core.event import Event, ModelCalled
from lyra.core.secrets.redact import redact
from lyra.errors import BudgetExceeded, ConfigError, StoreError
from lyra.kernel.kernel import Kernel
from lyra.models.pricing import context_window
from lyra.models.provider import Request
from lyra.models.tokens import MESSAGE_TOKENS, TOOLS_TOKENS, Measure, Size
from lyra.sage.agent.equipment import SessionPrompt
from lyra.sage.project.prompt import RULES_HEADING, SUBFOLDER_RULES
from lyra.sage.session.usage_log import UsageCall, UsageLog, UsageSum, local_day

_TOKENS_A_BYTE: Final = 0.3  # of text with spaces: prose has fewer, code a little more
_TOKENS_A_DENSE_BYTE: Final = 0.6
_IMAGE_TOKENS: Final = 1_500
_NOTHING_USED: Final = UsageSum("", 0.0, 0, 0, 0, 0, 0, 0, 0)


class UsageFigures(NamedTuple):
    """What a session, its last turn, its agents and its models have used; `budget_usd` is its tightest limit."""

    total: UsageSum
    turn: UsageSum
    agents: dict[str, UsageSum]
    models: dict[str, UsageSum]
    budget_usd: float | None = None


class ContextTokens(NamedTuple):
    """Tokens of the next request by part, and in all."""

    system: int
    memory: int
    tools: int
    messages: int
    total: int


class ContextFigures(NamedTuple):
    """`window`: tokens that the model can read, None if that is not published. From `compact_at` tokens on the
    conversation is compacted. `estimated`: no provider has counted yet."""

    tokens: ContextTokens
    window: int | None
    compact_at: int | None
    estimated: bool

    @property
    def percent(self) -> int | None:
        """Return how full the window is; None if its size is not known."""
        return min(100, round(100 * self.tokens.total / self.window)) if self.window else None


def usage_figures(spending: SessionSpending, session: str) -> UsageFigures:
    """Return what the session, its last turn, its agents and its models have used, and its tightest limit."""
    log = spending.log
    turns = log.sums("turn", session=session)
    limits = [limit for name, (_, limit) in spending.limits().items() if name != "sage.turn_budget_usd"]
    return UsageFigures(
        total=next(iter(log.sums("session", session=session)), _NOTHING_USED),
        turn=turns[-1] if turns else _NOTHING_USED,
        agents={row.group: row for row in log.sums("agent", session=session)},
        models={row.group: row for row in log.sums("model", session=session)},
        budget_usd=min(limits) / 1_000_000 if limits else None,
    )


def context_figures(agent: Agent, session: AgentSession | None, kernel: Kernel) -> ContextFigures:
    """Measure the next request by part, against the window of the model."""
    system, memory, summary = _prompt_parts(agent)
    tools = session.tools.list_offered(session.messages) if session is not None else agent.toolbox
    messages = session.select_messages() if session is not None else ()
    parts = (
        _text_tokens(system),
        _text_tokens(memory),
        TOOLS_TOKENS + _tokens(Measure().size(Request(model="", messages=(), tools=tools))) if tools else 0,
        _tokens(Measure().messages(messages)) + MESSAGE_TOKENS * len(messages) + _text_tokens(summary),
    )
    total = sum(parts)
    counted = (
        session.ledger.estimate_next(session.messages, session.window) if session and session.ledger.counted else 0
    )
    if counted and total:
        system_size, memory_size, tools_size, messages_size = (round(size * counted / total) for size in parts)
        tokens = ContextTokens(system_size, memory_size, tools_size, messages_size, total=counted)
    else:
        tokens = ContextTokens(*parts, total=total)
    window = context_window(_full_name(agent, kernel))
    share = (agent.context or ContextPolicy()).share
    return ContextFigures(
        tokens,
        window=window,
        compact_at=int(window * share) if window is not None and share is not None else None,
        estimated=not counted,
    )


def _full_name(agent: Agent, kernel: Kernel) -> str:
    try:
        return runtime_of(kernel).models.find(agent.model)[2]
    except ConfigError:  # such as a key that is missing: the first turn says so
        return str(agent.model)


def _prompt_parts(agent: Agent) -> tuple[str, str, str]:
    """Return the system prompt of the last call without the project's rules and the summary, and those two."""
    known = cache_of(agent).settings
    prompt = known[0] if known is not None else _first_prompt(agent.system)
    prompt, _, summary = prompt.partition(SUMMARY_HEADING)
    before, mark, rest = prompt.partition(RULES_HEADING)
    rules, subfolders, after = rest.partition(SUBFOLDER_RULES)
    return f"{before}{subfolders}{after}", f"{mark}{rules}", summary


def _text_tokens(text: str) -> int:
    return _tokens(Measure().size(Request(model="", messages=(), system=text))) if text else 0


def _first_prompt(system: Any) -> str:
    """Return the system prompt before any call: a text, or that which a SessionPrompt would give now."""
    return system.now() if isinstance(system, SessionPrompt) else system if isinstance(system, str) else ""


def _tokens(size: Size) -> int:
    return int(size.wordy * _TOKENS_A_BYTE + size.dense * _TOKENS_A_DENSE_BYTE) + size.images * _IMAGE_TOKENS


_CALLED: Final = "model.called"
_FLAG: Final = "--max-budget-usd"


class SessionSpending:
    """Counts what the model calls of an open session cost, and says how much the next turn may. `log` is shared by all
    sessions of a user; `run_budget` is of this run alone."""

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

    def limits(self) -> dict[str, tuple[Money, Money]]:
        """Return the limits that are set: by the name of the setting, what has been spent and what may be."""
        limits: dict[str, tuple[Money, Money]] = {}
        of_run = self._run_budget.limit()
        if of_run is not None:
            limits[_FLAG] = (Money(int(self._run_budget.used())), Money(int(of_run)))
        config = self._config
        if config.turn_budget_usd is not None:
            limits["sage.turn_budget_usd"] = (Money(0), config.turn_budget_usd)
        if config.session_budget_usd is not None:
            limits["sage.session_budget_usd"] = (self.log.sum_cost(session=self._session), config.session_budget_usd)
        if config.daily_budget_usd is not None:
            spent = self.log.sum_cost(day=local_day(self._clock.now()))
            limits["sage.daily_budget_usd"] = (spent, config.daily_budget_usd)
        return limits

    def turn_budget(self) -> Budget | None:
        """Return what the next turn may spend; None without a limit. BudgetExceeded where nothing is left."""
        left: dict[str, Money] = {}
        for name, (spent, limit) in self.limits().items():
            left[name] = Money(max(limit - spent, 0))
            if spent >= limit:
                raise _make_budget_error(name, spent, limit)
        least = min(left, key=lambda name: left[name], default=None)
        if least is None or least == _FLAG:
            run = self._run_budget
            return run if run.limits_money or run.limits_tokens or run.seconds is not None else None
        return self._run_budget.child(usd=left[least], name=least)


def _make_budget_error(name: str, spent: Money, limit: Money) -> BudgetExceeded:
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
