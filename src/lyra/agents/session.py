"""A Session: what one agent process remembers while it lives: the transcript, its digest, what was spent.

The transcript only grows. `digest` names it: a running hash over the messages, so that the journal can tell whether a
model call asks the same question as before without hashing a thousand turns each time.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from lyra.agents.execution import AgentExecution
from lyra.core import codec
from lyra.core.message import Message
from lyra.models.tokens import Conversation
from lyra.models.usage import TokenUsage

if TYPE_CHECKING:
    from lyra.agents.agent import Agent

__all__ = ["Metrics", "Session"]


class Metrics(msgspec.Struct):
    """What an agent process did and took so far; `cost_usd` is None once a call had no known price."""

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

    @property
    def cost_usd(self) -> float | None:
        return None if self.unpriced_calls else self.cost_micro_usd / 1_000_000

    def count(self, usage: TokenUsage, micro_usd: int | None) -> None:
        self.calls += 1
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cache_read_tokens += usage.cache_read_tokens
        self.cache_write_tokens += usage.cache_write_tokens
        if micro_usd is None:
            self.unpriced_calls += 1
        else:
            self.cost_micro_usd += micro_usd

    def to_data(self) -> dict[str, Any]:
        return {**msgspec.structs.asdict(self), "cost_usd": self.cost_usd}


class Session:
    __slots__ = (
        "_chain",
        "agent",
        "conversation",
        "durable",
        "execution",
        "messages",
        "metrics",
        "parent_span",
        "trace_id",
        "turn_span",
        "window_from",
    )

    def __init__(self, agent: Agent, conversation: Conversation, *, durable: bool) -> None:
        self.agent = agent
        self.conversation = conversation  # what its messages take, in tokens
        self.durable = durable
        self.messages: list[Message] = []
        self.window_from = 0  # the first message that is still sent to the model
        self.metrics = Metrics()
        self._chain = b""
        self.execution: AgentExecution | None = None  # the run that is under way, or the last one
        self.trace_id = ""  # made with the first call that somebody listens to
        self.turn_span = ""  # of the turn that is under way
        self.parent_span: str | None = None  # the tool call of another agent that asks, if one does

    def begin(self, now: float) -> None:
        """A run begins, with what is said next."""
        self.execution = AgentExecution(self, len(self.messages), now)
        self.turn_span = ""

    def append(self, message: Message) -> None:
        self.messages.append(message)
        if self.durable:
            self._chain = blake2b(self._chain + codec.canonical(message.to_data()), digest_size=16).digest()

    @property
    def digest(self) -> bytes:
        return self._chain

    def to_data(self) -> dict[str, Any]:
        """What a restart begins with."""
        return {
            "messages": [message.to_data() for message in self.messages],
            "window_from": self.window_from,
            "metrics": msgspec.structs.asdict(self.metrics),
            "chain": self._chain,
        }

    def restore(self, data: dict[str, Any]) -> None:
        self.messages = [Message.from_data(message) for message in data["messages"]]
        self.window_from = data["window_from"]
        self.metrics = msgspec.convert(data["metrics"], Metrics)
        self._chain = data["chain"]

    def cut_back(self, length: int, digest: bytes) -> None:
        """Forget what was appended since: the turn it belonged to did not happen."""
        if self.execution is not None:
            self.execution.keep(self.messages[length:])
        del self.messages[length:]
        self._chain = digest
