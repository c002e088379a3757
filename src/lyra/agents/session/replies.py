"""What a caller holds while an agent works: a Pending answer, a Stream of it, and the Reply at the end.

A `Sink` carries the events of one answer from the process to its caller. It is bounded: a caller that reads slowly
slows the reading of the model's stream down. When a broken answer is tried again, by the same model or the next, only
text that the caller does not have yet is passed on; a try that differs from it begins with a `restart`. A Stream of
text cannot take back what it has given, so it ends with `begins_anew()` there: two answers are never joined.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, cast

from lyra.agents.session.events import AgentEvent, Interrupted, Restart, Text, Thinking
from lyra.core.budgets.budget import Budget
from lyra.core.hints import Out_co, Piece_co
from lyra.core.message import Message
from lyra.core.trace_context import enclosing_span
from lyra.errors import DeadlineExceeded, LyraError, ModelError, StoreError

if TYPE_CHECKING:
    from lyra.agents.session.early_call import EarlyCall
    from lyra.agents.session.open_questions import OpenQuestions
    from lyra.agents.session.shared import AgentRuntime
    from lyra.core.clock import Timer
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process


_ROOM: Final = 256  # events that may wait for a slow reader


class Reply(str):
    """The text of an answer, which also knows how it came about."""

    __slots__ = ("cost_usd", "input_tokens", "output_tokens", "status")

    status: str
    cost_usd: float | None
    input_tokens: int
    output_tokens: int
    tainted: ClassVar[bool] = False  # whether the agent had read text from outside

    @classmethod
    def with_usage(cls, text: str, *, cost_usd: float | None, input_tokens: int, output_tokens: int) -> Reply:
        reply = cls(text)
        reply.status = "success"
        reply.cost_usd = cost_usd
        reply.input_tokens = input_tokens
        reply.output_tokens = output_tokens
        return reply


class MarkedReply(Reply):
    """An answer of an agent that has read text from outside. An agent that gets it as a message is tainted by it."""

    __slots__ = ()

    tainted: ClassVar[bool] = True


class Sink:
    """Events on their way to one reader."""

    __slots__ = (
        "_ended",
        "_error",
        "_loop",
        "_queue",
        "_reader",
        "_room",
        "_scheduler",
        "_settled",
        "_text",
        "_thought",
        "has_drafts",
        "lengths",
        "wants_drafts",
    )

    def __init__(self, kernel: Kernel) -> None:
        self._loop = kernel.loop
        self._scheduler = kernel.scheduler
        self._queue: deque[AgentEvent] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._ended = False
        self._error: BaseException | None = None
        self._text = StreamDedup()  # of the model call that is under way
        self._thought = StreamDedup()
        self._settled = 0  # pieces of finished answers
        self.lengths: list[int] = []  # of all pieces of text
        self.wants_drafts = False  # its reader is told tool calls while the model writes them
        self.has_drafts = False  # of the model call that is under way

    # ------------------------------------------------------------------ the process's side

    def put(self, event: AgentEvent) -> None:
        self._queue.append(event)
        if type(event) is Text:
            self.lengths.append(len(event.delta))
        reader = self._reader
        if reader is not None and not reader.done():
            reader.set_result(None)

    @property
    def full(self) -> bool:
        return len(self._queue) >= _ROOM

    async def room(self) -> None:
        """Wait until the reader has caught up."""
        while len(self._queue) >= _ROOM and not self._ended:
            self._room = self._loop.create_future()
            await self._room

    def begin(self) -> None:
        """Begin a try: text that broken tries have shown is not shown again."""
        self._text.begin()
        self._thought.begin()

    def settle(self) -> tuple[int, ...]:
        """Note that the answer is whole: if a broken try has shown more, the reader is told to start over.

        Gives the lengths of the answer's pieces.
        """
        self.has_drafts = False
        if self._text.behind or self._thought.behind:
            self._restart()
        self._text.clear()
        self._thought.clear()
        lengths, self._settled = tuple(self.lengths[self._settled :]), len(self.lengths)
        return lengths

    def text(self, delta: str) -> None:
        new = self._text.feed(delta)
        if new is None:
            self._restart()
            new = self._text.feed(delta)
        if new:
            self.put(Text(new))

    def thinking(self, delta: str) -> None:
        new = self._thought.feed(delta)
        if new is None:
            self._restart()
            new = self._thought.feed(delta)
        if new:
            self.put(Thinking(new))

    def _restart(self) -> None:
        self.put(Restart(self._text.text))
        thought, text = self._thought.forget(), self._text.forget()
        if thought:
            self.put(Thinking(thought))
        if text:
            self.put(Text(text))

    def end(self, error: BaseException | None = None) -> None:
        self._ended = True
        self._error = error
        for waiter in (self._reader, self._room):
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    # ------------------------------------------------------------------ the reader's side

    async def next(self) -> AgentEvent | None:
        """Return the next event, None after the last one; an error that ended the answer is raised after its events."""
        queue = self._queue
        while not queue:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return None
            self._reader = self._loop.create_future()
            self._scheduler.hand_over()
            await self._reader
        event = queue.popleft()
        if self._room is not None and len(queue) < _ROOM // 2:
            room, self._room = self._room, None
            if not room.done():
                room.set_result(None)
        return event


class FeedSink(Sink):
    """A sink that hands every event on at once: it is never full, and an answer does not end it."""

    __slots__ = ("_hand_on",)

    def __init__(self, kernel: Kernel, hand_on: Callable[[AgentEvent], object]) -> None:
        super().__init__(kernel)
        self._hand_on = hand_on

    def put(self, event: AgentEvent) -> None:
        if type(event) is Text:
            self.lengths.append(len(event.delta))
        self._hand_on(event)


class Pending(Generic[Out_co]):
    """An answer on its way: await it, ask `done()`, or `cancel()` it.

    It has a future of the loop once it is waited for, or fails. An answer that comes before needs none.
    """

    __slots__ = (
        "_answer",
        "_future",
        "_is_answered",
        "_questions",
        "_timer",
        "abandoned",
        "asker",
        "early_call",
        "id",
        "is_impatient",
        "is_keyed",
        "pid",
        "reader",
        "running",
        "scopes",
        "sink",
        "span",
        "withdrawn_seq",
    )

    def __init__(
        self, questions: OpenQuestions, request_id: str, pid: str, scopes: tuple[Budget, ...], sink: Sink | None
    ) -> None:
        self._questions = questions
        self._future: asyncio.Future[Any] | None = None
        self._is_answered = False  # and then there is no future
        self._answer: Any = None
        self.id = request_id
        self.pid = pid
        self.scopes = scopes
        self.sink = sink
        self.span = enclosing_span()  # the span that is open around the caller
        self.running = ""  # the pid of the process that works on it
        self.abandoned = False
        self.is_keyed = False  # its caller asks again after a restart
        self.is_impatient = False  # it does not wait for a person who has to decide on an effect in doubt
        self.withdrawn_seq = 0  # the row that says that it must not be carried out
        self.early_call: EarlyCall | None = None  # the early call of `@lyra.parallel` that asks, if one does
        self.asker = ""  # the pid of the process whose tool asks, if one does
        self.reader = ""  # the pid of the process that gets the answer, if one does
        self._timer: Timer | None = None

    def __await__(self) -> Generator[Any, None, Out_co]:
        if not self._is_answered:
            self._questions.kernel.scheduler.hand_over()
        answer: Out_co
        if self._is_answered:
            answer = self._answer
            return answer
        future = self._get_future()
        try:
            answer = yield from future
            return answer
        except asyncio.CancelledError:
            if future.cancelled():  # with its caller; an answer that has just come is not given up
                self._abandon()
                if self.withdrawn_seq:
                    yield from self._withdrawn().__await__()
            raise

    def _get_future(self) -> asyncio.Future[Any]:
        future = self._future
        if future is None:
            future = self._future = self._questions.kernel.core.loop.create_future()
        return future

    def done(self) -> bool:
        return self._is_answered or (self._future is not None and self._future.done())

    def cancelled(self) -> bool:
        return self._future is not None and self._future.cancelled()

    def cancel(self) -> bool:
        """Give up: the agent's work on it is stopped, and its process continues with the next message."""
        if self.done():
            return False
        self._get_future().cancel()
        self._abandon()
        return True

    async def leave(self) -> None:
        """Give up an answer that has not come, and wait until the store has the withdrawal."""
        self.cancel()
        if self.withdrawn_seq:
            await self._withdrawn()

    def _abandon(self) -> None:
        if not self.abandoned:
            self.abandoned = True
            self._questions.give_up(self)
            self._end(asyncio.CancelledError())

    async def _withdrawn(self) -> None:
        """Wait until the store has the withdrawal: before that, the caller is not told that its message failed."""
        journal = self._questions.kernel.journal
        if journal is not None:
            with suppress(StoreError):  # the kernel has lost its store, or a full disk holds it still
                await journal.wait_until_durable(self.withdrawn_seq)

    async def _fail_withdrawn(self, error: LyraError) -> None:
        await self._withdrawn()
        self.fail(error)

    def give_up_with(self, error: LyraError) -> None:
        """Withdraw the question and fail with an error, once the store has the withdrawal."""
        if self.done() or self.abandoned:
            return
        self.abandoned = True
        self._questions.give_up(self)
        if self.withdrawn_seq:
            self._questions.kernel.tasks.start(self._fail_withdrawn(error), name="lyra-withdrawn")
        else:
            self.fail(error)

    def limit_time(self, due_s: float, seconds: float) -> None:
        """Fail at `due_s` on the kernel's monotonic clock, when the time of a budget around the question is up."""

        def expire() -> None:
            self.give_up_with(
                DeadlineExceeded(
                    f"agent process {self.pid} did not answer within the {seconds:g} s of its budget",
                    pid=self.pid,
                    limit_s=seconds,
                )
            )

        clock = self._questions.kernel.clock
        if due_s <= clock.monotonic():
            expire()
        else:
            self._timer = clock.call_at(due_s, expire)

    def _mark_reader(self) -> None:
        """Mark the process that reads a piece of the answer."""
        self._questions.mark_reader(self)

    def _end(self, error: BaseException | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.sink is not None:
            self.sink.end(error)

    async def events(self) -> AsyncIterator[AgentEvent]:
        """Yield the events of the answer, where it was asked for as a stream. A reader that leaves gives nothing up:
        the turn continues, and waits while its events are not read."""
        sink = self.sink
        assert sink is not None
        while (event := await sink.next()) is not None:
            self._mark_reader()
            yield event

    def result(self) -> Out_co:
        return cast("Out_co", self._answer if self._is_answered else self._get_future().result())

    def exception(self) -> BaseException | None:
        return None if self._is_answered else self._get_future().exception()

    def answer(self, value: Any) -> None:
        future = self._future
        if future is None:
            self._is_answered, self._answer = True, value
        elif not future.done():
            future.set_result(value)
        if self._timer is not None or self.sink is not None:
            self._end()

    def fail(self, error: BaseException) -> None:
        if not self.done():
            future = self._get_future()
            future.set_exception(error)
            future.exception()  # marked as retrieved: a reader of the stream gets it there
        self._end(error)


def begins_anew() -> ModelError:
    """Return the error of a reader of text whose answer broke off and comes out differently, or did not fit its
    type."""
    return ModelError(
        "the answer begins anew, and the text that was read does not hold",
        hint="await the whole answer, or read it with events=True, where `restart` says so",
        kind="stream_truncated",
    )


class Stream(Generic[Out_co, Piece_co]):
    """An answer piece by piece: `async for` gives the pieces, `await` the whole. Plain `for` works outside a loop."""

    def __init__(self, start: Any, *, events: bool) -> None:
        self._start = start
        self._events = events
        self._pending: Pending[Out_co] | None = None

    @property
    def pending(self) -> Pending[Out_co] | None:
        """The answer on its way; None before the reading has begun."""
        return self._pending

    def __aiter__(self) -> AsyncIterator[Piece_co]:
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[Any]:
        pending = await self.begin()
        sink = pending.sink
        assert sink is not None
        try:
            while (event := await sink.next()) is not None:
                pending._mark_reader()  # before each piece: the agent may get its mark in the middle of a turn
                if self._events:
                    yield event
                elif type(event) is Text:
                    yield event.delta
                elif type(event) is Restart and event.text:
                    raise begins_anew()
        finally:
            await pending.leave()  # where the reader has left the loop early

    async def begin(self) -> Pending[Out_co]:
        """Put the message to the agent, and read the pieces later; a second call changes nothing."""
        if self._pending is None:
            self._pending = await self._start()
        return self._pending

    async def aclose(self) -> None:
        """Leave an answer that has not come, and wait until the store has that: for `contextlib.aclosing`, where the
        work on a piece may be left by a `break` or a time limit, which Python does not tell the stream at once."""
        if self._pending is not None:
            await self._pending.leave()

    def __await__(self) -> Generator[Any, None, Out_co]:
        return self._read_all().__await__()

    async def _read_all(self) -> Out_co:
        pending = await self.begin()
        sink = pending.sink
        assert sink is not None
        try:
            while await sink.next() is not None:
                pass
            return await pending
        finally:
            await pending.leave()  # where the reader has given up

    def __iter__(self) -> Iterator[Piece_co]:
        """Read the answer in a plain script: in its own event loop, one step for each piece."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise LyraError("a plain `for` cannot wait inside a running loop", hint="write `async for`")
        with asyncio.Runner() as runner:
            pieces = self._pieces()
            try:
                while True:
                    try:
                        yield runner.run(_next(pieces))
                    except StopAsyncIteration:
                        return
            finally:
                runner.run(_close(pieces))


async def _next(pieces: AsyncIterator[Any]) -> Any:
    return await anext(pieces)


async def _close(pieces: Any) -> None:
    await pieces.aclose()


def sink_above(process: Process) -> Sink | None:
    """Return the sink of the nearest turn above a process that has one."""
    runtime: AgentRuntime | None = process.kernel.parts.get("agents")
    above = process.parent
    while above is not None and runtime is not None:
        session = runtime.sessions.get(above.pid)
        if session is not None and session.turn is not None and session.turn[1].sink is not None:
            return session.turn[1].sink
        above = above.parent
    return None


def show_question(sink: Sink | None, process: Process, interrupt_id: str, about: dict[str, Any] | None = None) -> bool:
    """Put a question into the stream of an answer; whether there is a stream. A question of a helper whose own answer
    is not streamed stands in the stream of the agent above it: its reader would wait without knowing for what."""
    if sink is None:
        sink = sink_above(process)
    if sink is None:
        return False
    interrupt = process.kernel.interrupts.get_interrupt(interrupt_id)
    sink.put(Interrupted(interrupt.id, interrupt.kind, interrupt.question, interrupt.message, about or {}))
    return True


# StreamDedup: passes on only the new part of a text that is streamed again.


class StreamDedup:
    __slots__ = ("_pieces", "_position", "_seen")

    def __init__(self) -> None:
        self._pieces: list[str] = []  # the pieces that the reader has
        self._seen = ""  # the same as one text, until a new try has said all of it
        self._position = 0  # how much of `_seen` the new try has said

    def begin(self) -> None:
        """Begin a new try of the same answer."""
        self._seen = self.text
        self._position = 0

    def clear(self) -> None:
        """Forget an answer that is whole; the next one is another."""
        self._pieces = []
        self._seen = ""

    def feed(self, delta: str) -> str | None:
        """Return the part of a piece that is new to the reader; None where it contradicts what the reader has."""
        seen, position = self._seen, self._position
        if not seen:
            self._pieces.append(delta)
            return delta
        if seen.startswith(delta, position):
            self._position = position + len(delta)
            if self._position == len(seen):
                self._seen = ""
            return ""
        rest = seen[position:]
        if not delta.startswith(rest):
            return None
        self._seen = ""
        self._pieces.append(delta[len(rest) :])
        return delta[len(rest) :]

    @property
    def behind(self) -> bool:
        """Whether this try has said less than the reader has seen."""
        return bool(self._seen)

    @property
    def text(self) -> str:
        """The text that the reader has seen."""
        return "".join(self._pieces)

    def forget(self) -> str:
        """Start over with what this try has said so far, and give that."""
        repeated = self._seen[: self._position] if self._seen else self.text
        self._pieces = [repeated] if repeated else []
        self._seen = ""
        return repeated


# An answer that its limit cut off, and that the model went on with: several messages, and one text for the reader.

NOTICE: Final = "(Notice by the program, not by the user: {})"
GO_ON: Final = NOTICE.format(
    "your answer was cut off at its limit of tokens. Continue it exactly where it stopped; repeat nothing."
)


def last_answer(messages: Sequence[Message]) -> str:
    """Return the text of the last answer; one that went on after it was cut off is one text."""
    index = len(messages) - 1
    if index < 0:
        return ""
    text = messages[index].text
    while index >= 2 and messages[index - 1].content == GO_ON:
        index -= 2
        text = messages[index].text + text
    return text
