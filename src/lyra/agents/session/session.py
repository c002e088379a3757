"""AgentSession: the state of one agent process while it lives: the transcript, its digest, its metrics.

The transcript only grows. `digest` names it: a running hash over the messages, so that the journal can tell whether a
model call asks the same question as before without hashing a thousand turns each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import msgspec

from lyra.agents.session.model_call import AgentExecution
from lyra.agents.session.toolset import OwnTools, Toolset
from lyra.core import codec
from lyra.core.message import Message
from lyra.models.stream import TokenUsage
from lyra.models.tokens import DENSE, MESSAGE_TOKENS, WORDY, ConversationTokens, Measure

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.agents.declaration.hooks import AgentHooks
    from lyra.agents.session.replies import Pending, Sink
    from lyra.core.effect import Effect
    from lyra.core.secrets.known_keys import KnownKeys
    from lyra.core.tool import Tool
    from lyra.core.trace_context import TraceSpan
    from lyra.kernel.shared.taint import Taint
    from lyra.tools.permissions.decision import Permissions


CHECKPOINT_EVERY: Final = 64  # messages: the most that a restart has to replay
TURN: Final = "turn"  # the milestone of a turn
COMPACTED: Final = "compact"  # the milestone of an order to move the window
REVISE: Final = "lyra.revise"  # an order to keep some messages and add others
SUMMARY_HEADING: Final = "Summary of the conversation before the messages that follow:"


class Metrics(msgspec.Struct):
    """Counts of an agent process so far; `input_tokens` has those of a provider's cache in it, for every provider.
    `cost_usd`, with helpers, is None once a call had no known price."""

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
    estimated_calls: int = 0  # calls whose provider did not count their tokens: Lyra's own count is in the sums

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
        """Add the totals of a helper, which include those of its own helpers."""
        self.helper_input_tokens += totals[0]
        self.helper_output_tokens += totals[1]
        self.helper_cost_micro_usd += totals[2]
        self.helper_unpriced_calls += totals[3]

    def count(self, usage: TokenUsage, micro_usd: int | None) -> None:
        """Count a call that was answered."""
        self.calls += 1
        if usage.estimated:
            self.estimated_calls += 1
        if micro_usd is None:
            self.unpriced_calls += 1
        else:
            self.cost_micro_usd += micro_usd
        self.input_tokens += usage.total_input
        self.output_tokens += usage.output_tokens
        self.cache_read_tokens += usage.cache_read_tokens
        self.cache_write_tokens += usage.cache_write_tokens

    def add(self, usage: TokenUsage, micro_usd: int) -> None:
        """Add the tokens and the cost of tries that failed."""
        self.input_tokens += usage.total_input
        self.output_tokens += usage.output_tokens
        self.cache_read_tokens += usage.cache_read_tokens
        self.cache_write_tokens += usage.cache_write_tokens
        self.cost_micro_usd += micro_usd

    if TYPE_CHECKING:

        def copy(self) -> Metrics: ...

    else:
        copy = msgspec.Struct.__copy__  # every Struct has it; copy.copy is slower

    def count_since(self, before: Metrics) -> tuple[float | None, int, int]:
        """(dollars, input tokens, output tokens) since then, the helpers' part included; None dollars where a call had
        no known price."""
        micro_usd = self.cost_micro_usd + self.helper_cost_micro_usd
        micro_usd -= before.cost_micro_usd + before.helper_cost_micro_usd
        unpriced = self.unpriced_calls + self.helper_unpriced_calls
        return (
            None if unpriced > before.unpriced_calls + before.helper_unpriced_calls else micro_usd / 1_000_000,
            self.input_tokens + self.helper_input_tokens - before.input_tokens - before.helper_input_tokens,
            self.output_tokens + self.helper_output_tokens - before.output_tokens - before.helper_output_tokens,
        )

    def to_data(self) -> dict[str, Any]:
        return {**msgspec.structs.asdict(self), "cost_usd": self.cost_usd}


class AgentSession:
    __slots__ = (
        "_chain",
        "_chained",
        "_window_before",
        "agent",
        "cache",
        "conversation",
        "durable",
        "execution",
        "hooks",
        "judged",
        "judged_own",
        "ledger",
        "limits",
        "marks",
        "messages",
        "metrics",
        "outer",
        "outer_span",
        "parent_span",
        "permissions",
        "pid",
        "replayed",
        "request_id",
        "sampled",
        "session_span",
        "sink",
        "subagent_type",
        "tool_effects",
        "tools",
        "trace_id",
        "turn",
        "turn_span",
        "wary",
        "window",
    )

    def __init__(
        self,
        agent: AgentDeclaration,
        conversation: ConversationTokens,
        *,
        durable: bool,
        tool_effects: dict[str, tuple[Tool, Effect]] | None = None,
    ) -> None:
        self.agent = agent
        self.cache: AgentCache = cache_of(agent)
        self.tool_effects = {} if tool_effects is None else tool_effects  # by name; shared by the agent's sessions
        self.tools = Toolset(agent, self.cache.own_tools)
        self.conversation = conversation  # token estimates of its messages
        self.durable = durable
        self.messages: list[Message] = []
        self.window = Window()  # the part of them that is sent to the model
        self.ledger = Ledger()
        self._window_before = self.window
        self.metrics = Metrics()
        self._chain = b""
        self._chained = 0  # how many messages are in it
        self.execution: AgentExecution | None = None  # the run that is under way, or the last one
        self.trace_id = ""  # made with the first record that has a listener
        self.turn: tuple[int, Pending] | None = (
            None  # the turn under way for a caller: its first message, and its answer
        )
        self.request_id = ""  # of the turn that is under way or was last; empty for a message that awaits no answer
        self.turn_span = ""  # of the turn that is under way
        self.replayed = False  # the turn began with answers from the journal
        # The span that the turn belongs to: the caller's, such as the tool call of another agent, or the session's.
        self.parent_span: str | None = None
        self.outer_span: TraceSpan | None = None  # that was open around the code that spawned the process
        self.session_span: TraceSpan | None = None  # of a root process whose end a listener hears
        self.sampled: bool | None = None  # what a caller outside decided about the trace
        self.sink: Sink | None = None  # the stream of the turn that is under way
        self.pid = ""
        self.marks: Taint | None = None  # which processes have read text from outside
        self.permissions: Permissions | None = agent.permissions  # its own, or those of the agent that asks
        self.outer: tuple[Permissions, ...] = ()  # of the agents that ask, where it has its own
        self.limits: tuple[Permissions, ...] = ()  # of the message under way
        self.hooks: AgentHooks | None = agent.hooks  # its own, or those of the agent that asks
        self.subagent_type = ""  # what hooks call it, where it works for another agent
        self.wary = False  # its caller is wary, so what this one reads has to taint
        self.judged = False  # tainted when the model made the calls that are under way
        self.judged_own = False  # then only with text of the user's own project

    @property
    def tainted(self) -> bool:
        """Whether it has read text from outside, which may have told it what to do next."""
        return self.marks is not None and self.pid in self.marks.state.pids

    @property
    def is_given_up(self) -> bool:
        """Whether the caller of the turn under way has left: the turn is about to be forgotten."""
        return self.turn is not None and self.turn[1].abandoned

    @property
    def visible_messages(self) -> list[Message]:
        """The conversation, without a turn that is about to be forgotten."""
        return self.messages[: self.turn[0]] if self.turn is not None and self.is_given_up else self.messages

    @property
    def is_wary(self) -> bool:
        """Whether calls are decided on, here or for the caller: output of tools that are not trusted then taints."""
        return self.wary or self.permissions is not None or self.tools.guarded

    @property
    def default_permissions(self) -> Permissions:
        """The permissions for guarded tools where neither the agent nor its caller has any."""
        return self.cache.default_permissions(self.agent)

    @property
    def enclosing(self) -> tuple[Permissions, ...]:
        """The permissions that narrow its own: those of the agents that ask, and the limits of the message."""
        return (*self.outer, *self.limits)

    def judges(self, tool: Tool) -> bool:
        """Return whether its permissions decide on calls of a tool. They do on Lyra's own file tools: files may hold
        keys."""
        return self.permissions is not None or tool.guarded or (tool.builtin and bool(tool.folders))

    def limit(self, rules: Iterable[str]) -> None:
        """Until the message is answered, allow only calls that one of these rules matches; a second limit narrows the
        first."""
        self.limits += ((self.permissions or self.default_permissions).limit(rules),)

    @property
    def has_outside_text(self) -> bool:
        """Whether some of what it has read is not of the user's own project."""
        return self.marks is not None and self.marks.is_from_outside(self.pid)

    def taint(self, by: str, *, own: bool = False) -> None:
        """Mark its process; `own`: by text of the user's own project."""
        if self.marks is not None:
            self.marks.mark(self.pid, by, own=own)

    def begin(self, now: float, *, replayed: bool, request_id: str = "") -> None:
        """Begin a run with the next message."""
        self.replayed = replayed
        self.request_id = request_id
        self.limits = ()
        self._window_before = self.window
        self.execution = AgentExecution(self, len(self.messages), now)
        self.turn_span = ""

    @property
    def place(self) -> tuple[str, str | None, bool | None]:
        """Return where its spans are: the trace, the span that they belong to, and whether a caller wants them
        sampled."""
        return (self.trace_id, self.parent_span, self.sampled)

    def put_next_turn_under(self, span: TraceSpan | None, own: tuple[str, str | None, bool | None]) -> None:
        """Put the next turn under the span that is open around the caller, else under the session's own, which is also
        the place for a caller that is where the session began."""
        if span is not None and not (self.session_span is not None and span == self.outer_span):
            self.trace_id, self.parent_span, self.sampled = span.trace_id, span.span_id or None, span.sampled
        elif self.parent_span != own[1]:
            self.trace_id, self.parent_span, self.sampled = own

    # ------------------------------------------------------------------ what is sent

    def select_messages(self) -> tuple[Message, ...]:
        """Return the messages of the next call."""
        window = self.window
        if not window.start:
            return tuple(self.messages)
        head = (self.messages[window.head],) if window.head is not None else ()
        return (*head, *self.messages[window.start :])

    def prompt(self, system: str) -> str:
        """Return the system prompt of the next call."""
        summary = self.window.summary
        if not summary:
            return system
        return f"{system}\n\n{SUMMARY_HEADING}\n{summary}" if system else f"{SUMMARY_HEADING}\n{summary}"

    def move_window(self, window: Window) -> None:
        self.window = window
        self.ledger.counted = 0  # it was counted for another window

    @property
    def digest(self) -> bytes:
        """The hash of the transcript, computed when it is read: after the last answer it never is."""
        if self.durable and self._chained < len(self.messages):
            for message in self.messages[self._chained :]:
                link = _hasher.copy()  # cheaper than setting one up
                data = _read_by_model(message) if message.tool_results else message.to_data()
                link.update(self._chain + codec.canonical(data))
                self._chain = link.digest()
                self._chained += 1
        return self._chain

    def to_data(self) -> dict[str, Any]:
        """Return the data of a checkpoint."""
        return self.since(0)

    def since(self, mark: int) -> dict[str, Any]:
        """Return the data of the turns since there were `mark` messages, for `replay`."""
        return {
            "messages": [message.to_data() for message in self.messages[mark:]],
            "window": msgspec.structs.asdict(self.window),
            "counted": [self.ledger.counted, self.ledger.upto],
            "metrics": msgspec.structs.asdict(self.metrics),
            "chain": self.digest,
            "known": self.conversation.to_data(),
        }

    def replay(self, data: dict[str, Any]) -> None:
        """Take over finished turns from their data; the last of them is the run that was last."""
        mark, before = len(self.messages), self.metrics
        self.messages += [Message.from_data(message) for message in data["messages"]]
        self.window = self._window_before = Window(**data["window"])
        self.ledger.counted, self.ledger.upto = data["counted"]
        self.metrics = msgspec.convert(data["metrics"], Metrics)
        self._chain, self._chained = data["chain"], len(self.messages)
        if "known" in data and not self.window.start:
            self.conversation.load(data["known"], self.messages)
        if "turn" in data:  # a checkpoint has all turns
            mark, before = data["turn"][0], msgspec.convert(data["turn"][1], Metrics)
        elif not mark and len(self.messages) >= CHECKPOINT_EVERY:
            return  # a checkpoint of an earlier version, which does not say where its last turn began
        if "error" in data or len(self.messages) > mark:
            self.execution = AgentExecution(self, mark, 0.0, before=before)
            self.execution.restore(self.messages[mark:], data)

    def take_over(self, name: str, value: Any) -> None:
        """Take over a step of the journal without running it: a turn, a move of the window, or an order to revise."""
        if name == TURN:
            self.replay(value)
        elif name == COMPACTED:
            self.take_window(value)
        elif (
            not name and isinstance(value, dict) and isinstance(order := value.get("content"), dict) and REVISE in order
        ):
            revision = order[REVISE]
            self.revise(int(revision["keep"]), [Message.from_data(message) for message in revision["add"]])

    def window_data(self) -> dict[str, Any]:
        """Return the window and the counts that moved with it, for `take_window`."""
        return {
            "window": msgspec.structs.asdict(self.window),
            "counted": [self.ledger.counted, self.ledger.upto],
            "metrics": msgspec.structs.asdict(self.metrics),
        }

    def take_window(self, data: dict[str, Any]) -> None:
        self.window = self._window_before = Window(**data["window"])
        self.ledger.counted, self.ledger.upto = data["counted"]
        self.metrics = msgspec.convert(data["metrics"], Metrics)

    def revise(self, keep: int, messages: list[Message]) -> None:
        """Keep the first `keep` messages and put others behind them. A summary of messages that are gone is dropped."""
        keep = min(keep, len(self.messages))
        del self.messages[keep:]
        self.messages += messages
        self.ledger.forget(keep)
        if self.window.start > keep:
            self.window = Window()
        self._window_before = self.window
        self._chain, self._chained = b"", 0

    def cut_back(self, length: int, digest: bytes) -> None:
        """Forget all messages after the first `length`: their turn did not happen."""
        if self.execution is not None:
            self.execution.keep(self.messages[length:])
        del self.messages[length:]
        self.ledger.forget(length)
        if self.window.start > length:
            self.window = self._window_before
        self._chain, self._chained = digest, length


