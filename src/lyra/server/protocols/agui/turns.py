"""A turn of a thread: the agent's events from its beginning to its end, kept until a run has read them.

A turn outlives the run that began it: a run ends when the turn waits for a person or for the front end, and the next
run reads on. `begin_turn` puts a message to the agent; `take_up_turn` follows a turn from before a restart, of which
only questions and the end are known.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.declaration.output import content_of
from lyra.agents.session.events import AgentEvent, AnswerDone, Interrupted, Text, Thinking, ToolProgress
from lyra.agents.session.replies import Pending, Stream
from lyra.agents.session.shared import runtime_of, stop_turn
from lyra.agents.turn.model_effect import CallDraft
from lyra.errors import LyraError
from lyra.kernel.programs.context import require_send

if TYPE_CHECKING:
    from collections.abc import Callable

    from lyra.agents.session.agent_process import AgentProcess
    from lyra.kernel.kernel import Kernel


_UNREAD_MAX: Final = 10_000  # events of a turn that has no reader, before pieces of text are left out
_LEFT_OUT: Final = (Text, Thinking, ToolProgress, CallDraft)


class AguiTurn:
    """See the module. `calls` are the tool calls that have begun and not ended, `call_of` the calls of questions."""

    __slots__ = (
        "_events",
        "_read_events",
        "_waker",
        "call_of",
        "calls",
        "ended",
        "failure",
        "has_reader",
        "is_stopped",
        "pending",
        "place",
        "value",
    )

    def __init__(self) -> None:
        self._events: deque[AgentEvent] = deque()
        self._read_events: list[AgentEvent] | None = []  # by the present run; None: too many to be kept
        self.place = 0  # the number of the assistant's next message when the present run began to read
        self._waker: asyncio.Event = asyncio.Event()
        self.calls: set[str] = set()
        self.call_of: dict[str, str] = {}
        self.ended = False
        self.failure: BaseException | None = None
        self.value: Any = None  # the answer, once there is one
        self.pending: Pending[Any] | None = None
        self.has_reader = False
        self.is_stopped = False  # its client has given it up; its events are read by no run

    # ------------------------------------------------------------------ the agent's side

    def put(self, event: AgentEvent) -> None:
        is_wanted = len(self._events) < _UNREAD_MAX or not isinstance(event, _LEFT_OUT)
        if is_wanted and not self.is_stopped:
            self._events.append(event)
            self._waker.set()

    def end(self, failure: BaseException | None) -> None:
        self.ended = True
        self.failure = failure
        self._waker.set()

    # ------------------------------------------------------------------ the run's side

    async def next(self, patience_s: float) -> AgentEvent | None:
        """Return the next event; None when none has come within that time, or the turn has ended."""
        if not self._events and not self.ended:
            self._waker.clear()
            try:
                async with asyncio.timeout(patience_s):
                    await self._waker.wait()
            except TimeoutError:
                return None
        if not self._events:
            return None
        event = self._events.popleft()
        if self._read_events is not None:
            self._read_events.append(event)
            if len(self._read_events) > _UNREAD_MAX:
                self._read_events = None
        return event

    def begin_reading(self, place: int, *, again: bool) -> int:
        """Note that a run begins to read. With `again` it also gets what the run before it has read, whose client left
        in the middle. Gives the number of the assistant's message that it reads first."""
        if self._read_events and again:
            self._events.extendleft(reversed(self._read_events))
        else:
            self.place = place
        self._read_events = []
        self.has_reader = True
        return self.place

    def end_reading(self, *, is_over: bool) -> None:
        """Note that a run reads no more; `is_over` where its client was told its end."""
        self.has_reader = False
        if is_over:
            self._read_events = []

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    @property
    def is_read(self) -> bool:
        """Whether the turn has ended and all of it was read."""
        return self.ended and not self._events

    def stop(self, kernel: Kernel, pid: str) -> None:
        """Give the turn up; one from before a restart is stopped in its process, because its own caller is gone."""
        if self.pending is None and not self.ended and not stop_turn(kernel, pid):
            return
        self.is_stopped = True
        self._events.clear()
        if self.pending is not None:
            self.pending.cancel()

    async def wait_end(self) -> None:
        while not self.ended:
            self._waker.clear()
            await self._waker.wait()


async def begin_turn(process: AgentProcess[Any], message: Any, tools: list[dict[str, Any]]) -> AguiTurn:
    """Put a message to the agent; it is in the store when this returns."""
    kernel, content = process.kernel, content_of(message)
    inner = kernel.processes[process.pid]

    async def start() -> Pending[Any]:
        require_send(inner)
        pending = runtime_of(kernel).ask(inner, content, stream=True, tools=tools)
        assert pending.sink is not None
        pending.sink.wants_drafts = True
        return pending

    answer: Stream[Any, Any] = Stream(start, events=True)
    turn = AguiTurn()
    turn.pending = await answer.begin()
    await kernel.durable()
    kernel.tasks.start(_pass_on(turn, answer), name="lyra-agui")
    return turn


async def _pass_on(turn: AguiTurn, answer: Stream[Any, Any]) -> None:
    failure: BaseException | None = None
    try:
        async for event in answer:
            turn.put(event)
        assert turn.pending is not None
        turn.value = turn.pending.result()
    except LyraError as error:
        failure = error
    except asyncio.CancelledError as cancelled:  # the turn was given up, or the server stops
        failure = cancelled
        if turn.pending is None or not turn.pending.cancelled():
            raise
    finally:
        turn.end(failure)


def take_up_turn(kernel: Kernel, process: AgentProcess[Any]) -> AguiTurn | None:
    """Return the turn that a process is in, where no run of this server has begun it; None if it is in none."""
    current = process.current
    if current is None:
        return None
    turn = AguiTurn()

    def on_question(_event: Any) -> None:
        turn.put(Interrupted("", "", ""))  # perhaps of another process: the run looks which questions are open

    stop_hearing = kernel.on_event(on_question, ["interrupt.created"])
    kernel.tasks.start(_follow(turn, process, current, stop_hearing), name="lyra-agui")
    return turn


async def _follow(
    turn: AguiTurn, process: AgentProcess[Any], current: Pending[Any], stop_hearing: Callable[[], Any]
) -> None:
    failure: BaseException | None = None
    try:
        turn.value = await current
        text = next((row.text for row in reversed(process.messages) if row.role == "assistant"), "")
        turn.put(Text(text))
        turn.put(AnswerDone(process.execution.status if process.execution is not None else "success", text))
    except LyraError as error:
        failure = error
    except asyncio.CancelledError as cancelled:
        failure = cancelled
        raise
    finally:
        stop_hearing()
        turn.end(failure)
