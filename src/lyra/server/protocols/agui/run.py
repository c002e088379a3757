"""One run: a stream of AG-UI events that reads a turn until it ends, or waits for a person or for the front end.

    RUN_STARTED · STATE_SNAPSHOT · … · MESSAGES_SNAPSHOT · RUN_FINISHED, or RUN_ERROR

The outcome of RUN_FINISHED is `success` (with `pendingToolCallIds` where the front end has tools to run), `interrupt`
where a person has to answer, or `cancelled`. A client that closes the stream stops the turn, or leaves it to go on,
as its request says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.session.events import Interrupted, ToolEnded
from lyra.core.codec import to_plain
from lyra.core.limits import SERVER_HEARTBEAT_S
from lyra.server.http.problems import problem_of
from lyra.server.protocols.agui.messages import MessageIds, snapshot_messages
from lyra.server.protocols.agui.questions import QuestionsToPage, interrupt_of, open_questions
from lyra.server.protocols.agui.sdk import agui_types, event_bytes
from lyra.server.protocols.agui.shared_state import SharedState
from lyra.server.protocols.agui.translate import EventTranslator
from lyra.server.protocols.agui.turns import AguiTurn

if TYPE_CHECKING:
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.kernel.kernel import Kernel
    from lyra.server.protocols.agui.input import AguiRequest


_QUIET_S: Final = 2.0  # a run with an open question ends after this time, also where another call is under way
_MAY_WAIT: Final = (Interrupted, ToolEnded)  # after these the open questions are others
_HEARTBEAT: Final = b": ping\n\n"


class AguiRun:
    """See the module. Without a `turn` there is nothing to answer: the run tells the conversation and ends."""

    def __init__(
        self,
        kernel: Kernel,
        process: AgentProcess[Any],
        request: AguiRequest,
        turn: AguiTurn | None,
        state: SharedState,
        *,
        place: int,
        has_output: bool,
        begin_next: Callable[[], Awaitable[AguiTurn]] | None = None,
        forget: Callable[[AguiTurn], None] = lambda _turn: None,
    ) -> None:
        self._kernel = kernel
        self._process = process
        self._request = request
        self._turn = turn
        self._state = state
        self._has_output = has_output
        self._begin_next = begin_next  # a message that waits for the end of the turn
        self._forget = forget  # called with a turn that is over
        self._questions = QuestionsToPage([], {})
        self._ids = MessageIds(process.pid)
        self._types = agui_types()
        client_tools = frozenset(row["name"] for row in request.tools)
        self._translator = EventTranslator(turn or AguiTurn(), self._ids, place, client_tools)

    async def stream(self) -> AsyncGenerator[bytes, None]:
        is_over = False
        try:
            yield self._bytes(self._begin())
            while self._turn is not None:
                async with aclosing(self._read(self._turn)) as pieces:
                    async for piece in pieces:
                        yield piece
                if self._begin_next is None or not self._turn.is_read or self._turn.failure is not None:
                    break
                self._turn, self._begin_next = await self._begin_next(), None
                self._translator.follow(self._turn)
            is_over = True
            yield self._bytes(self._end())
        finally:
            self._leave(is_over=is_over)

    def _leave(self, *, is_over: bool) -> None:
        """The run reads no more; a client that left in the middle may have stopped the turn."""
        if self._turn is not None:
            self._turn.end_reading(is_over=is_over)
            if not is_over and self._request.on_disconnect == "stop":
                self._turn.stop(self._kernel, self._process.pid)
            if self._turn.is_read and not self._turn.is_stopped:
                self._forget(self._turn)

    def _begin(self) -> list[Any]:
        types, request = self._types, self._request
        events = [
            types.RunStartedEvent(
                thread_id=request.thread_id,
                run_id=request.run_id,
                parent_run_id=request.parent_run_id,
                protocol_version=types.PROTOCOL_VERSION,
            )
        ]
        return events + self._state.snapshot()

    # ------------------------------------------------------------------ the turn

    async def _read(self, turn: AguiTurn) -> AsyncGenerator[bytes, None]:
        """What happens in the turn, until it ends or waits."""
        self._look()
        while not turn.is_read:
            waiting = self._questions.total
            if waiting and waiting >= len(turn.calls) and not turn.has_events:
                return
            event = await turn.next(_QUIET_S if waiting else SERVER_HEARTBEAT_S)
            if event is None or isinstance(event, _MAY_WAIT):
                self._look()
            if event is not None:
                events = self._translator.feed(event) + self._state.changes()
                if events:
                    yield self._bytes(events)
            elif self._questions.total:
                return
            elif not turn.ended:
                yield _HEARTBEAT

    def _look(self) -> None:
        self._questions = open_questions(self._kernel, self._process.pid)

    # ------------------------------------------------------------------ the end

    def _end(self) -> list[Any]:
        turn = self._turn
        events = self._translator.close() + self._state.changes()
        if turn is not None and turn.is_read and turn.failure is not None:
            if not isinstance(turn.failure, asyncio.CancelledError):
                return [*events, self._error(turn.failure)]
            return [*events, *self._snapshot(), self._finished(self._types.RunFinishedCancelledOutcome())]
        result = to_plain_value(turn.value) if turn is not None and turn.is_read and self._has_output else None
        return [*events, *self._snapshot(), self._finished(self._outcome(), result)]

    def _snapshot(self) -> list[Any]:
        messages = snapshot_messages(self._process.messages, self._ids, self._request)
        return [self._types.MessagesSnapshotEvent(messages=messages)]

    def _outcome(self) -> Any:
        types, turn = self._types, self._turn
        if turn is None or turn.is_read:
            return types.RunFinishedSuccessOutcome()
        questions = self._questions
        if questions.interrupts:
            interrupts = [interrupt_of(asked, turn.call_of.get(asked.id, "")) for asked in questions.interrupts]
            return types.RunFinishedInterruptOutcome(interrupts=interrupts)
        return types.RunFinishedSuccessOutcome(pending_tool_call_ids=list(questions.calls) or None)

    def _finished(self, outcome: Any, result: Any = None) -> Any:
        request = self._request
        return self._types.RunFinishedEvent(
            thread_id=request.thread_id,
            run_id=request.run_id,
            outcome=outcome,
            result=result,
            usage=self._usage(),
        )

    def _error(self, failure: BaseException) -> Any:
        problem = problem_of(failure, self._kernel)
        return self._types.RunErrorEvent(message=problem.message, code=problem.code, usage=self._usage())

    def _usage(self) -> list[Any] | None:
        usage = self._translator.usage
        if not usage:
            return None
        inputs, outputs = sum(row.input_tokens for row in usage), sum(row.output_tokens for row in usage)
        return [self._types.TokenUsage(input_tokens=inputs, output_tokens=outputs, total_tokens=inputs + outputs)]

    def _bytes(self, events: list[Any]) -> bytes:
        return b"".join(map(event_bytes, events))


def to_plain_value(value: Any) -> Any:
    """The value of an agent with an output type as JSON has it."""
    try:
        return msgspec.to_builtins(value, enc_hook=to_plain)
    except (TypeError, ValueError):
        return str(value)
