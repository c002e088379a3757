"""ModelCall: one question to a model on its way, with all its tries: what it asks, what it took, what it cost.

A ModelCall is the argument of the model effect (`lyra.agents.turn.model_effect`). The journal knows it by its digest
(what is asked), not by its content, so a thousand turns are not hashed each time. Money for it is reserved in the
process's budget by the door; the reservations in the caller's own scopes (`with lyra.budget(…)`) are here.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.session.events import UsageTold
from lyra.agents.session.replies import Sink, last_answer
from lyra.core.budgets.budget import NOTHING, Budget, Reservation, Usage
from lyra.core.message import Message
from lyra.core.providers import answer_tokens_max
from lyra.core.tool import ToolCall, ToolResult
from lyra.errors import InvalidTransition, LyraError
from lyra.kernel.journal.rows import error_from_row
from lyra.models.stream import Completion, TokenUsage
from lyra.models.tokens import ConversationTokens, answer_tokens

if TYPE_CHECKING:
    from lyra.agents.session.early_call import EarlyCall
    from lyra.agents.session.session import AgentSession, Metrics
    from lyra.agents.session.shared import AgentRuntime
    from lyra.core.policies.rate import RateLimit
    from lyra.core.policies.retry import Retry
    from lyra.models.pricing import Price
    from lyra.models.provider import LLMProvider, Request
    from lyra.models.settings import Timeouts


ANSWER_TOKENS_USUAL: Final = 8_192  # where a model's longest answer is not known, and the least that is reserved


class ModelCall:
    """The question, and what is known of the call while it is made."""

    # Defaults that most calls never change are kept on the class, which saves setting them for each call.
    effect = ""  # the name of its effect
    estimated = False
    price: Price | None = None
    limit: RateLimit | None = None  # of the model, shared by all agents
    span_id = ""  # of its record, where a listener hears it
    attempts = 0  # 0 after the call: its answer came from the journal
    began_s = 0.0  # when the first try began
    micro_usd: int | None = None
    reservations: tuple[Reservation, ...] = ()
    extra: tuple[Reservation, ...] = ()
    budget: Budget | None = None  # the process's
    early_call: EarlyCall | None = None  # the early call of `@lyra.parallel` that it belongs to, if any
    lost = uncovered = NOTHING  # cost of failed tries: all of it, and the part that is not reserved yet
    lost_tokens = TokenUsage()
    unsettled_micro_usd = 0  # what a try that was cut off probably cost, and no budget was charged
    guess = NOTHING  # estimated cost of a try that was cut off, for scopes that count it
    quoted = NOTHING
    is_last = True  # no further model is tried after this one
    is_shortened = False  # the budget pays for a shorter answer than `tokens_wanted`
    retry: Retry | None = None
    waits_sink: Sink | None = None  # told of waits where the answer itself is not streamed

    def __init__(
        self,
        runtime: AgentRuntime,
        request: Request,
        digest: bytes,
        conversation: ConversationTokens,
        resolved: tuple[LLMProvider, str, str],
        *,
        scopes: tuple[Budget, ...],
        sink: Sink | None,
        timeouts: Timeouts | None,
        counts_tokens: bool,
        tokens_least: int,
        pid: str = "",
    ) -> None:
        self.runtime = runtime
        self.pid = pid  # of the process that asks
        self.request = request
        self.has_own_limit = request.max_tokens is None  # the model's own
        wanted = self.tokens_wanted = request.max_tokens or 0  # the longest answer where no budget shortens it
        # For a shorter answer the model is not asked.
        self.tokens_least = tokens_least if self.has_own_limit or tokens_least < wanted else wanted
        self.digest = digest
        self.conversation = conversation
        self.scopes = scopes
        self.sink = sink
        self.timeouts = timeouts
        self.counts_tokens = counts_tokens  # a rate limit counts tokens a minute
        self.provider, _, self.model = resolved
        if self.has_own_limit:
            self.tokens_wanted = answer_tokens_max(self.model) or ANSWER_TOKENS_USUAL
        if runtime.settings.limits:
            self._find_limit()

    def to_data(self) -> bytes:
        """Return the bytes that the journal's hash of the call is made of."""
        return self.digest

    def turn_to(self, resolved: tuple[LLMProvider, str, str]) -> None:
        """Turn to the next fallback, as `AgentModels.find` gives it. The cost of tries at the model before is
        settled."""
        if self.lost.packed:
            self.close()
            self.lost = self.uncovered = NOTHING
            self.lost_tokens = TokenUsage()
            self.unsettled_micro_usd = 0
        self.provider, name, self.model = resolved
        if self.request.model != name:
            self.request = msgspec.structs.replace(self.request, model=name)
        if self.has_own_limit:
            self.tokens_wanted = answer_tokens_max(self.model) or ANSWER_TOKENS_USUAL
        self.attempts = 0
        self.price = None
        self._find_limit()

    def _find_limit(self) -> None:
        """Find the rate limit of the model, which all agents share."""
        limit = self.limit = self.runtime.settings.limits.get(self.model)
        if limit is not None and limit.tokens_per_minute is not None:
            self.counts_tokens = True

    def complete_usage(self, usage: TokenUsage, answer: Message) -> TokenUsage:
        """Return the provider's count; what it is silent about is Lyra's own count, marked as estimated.

        An answer has at most the tokens that were asked for, so its estimate does not pass what was reserved.
        """
        if usage.output_tokens and usage.total_input:
            return usage
        tokens_out = usage.output_tokens or min(answer_tokens(answer), self.request.max_tokens or 10**9)
        tokens_in = usage.input_tokens
        if not usage.total_input:
            tokens_in = self.quoted["input_tokens"] or self.conversation.estimate(self.model, self.request)
        if (tokens_in, tokens_out) == (usage.input_tokens, usage.output_tokens):  # there was nothing to count
            return usage
        return msgspec.structs.replace(usage, input_tokens=tokens_in, output_tokens=tokens_out, estimated=True)

    def lose(self, usage: TokenUsage, partial: Message, *, is_final: bool) -> None:
        """Count the tokens of a failed try, which are paid for all the same: none where nothing came. A provider's
        count is too low before it `is_final`."""
        has_answer = bool(partial.content or partial.tool_calls)
        is_whole = is_final and usage.output_tokens and usage.total_input
        counted = self.estimate_so_far(usage, partial) if has_answer and not is_whole else usage
        if not counted.total_input and not counted.output_tokens:
            return
        self.learn(usage)  # so that the next estimate for this model is high enough
        self._add_lost_tokens(counted)
        self.uncovered = self._usage_of(counted)
        self.lost += self.uncovered

    def estimate_so_far(self, usage: TokenUsage, partial: Message) -> TokenUsage:
        """Tokens of a try that ended too soon: the input as its provider told it when the stream began, else the
        estimate; the output is at least what arrived."""
        tokens_in = usage.input_tokens
        if not usage.total_input:
            tokens_in = self.quoted["input_tokens"] or self.conversation.estimate(self.model, self.request)
        tokens_out = max(usage.output_tokens, min(answer_tokens(partial), self.request.max_tokens or 10**9))
        return msgspec.structs.replace(usage, input_tokens=tokens_in, output_tokens=tokens_out, estimated=True)

    def cut(self, counted: TokenUsage, partial: Message) -> None:
        """Count a try that was cut off; its provider reports no final usage.

        Where a budget limits it, all that was reserved counts as spent, as the provider may have gone on. Otherwise
        budgets are charged what the provider has told, and what the try probably cost is in its record alone
        (`unsettled_micro_usd`): a run with early calls, some of which are cut off, must spend what a serial one does.
        """
        self.learn(counted)
        known = self._usage_of(counted)
        spent = self.quoted if self.estimated else known
        if not spent.usd and known.usd:  # only money that is limited is reserved
            spent += Usage(usd=known.usd)
        has_guess = not spent.usd and self._guess_in_scopes()
        tokens = counted
        if self.early_call is None and not has_guess:
            tokens = self.estimate_so_far(counted, partial)
            self.unsettled_micro_usd += max(0, int(self._usage_of(tokens).usd) - int(spent.usd))
        self._add_lost_tokens(tokens)
        self.lost += spent
        self.settle(self.lost)

    def _guess_in_scopes(self) -> bool:
        """Tell scopes that count calls which were cut off what the question probably cost; True where one does."""
        guess = self._usage_of(TokenUsage(input_tokens=self.quoted["input_tokens"]))
        for scope in self.scopes:
            if scope.cut_off(guess):
                self.guess = guess
        return bool(self.guess.packed)

    def _add_lost_tokens(self, counted: TokenUsage) -> None:
        self.lost_tokens = self.lost_tokens + counted if self.lost.packed else counted

    def learn(self, counted: TokenUsage) -> None:
        """Correct the token estimates by a provider's count; an early call does so only when its turn comes."""
        if self.estimated and not counted.estimated:
            early_call = self.early_call
            later = early_call.learn_later if early_call is not None and not early_call.is_due else None
            self.conversation.learn(self.model, self.request, counted, later)

    def all_tokens(self, completion: Completion | None) -> TokenUsage:
        """Tokens of the call with all its tries."""
        if completion is None:
            return self.lost_tokens
        return completion.usage + self.lost_tokens if self.lost.packed else completion.usage

    def usage_event(self, completion: Completion) -> UsageTold:
        """Return what the call took with all its tries, for the reader of the answer."""
        usage = self.all_tokens(completion)
        cost = None if self.all_micro_usd is None else self.all_micro_usd / 1_000_000
        return UsageTold(usage.total_input, usage.output_tokens, usage.cache_read_tokens, cost, usage.estimated)

    def find_price(self) -> Price | None:
        """Return the price of its model."""
        own = self.provider.price(self.request.model)
        return own if own is not None else self.runtime.models.price(self.provider, self.request.model, self.model)

    def _usage_of(self, counted: TokenUsage) -> Usage:
        price = self.price or self.find_price()
        micro_usd = price.cost(counted) if price is not None else 0
        return Usage.from_call(micro_usd, counted.total_input, counted.output_tokens)

    @property
    def all_micro_usd(self) -> int | None:
        """Cost of the call with all its tries; None where that is not known."""
        if not self.lost.packed:
            return self.micro_usd
        lost = int(self.lost.usd) + self.unsettled_micro_usd
        if self.micro_usd is None:
            return lost or None
        return self.micro_usd + lost

    def cover(self) -> None:
        """Before another try, reserve the cost of the failed one too: the first reservation is for the new try."""
        uncovered, self.uncovered = self.uncovered, NOTHING
        if uncovered.packed:
            for scope in (self.budget, *self.scopes):
                if scope is not None:
                    self.extra = (*self.extra, scope.reserve(uncovered))

    def warn(self) -> None:
        """Publish which of the caller's scopes that only warn were exceeded; the door does so for the process's own."""
        over = [excess.to_data() for reservation in self.reservations for excess in reservation.over]
        if over:
            self.runtime.kernel.publish(self.pid, "budget.warning", {"effect": self.effect, "over": over})

    def close(self) -> None:
        """Settle the caller's scopes with the cost of failed tries; the rest of the reservations is released."""
        self.settle(self.lost)

    def settle(self, usage: Usage) -> None:
        """Settle the caller's scopes with the cost of the call."""
        if not self.extra and not self.reservations:  # no scopes but the process's own, which the door settles
            return
        extra, self.extra = self.extra, ()
        for reservation in extra:
            reservation.scope.release(reservation)
        reservations, self.reservations = self.reservations, ()
        for reservation in reservations:
            if reservation.open:
                reservation.scope.settle(reservation, usage)