_hasher: Final = blake2b(digest_size=16)


def _read_by_model(message: Message) -> dict[str, Any]:
    """Return a message without error codes, which the model is not told and which older journals do not have."""
    data = message.to_data()
    for result in data.get("tool_results", ()):
        result.pop("error_code", None)
    return data


# What is computed once for an agent and used by all of its processes: model effects, a hash, default permissions.


class AgentCache:
    """The entry of one agent."""

    def __init__(self, agent: AgentDeclaration) -> None:
        self.own_tools = OwnTools.from_agent(agent)
        self.prompt: tuple[KnownKeys, str] | None = None  # its system prompt, and the keys that are masked in it
        self.model_effects: dict[Any, Effect] = {}  # one for each model
        # The system prompt and the tools of the last journaled model call, and the hash of the agent's settings.
        self.settings: tuple[str, tuple[Tool, ...], bytes] | None = None
        self._default_permissions: Permissions | None = None

    def default_permissions(self, agent: AgentDeclaration) -> Permissions:
        """Return the permissions for guarded tools of an agent that names none: those of the files in its tools'
        folders."""
        if self._default_permissions is None:
            from lyra.tools.permissions.settings import permissions_from_files

            self._default_permissions = permissions_from_files(agent.folders)
        return self._default_permissions


