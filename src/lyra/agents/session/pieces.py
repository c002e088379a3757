"""The pieces of an agent's answer on their way to a reader on another machine.

`Pieces` is where the agent is: the events of one answer, numbered, until the reader has them. They are not durable.
When the agent's shard moves, its turn is replayed there and gives them again, from the first or from where the model is
asked anew, so a reader may be told the same twice or something else. `Joined` is where the reader is: it leaves out
what the reader has had, and says `restart` where the answer begins anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

import msgspec

from lyra.agents.session.events import (
    AgentEvent,
    AnswerDone,
    AnswerFailed,
    Interrupted,
    Restart,
    Text,
    Thinking,
    ToolEnded,
    ToolStarted,
    UsageTold,
)
from lyra.agents.session.replies import StreamDedup
from lyra.kernel.base.waiting import resume
from lyra.kernel.kernel import Kernel

_WAITING_MAX: Final = 256  # pieces for a reader that is slow, before the texts among them are put together
_AT_ONCE: Final = 1_000
_TYPES: Final = {kind.type: kind for kind in AgentEvent.__subclasses__()}


class Pieces:
    """The events of one answer for its reader; see the module."""

    def __init__(self, kernel: Kernel, pid: str) -> None:
        self._kernel = kernel
        self._pid = pid
        self._life = kernel.entropy.text(8)  # of these numbers
        self._first = 1  # the number of the first that the reader has not
        self._events: deque[AgentEvent] = deque()
        self._sent = 0  # the number of the last that was sent
        self._is_over = False
        self._readers: list[asyncio.Future[None]] = []

    def put(self, event: AgentEvent) -> None:
        events = self._events
        is_waiting = len(events) >= _WAITING_MAX and self._sent < self._first + len(events) - 1
        if is_waiting and type(event) is type(events[-1]) and isinstance(event, (Text, Thinking)):
            events[-1] = type(event)(events[-1].delta + event.delta)  # type: ignore[attr-defined]
        else:
            events.append(event)
        self._wake()

    def end(self) -> None:
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            resume(reader)

    async def read(self, life: str, after: int, wait_s: float) -> dict[str, Any]:
        """Return the events behind a number of this life, all of them to the reader of another; it waits for the next,
        for so long. A reader that has read a number needs nothing up to it."""
        while life == self._life and self._events and self._first <= after:
            self._events.popleft()
            self._first += 1
        if not self._events and not self._is_over:
            await self._wait(wait_s)
        events = [
            [event.type, msgspec.to_builtins(event)] for event, _ in zip(self._events, range(_AT_ONCE), strict=False)
        ]
        self._sent = max(self._sent, self._first + len(events) - 1)
        return {
            "life": self._life,
            "first": self._first,
            "pieces": events,
            "over": self._is_over and len(events) == len(self._events),
            "marked": self._pid in self._kernel.taint.state.pids,
        }

    async def _wait(self, wait_s: float) -> None:
        reader: asyncio.Future[None] = self._kernel.loop.create_future()
        self._readers.append(reader)
        clock = self._kernel.clock
        timer = clock.call_at(clock.monotonic() + wait_s, lambda: resume(reader))
        try:
            await reader
        finally:
            timer.cancel()


def read_event(data: list[Any]) -> AgentEvent | None:
    """Return the event of a piece; None for one of a newer version."""
    kind = _TYPES.get(data[0])
    return None if kind is None else msgspec.convert(data[1], kind)


class Joined:
    """Makes one answer of the pieces of several lives; see the module.

    Text is compared as a whole, calls of tools and questions by their ids, and the figures of the model's calls by
    their number: those that ended are the same in each life. Where the text becomes another one, that of the call of
    the model in which it does is taken back.
    """

    def __init__(self) -> None:
        self._text = ""  # that the reader has, in all lives
        self._ends: list[int] = []  # where each call of the model ended in it
        self._ids: set[tuple[str, str]] = set()
        self._thought = StreamDedup()  # of the call of the model that is under way
        self._position = 0  # how much of the text this life has said
        self._calls = 0  # of the model, that have ended in this life
        self.is_done = False

    def begin(self) -> None:
        """Begin with the pieces of another life."""
        self._position = self._calls = 0
        self._thought.begin()

    def feed(self, event: AgentEvent) -> list[AgentEvent]:
        """Return what is new to the reader."""
        if isinstance(event, Text):
            return self._feed_text(event.delta)
        if isinstance(event, Thinking):
            return self._feed_thought(event.delta)
        if isinstance(event, UsageTold):
            return self._feed_usage(event)
        if isinstance(event, Restart):
            return self._feed_restart(event)
        if isinstance(event, (ToolStarted, ToolEnded, Interrupted)):
            known = (event.type, event.id) in self._ids
            self._ids.add((event.type, event.id))
            return [] if known else [event]
        if isinstance(event, (AnswerDone, AnswerFailed)):
            is_short = isinstance(event, AnswerDone) and event.status == "success" and self._position < len(self._text)
            self.is_done = self.is_done or isinstance(event, AnswerDone)
            return [*(self._take_back() if is_short else ()), event]
        return [event]

    def finish(self, text: str) -> list[AgentEvent]:
        """Return what the reader lacks of an answer whose last pieces are lost, as they are when its host dies and the
        answer itself was written down already."""
        if self.is_done:
            return []
        begin = max((end for end in self._ends if end < len(self._text)), default=0)
        shown = self._text[begin:]
        if self._text.endswith(text):
            rest: list[AgentEvent] = []
        elif text.startswith(shown):
            rest = [Text(text[len(shown) :])]
        else:
            rest = [Restart(shown), Text(text)]
        return [*rest, AnswerDone("success", text)]

    def _feed_text(self, delta: str) -> list[AgentEvent]:
        ahead = self._text[self._position : self._position + len(delta)]
        if delta.startswith(ahead):
            self._position += len(ahead)
            new = delta[len(ahead) :]
            self._text += new
            self._position += len(new)
            return [Text(new)] if new else []
        return [*self._take_back(), *self._feed_text(delta)]

    def _take_back(self) -> list[AgentEvent]:
        """Take back what the reader has of the call of the model in which this life differs."""
        begin = max((end for end in self._ends[: self._calls] if end <= self._position), default=0)
        shown, repeated = self._text[begin:], self._text[begin : self._position]
        self._text, self._ends = self._text[: self._position], self._ends[: self._calls]
        self._thought = StreamDedup()
        return [Restart(shown), *([Text(repeated)] if repeated else [])]

    def _feed_thought(self, delta: str) -> list[AgentEvent]:
        if self._calls < len(self._ends) or self._position < len(self._text):
            return []  # the reader is further
        new = self._thought.feed(delta)
        if new is None:
            shown = self._text[self._ends[-1] if self._ends else 0 :]
            thought = self._thought.forget() + delta
            self._thought.feed(delta)
            return [Restart(shown), *([Text(shown)] if shown else []), Thinking(thought)]
        return [Thinking(new)] if new else []

    def _feed_usage(self, event: UsageTold) -> list[AgentEvent]:
        self._calls += 1
        if self._calls <= len(self._ends):
            return []
        back = self._take_back() if self._position < len(self._text) else []
        self._ends = [*self._ends[: self._calls - 1], len(self._text)]
        self._thought = StreamDedup()
        return [*back, event]

    def _feed_restart(self, event: Restart) -> list[AgentEvent]:
        if self._position < len(self._text):
            self._position = max(0, self._position - len(event.text))
            return []
        self._text = self._text.removesuffix(event.text)
        self._position = len(self._text)
        self._thought = StreamDedup()
        return [event]
