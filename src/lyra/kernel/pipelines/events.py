"""Events of a pipeline for the caller of `execute_pipeline`, and the feed from which it reads them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from lyra.core.envelope import Envelope
from lyra.core.limits import PIPELINE_EVENTS_UNREAD_MAX


class PipelineEvent:
    """Something that happened in a pipeline, with the envelope as it was then."""

    __slots__ = ("_envelope", "_then", "data", "pid", "stage", "type")

    def __init__(self, kind: str, stage: str, pid: str, envelope: Envelope, data: dict[str, Any]) -> None:
        self.type = kind
        self.stage = stage
        self.pid = pid
        self.data = data
        self._then = envelope.snapshot()
        self._envelope: Envelope | None = None

    @property
    def envelope(self) -> Envelope:
        if self._envelope is None:  # copied only when it is read: most listeners read few envelopes
            self._envelope = self._then.copy()
        return self._envelope

    def __repr__(self) -> str:
        return f"<PipelineEvent {self.type} {self.stage}>"

    def to_data(self) -> dict[str, Any]:
        envelope = self.envelope.to_data()
        return {"type": self.type, "stage": self.stage, "pid": self.pid, "envelope": envelope, "data": self.data}


class Feed:
    """The unread events of one listener; None among them marks the end of the pipeline's process. A listener that is
    too slow is `overrun`: its events are dropped, and it has to begin anew."""

    __slots__ = ("_waiter", "events", "overrun")

    def __init__(self) -> None:
        self.events: deque[PipelineEvent | None] = deque()
        self.overrun = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: PipelineEvent | None) -> None:
        if len(self.events) >= PIPELINE_EVENTS_UNREAD_MAX:
            self.overrun = True
            self.events.clear()
        self.events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def more(self) -> None:
        """Wait until there is an event."""
        while not self.events:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