# AgentExecution: the record of one run of an agent, from a message to its answer; AgentState: where the run is.


class AgentState(StrEnum):
    INITIALIZING = "initializing"
    READY = "ready"
    THINKING = "thinking"
    EXECUTING_TOOLS = "executing_tools"
    WAITING_PERMISSION = "waiting_permission"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    ERROR = "error"


_INITIALIZING, _READY = AgentState.INITIALIZING, AgentState.READY
_THINKING, _TOOLS, _WAITING = AgentState.THINKING, AgentState.EXECUTING_TOOLS, AgentState.WAITING_PERMISSION
_ENDS: Final = frozenset({AgentState.COMPLETED, AgentState.CANCELLED, AgentState.ERROR})

MOVES: Final[dict[AgentState, frozenset[AgentState]]] = {
    _INITIALIZING: frozenset({_READY}) | _ENDS - {AgentState.COMPLETED},
    _READY: frozenset({_THINKING}) | _ENDS - {AgentState.COMPLETED},
    _THINKING: frozenset({_TOOLS}) | _ENDS,
    _TOOLS: frozenset({_THINKING, _WAITING}) | _ENDS - {AgentState.COMPLETED},
    _WAITING: frozenset({_TOOLS}) | _ENDS - {AgentState.COMPLETED},
    AgentState.COMPLETED: frozenset(),
    AgentState.CANCELLED: frozenset(),
    AgentState.ERROR: frozenset(),
}