_caches: Final[WeakKeyDictionary[AgentDeclaration, AgentCache]] = WeakKeyDictionary()


def cache_of(agent: AgentDeclaration) -> AgentCache:
    cache = _caches.get(agent)
    if cache is None:
        cache = _caches[agent] = AgentCache(agent)
    return cache


# Which part of a transcript is sent to the model (Window), and how many tokens its messages take (Ledger).


class Window(msgspec.Struct, frozen=True):
    """What is sent: the message `head` if there is one, and all from `start` on, after a `summary` of the rest."""

    start: int = 0
    head: int | None = None
    summary: str = ""


class Ledger:
    """The tokens of one session's messages: the provider's count of the last call, and an estimate of later ones."""

    def __init__(self) -> None:
        self.counted = 0  # tokens of the last call, in and out
        self.upto = 0  # how many messages that count covers
        self._measure: Measure | None = None  # made when messages are measured: most conversations stay short
        self._sums = [0]  # estimated tokens of all messages before the n-th

    def forget(self, messages: int) -> None:
        """Drop the figures of all messages after the first `messages`: the transcript was cut back to those."""
        del self._sums[messages + 1 :]
        if self.upto > messages:
            self.counted, self.upto = 0, 0

    def between(self, messages: list[Message], start: int, end: int) -> int:
        """Estimated tokens of some messages; each is measured once."""
        sums = self._sums
        measure = self._measure = self._measure or Measure()
        for message in messages[len(sums) - 1 : end]:
            wordy, dense, images = measure.messages((message,))
            sums.append(sums[-1] + int(wordy * WORDY + dense * DENSE) + MESSAGE_TOKENS + images * 1_000)
        return sums[end] - sums[start]

    def estimate_next(self, messages: list[Message], window: Window) -> int:
        """Tokens that the next call will send."""
        if not self.counted:
            return self.between(messages, window.start, len(messages)) + len(window.summary) // 3
        return self.counted + self.between(messages, min(self.upto, len(messages)), len(messages))
