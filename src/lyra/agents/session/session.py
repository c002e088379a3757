"""A Session: what one agent process remembers while it lives: the transcript, its digest, what was spent.

The transcript only grows. `digest` names it: a running hash over the messages, so that the journal can tell whether a
model call asks the same question as before without hashing a thousand turns each time.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.session.execution import AgentExecution
from lyra.agents.session.toolset import Toolset
from lyra.agents.turn.context_window import Ledger, Window
from lyra.core import codec
from lyra.core.message import Message
from lyra.models.tokens import Conversation
from lyra.models.usage import TokenUsage

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import Agent
    from lyra.agents.session.replies import Pending, Sink
    from lyra.agents.session.spans import Span
    from lyra.kernel.shared.taint import Taint
    from lyra.tools.permissions.decision import Permissions

__all__ = ["Metrics", "Session"]

_BEFORE: Final = "Summary of the conversation before the messages that follow:"


class Metrics(msgspec.Struct):
    """What an agent process did and took so far; `cost_usd`, with helpers, is None once a call had no known price."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_micro_usd: int = 0
    unpriced_calls: int = 0
    calls: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    errors: int = 0
    retries: int = 0
    turns: int = 0
    started_at: float = 0.0
    last_active_at: float = 0.0
    helper_input_tokens: int = 0
    helper_output_tokens: int = 0
    helper_cost_micro_usd: int = 0
    helper_unpriced_calls: int = 0

    @property
    def cost_usd(self) -> float | None:
        _, _, micro_usd, unpriced = self.totals
        return None if unpriced else micro_usd / 1_000_000

    @property
    def totals(self) -> tuple[int, int, int, int]:
        """(input tokens, output tokens, micro-dollars, calls without a price), its own and its helpers'."""
        return (
            self.input_tokens + self.helper_input_tokens,
            self.output_tokens + self.helper_output_tokens,
            self.cost_micro_usd + self.helper_cost_micro_usd,
            self.unpriced_calls + self.helper_unpriced_calls,
        )

    def add_helper(self, totals: tuple[int, int, int, int]) -> None:
        """What a helper took, with those that it asked itself."""
        self.helper_input_tokens += totals[0]
        self.helper_output_tokens += totals[1]
        self.helper_cost_micro_usd += totals[2]
        self.helper_unpriced_calls += totals[3]

    def count(self, usage: TokenUsage, micro_usd: int | None) -> None:
        """A call that was answered."""
        self.calls += 1
        if micro_usd is None:
            self.unpriced_calls += 1
            micro_usd = 0
        self.add(usage, micro_usd)

    def add(self, usage: TokenUsage, micro_usd: int) -> None:
        """Tokens, and what they cost; also those of tries that failed."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cache_read_tokens += usage.cache_read_tokens
        self.cache_write_tokens += usage.cache_write_tokens
        self.cost_micro_usd += micro_usd

    def copy(self) -> Metrics:
        return self.__copy__()  # type: ignore[attr-defined, no-any-return]  # every Struct has it; copy.copy is slower

    def to_data(self) -> dict[str, Any]:
        return {**msgspec.structs.asdict(self), "cost_usd": self.cost_usd}


class Session:
    __slots__ = (
        "_chain",
        "_chained",
        "_window_before",
        "agent",
        "conversation",
        "durable",
        "execution",
        "judged",
        "ledger",
        "marks",
        "messages",
        "metrics",
        "outer",
        "parent_span",
        "permissions",
        "pid",
        "replayed",
        "sink",
        "tools",
        "trace_id",
        "turn",
        "turn_span",
        "wary",
        "window",
    )

    def __init__(self, agent: Agent, conversation: Conversation, *, durable: bool) -> None:
        self.agent = agent
        self.tools = Toolset(agent)
        self.conversation = conversation  # what its messages take, in tokens
        self.durable = durable
        self.messages: list[Message] = []
        self.window = Window()  # what of them is sent to the model
        self.ledger = Ledger()
        self._window_before = self.window
        self.metrics = Metrics()
        self._chain = b""
        self._chained = 0  # messages that are in it
        self.execution: AgentExecution | None = None  # the run that is under way, or the last one
        self.trace_id = ""  # made with the first call that somebody listens to
        self.turn: tuple[int, Pending] | None = None  # that is under way for somebody: where it began, and for whom
        self.turn_span = ""  # of the turn that is under way
        self.replayed = False  # the turn began with answers from the journal
        self.parent_span: str | None = None  # the tool call of another agent that asks, if one does
        self.sink: Sink | None = None  # who hears of the turn that is under way
        self.pid = ""
        self.marks: Taint | None = None  # where it stands who has read text from outside
        self.permissions: Permissions | None = agent.permissions  # its own, or those of the agent that asks
        self.outer: tuple[Permissions, ...] = ()  # of the agents that ask, where it has its own
        self.wary = False  # an agent that asks is, so what this one reads without a mark would reach it unmarked
        self.judged = False  # tainted when the model made the calls that are under way

    @property
    def tainted(self) -> bool:
        """It has read text from outside: what it does next may be somebody else's idea."""
        return self.marks is not None and self.pid in self.marks.state.pids

    @property
    def is_given_up(self) -> bool:
        """Nobody waits any more for the turn that is under way: it is about to be forgotten."""
        return self.turn is not None and self.turn[1].abandoned

    @property
    def said(self) -> list[Message]:
        """The conversation, without a turn that is about to be forgotten."""
        return self.messages[: self.turn[0]] if self.turn is not None and self.is_given_up else self.messages

    @property
    def is_wary(self) -> bool:
        """Calls are decided on here, or above: whatever is not known to be the program's own words leaves a mark."""
        return self.wary or self.permissions is not None or self.tools.guarded

    def taint(self, by: str) -> None:
        if self.marks is not None:
            self.marks.mark(self.pid, by)

    def begin(self, now: float, *, replayed: bool) -> None:
        """A run begins, with what is said next."""
        self.replayed = replayed
        self._window_before = self.window
        self.execution = AgentExecution(self, len(self.messages), now)
        self.turn_span = ""

    def asked_in(self, span: Span | None, own: tuple[str, str | None]) -> None:
        """The next turn belongs to the span that is open around whoever asks, else to where the session began."""
        if span is not None:
            self.trace_id, self.parent_span = span.trace_id, span.span_id or None
        elif self.parent_span != own[1]:
            self.trace_id, self.parent_span = own

    def append(self, message: Message) -> None:
        self.messages.append(message)

    # ------------------------------------------------------------------ what is sent

    def sent(self) -> tuple[Message, ...]:
        """The messages of the next call."""
        window = self.window
        if not window.start:
            return tuple(self.messages)
        head = (self.messages[window.head],) if window.head is not None else ()
        return (*head, *self.messages[window.start :])

    def prompt(self, system: str) -> str:
        """The system prompt of the next call."""
        summary = self.window.summary
        if not summary:
            return system
        return f"{system}\n\n{_BEFORE}\n{summary}" if system else f"{_BEFORE}\n{summary}"

    def move_window(self, window: Window) -> None:
        self.window = window
        self.ledger.counted = 0  # counted for what is no longer sent

    @property
    def digest(self) -> bytes:
        """Made when somebody asks: nobody does after the last answer."""
        if self.durable and self._chained < len(self.messages):
            for message in self.messages[self._chained :]:
                link = _hasher.copy()  # cheaper than setting one up
                link.update(self._chain + codec.canonical(_read_by_model(message)))
                self._chain = link.digest()
                self._chained += 1
        return self._chain

    def to_data(self) -> dict[str, Any]:
        """What a restart begins with."""
        return self.since(0)

    def since(self, mark: int) -> dict[str, Any]:
        """What has come of the turns since there were so many messages."""
        return {
            "messages": [message.to_data() for message in self.messages[mark:]],
            "window": msgspec.structs.asdict(self.window),
            "counted": [self.ledger.counted, self.ledger.upto],
            "metrics": msgspec.structs.asdict(self.metrics),
            "chain": self.digest,
            "known": self.conversation.to_data(),
        }

    def replay(self, data: dict[str, Any]) -> None:
        """The same turns again, by what has come of them."""
        self.messages += [Message.from_data(message) for message in data["messages"]]
        self.window = self._window_before = Window(**data["window"])
        self.ledger.counted, self.ledger.upto = data["counted"]
        self.metrics = msgspec.convert(data["metrics"], Metrics)
        self._chain, self._chained = data["chain"], len(self.messages)
        if "known" in data and not self.window.start:
            self.conversation.load(data["known"], self.messages)

    def cut_back(self, length: int, digest: bytes) -> None:
        """Forget what was appended since: the turn it belonged to did not happen."""
        if self.execution is not None:
            self.execution.keep(self.messages[length:])
        del self.messages[length:]
        self.ledger.forget(length)
        if self.window.start > length:
            self.window = self._window_before
        self._chain, self._chained = digest, length


_hasher: Final = blake2b(digest_size=16)


def _read_by_model(message: Message) -> dict[str, Any]:
    """A message without what the model is not told: so that a journal from before there were codes is the same."""
    data = message.to_data()
    for result in data.get("tool_results", ()):
        result.pop("error_code", None)
    return data