class ExecutionStep(msgspec.Struct, frozen=True):
    """One answer of the model, and the results of the tools it called."""

    number: int
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()

    @property
    def failed(self) -> bool:
        return any(result.is_error for result in self.tool_results)

    def to_data(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "text": self.text,
            "tool_calls": [call.to_data() for call in self.tool_calls],
            "tool_results": [result.to_data() for result in self.tool_results],
        }


class AgentExecution:
    """The record of one run. `status` is `success`, or says why the answer was cut off or why there is none."""

    def __init__(self, session: AgentSession, mark: int, now: float, *, before: Metrics | None = None) -> None:
        self._session = session
        self._mark = mark  # the index of its first message
        self._kept: list[Message] | None = None  # the messages of a run that has ended
        # What the session had counted when the run began.
        self.before: Metrics = (session.metrics if before is None else before).copy()
        self._after: Metrics | None = None
        self._status = "success"  # of its answer
        self.state = _READY
        self.started_at = now
        self.ended_at: float | None = None
        self.answer: Any = None
        self.error: LyraError | None = None

    # ------------------------------------------------------------------ the loop's side

    def move(self, state: AgentState) -> None:
        if state not in MOVES[self.state]:
            raise InvalidTransition(f"an agent's run does not go from {self.state} to {state}", state=str(self.state))
        self.state = state

    def keep(self, messages: list[Message]) -> None:
        """Keep messages that the conversation is about to forget."""
        self._kept = messages

    def end(self, now: float, answer: Any, failure: BaseException | None, *, status: str = "success") -> None:
        """Close the record; `status` says whether the answer was cut off."""
        self._status = status
        self.ended_at = now
        if self._kept is None:
            self._kept = self._session.messages[self._mark :]
        self._after = self._session.metrics.copy()
        if failure is None:
            self.answer = answer
            self.move(AgentState.COMPLETED)
        elif isinstance(failure, (asyncio.CancelledError, GeneratorExit)):
            self.move(AgentState.CANCELLED)
        else:
            self.error = failure if isinstance(failure, LyraError) else None
            self.move(AgentState.ERROR)

    def restore(self, messages: list[Message], outcome: dict[str, Any]) -> None:
        """Take over how a run ended from its row in the journal."""
        self._after, self._kept = self._session.metrics.copy(), messages
        self.started_at, self.ended_at = outcome.get("ran") or [self._after.last_active_at] * 2
        self._status = str(outcome.get("status", "success"))
        if "error" not in outcome:
            self.answer, self.state = last_answer(messages), AgentState.COMPLETED
            return
        if outcome["error"].get("type") == asyncio.CancelledError.__name__:
            self.state = AgentState.CANCELLED
            return
        error = error_from_row(outcome["error"])
        self.error, self.state = error if isinstance(error, LyraError) else None, AgentState.ERROR

    # ------------------------------------------------------------------ the reader's side

    def before_data(self) -> dict[str, Any]:
        """Return what its session had counted when the run began, for a checkpoint."""
        return msgspec.structs.asdict(self.before)

    @property
    def agent(self) -> str:
        return self._session.agent.name

    @property
    def place(self) -> str:
        """Return where in its conversation it began, the same when it is replayed."""
        return f"{self._mark}:{self.before.turns}"

    @property
    def running(self) -> bool:
        return self.state not in _ENDS

    @property
    def is_success(self) -> bool:
        return self.state is AgentState.COMPLETED

    @property
    def status(self) -> str:
        """`running`, `success`, `cancelled`, `max_tokens` or `budget` for an answer that was cut off, or the word for
        what went wrong."""
        if self.error is not None:
            return str(self.error.fields.get("status") or self.error.fields.get("kind") or self.error.code)
        words = {AgentState.COMPLETED: self._status, AgentState.CANCELLED: "cancelled", AgentState.ERROR: "crashed"}
        return words.get(self.state, "running")

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of this run, the question first."""
        return tuple(self._kept if self._kept is not None else self._session.messages[self._mark :])

    @property
    def steps(self) -> tuple[ExecutionStep, ...]:
        steps: list[ExecutionStep] = []
        for message in self.messages:
            if message.role == "assistant":
                steps.append(ExecutionStep(len(steps) + 1, message.text, message.tool_calls))
            elif message.role == "tool" and steps:
                steps[-1] = msgspec.structs.replace(steps[-1], tool_results=message.tool_results)
        return tuple(steps)

    @property
    def usage(self) -> dict[str, int]:
        """Tokens, micro-dollars and calls of this run."""
        after = self._after if self._after is not None else self._session.metrics
        return {name: getattr(after, name) - getattr(self.before, name) for name in _COUNTED}

    @property
    def cost_usd(self) -> float | None:
        """None where a call had no known price."""
        usage = self.usage
        return None if usage["unpriced_calls"] else usage["cost_micro_usd"] / 1_000_000

    def to_data(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "state": str(self.state),
            "status": self.status,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "steps": [step.to_data() for step in self.steps],
            "usage": self.usage,
            "cost_usd": self.cost_usd,
            "error": None if self.error is None else {"code": self.error.code, "message": self.error.message},
        }

    def __repr__(self) -> str:
        return f"<AgentExecution {self.agent} {self.status}, {len(self.steps)} steps>"


_COUNTED: Final = (
    "input_tokens",
    "output_tokens",
    "cost_micro_usd",
    "unpriced_calls",
    "calls",
    "estimated_calls",
    "tool_calls",
    "tool_errors",
    "retries",
)
