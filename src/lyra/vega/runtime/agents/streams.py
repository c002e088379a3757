"""`p <~ message`: an answer piece by piece, iterable, awaitable, cancelled when its loop is left."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.declaration.output import content_of
from lyra.agents.session.events import Restart, Text
from lyra.agents.session.open_questions import scopes
from lyra.agents.session.records import Held
from lyra.agents.session.replies import Pending, begins_anew
from lyra.agents.session.shared import runtime_of
from lyra.core.budgets.money import Money
from lyra.core.effect import Effect
from lyra.errors import Divergence, LyraError
from lyra.vega.runtime.agents.calls import (
    answering,
    content_text,
    find_mock_reply,
    handle_failure,
    is_crash,
    journals_refusals,
    make_recorded_scopes,
    may_ask,
    stop,
    was_asked,
)
from lyra.vega.runtime.agents.plan import plan_of_call
from lyra.vega.runtime.agents.slot import AgentSlot, AgentTurn, in_time, leave_turn
from lyra.vega.runtime.processes import reaches_heir
from lyra.vega.values.values import STREAM_IS_OVER, Duration, Fault, Future, Process, Stream, render

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process as KernelProcess
    from lyra.kernel.programs.handle import ChildHandle
    from lyra.vega.runtime.job import VegaJob


class OpenStream:
    """A stream that is being read. Each piece is an effect, and the agent is asked with the first: a replay of what was
    read makes no call, and continues behind it. Until the first piece the stream holds no turn of the agent: a program
    may open a stream and never read it."""

    __slots__ = (
        "_answers",
        "_content",
        "_held",
        "_id",
        "_position",
        "_reader",
        "_room",
        "_scopes",
        "_shown",
        "child",
        "due",
        "effect",
        "limit_s",
        "pending",
        "pid",
        "session",
        "slot",
    )

    def __init__(self, name: str, pid: str, slot: AgentSlot, limit_s: float | None, content: Any, inside: Any) -> None:
        self._id = f"~{name}"
        self.pid = pid
        self.slot = slot
        self.limit_s = limit_s
        self.due: float | None = None
        self.child: ChildHandle | None = None
        self.session: KernelProcess | None = None  # whom it asks; None before it began
        self.pending: Pending | None = None
        self.effect = Effect(self.read, name=f"vega.stream:{slot.plan.name}", idempotent=True, rejoins=True)
        self._reader: KernelProcess | None = None  # while it keeps the agent's turn
        self._content = content
        self._scopes = inside
        self._room: asyncio.Semaphore | None = (
            None  # the place that it holds among the calls which the agent's concurrency allows
        )
        self._answers: ExitStack | None = None  # while a process of the agent answers it
        self._shown: list[str] = []  # the pieces that the program has, also those of an earlier life
        self._position = 0  # characters of the answer that this life has heard
        self._held: Text | None = None  # heard, and to be read after a restart

    def start_clock(self, job: VegaJob) -> float | None:
        """When it has to be over; the time runs from the first reading, and is the agent's where none was said."""
        if self.due is None and self.limit_s is None:
            self.limit_s = plan_of_call(job.ctx.own_process, self.slot.plan).timeout_s
        if self.due is None and self.limit_s is not None:
            job.world.runtime.models.prepare(self.slot.plan.agent)
            self.due = asyncio.get_running_loop().time() + self.limit_s
        return self.due

    def find(self, job: VegaJob) -> None:
        """Find a stream from before the restart that is still open continues: it spends from the scopes made now."""
        self.pending = job.world.runtime.questions.awaited.pop(self._id, None)
        if self.pending is not None:
            self.pending.scopes = self._scopes
            self.pending.reader = job.ctx.own_process.pid

    async def begin(self, job: VegaJob) -> None:
        """Wait for the agent's turn, and have a process that answers; until it is closed, or its reader has ended."""
        is_new = not (job.ctx.replaying and was_asked(job, self.slot, "vega.stream"))
        if is_new:
            await job.world.all_replayed(job.process)
            self._room = await self.slot.enter(job.outer(self.slot))
        self._reader = job.ctx.own_process
        self._reader.watch((self._reader_ended, None))
        self.session = self.slot.session
        plan = self.slot.plan
        if not plan.keeps:
            self.child = job.ctx.spawn(plan_of_call(job.ctx.own_process, plan).program, priority=plan.priority)
            self.session = self.child._look_up()
            if not is_new and self.session is not None and self.session.exit is None:
                self._room = await self.slot.enter_again(job.outer(self.slot))
        if self.session is not None:
            self._answers = ExitStack()
            self._answers.enter_context(answering(job.world, self.session.pid, AgentTurn(self.slot, self._reader)))
        if job.world.picture is not None and self.session is not None:
            job.world.picture.note_model_call(self.session.pid, self.slot)

    def is_read_by(self, process: KernelProcess) -> bool:
        """Return whether this process reads the stream and holds a turn of the agent for it."""
        return self._reader is process and self._room is not None

    def give(self, piece: str) -> None:
        """Note that the program has a piece."""
        self._shown.append(piece)

    def keep(self, length: int) -> None:
        """Note that the program keeps so many characters, and drops the rest."""
        self._shown = ["".join(self._shown)[:length]]

    async def read(self, _stream_id: str, passed: int) -> str | dict[str, int] | None:
        """Return the next piece behind what was passed; None at the end. Where the answer begins anew, and the program
        has a part that does not hold any more: `{"restart": characters that do}`."""
        if self.pending is None:
            if self.session is None:
                self.session = await self.slot.conversation()
            with Held(scopes, self._scopes):
                self.pending = runtime_of(self.session.kernel).ask(
                    self.session, self._content, stream=True, request_id=self._id
                )
        sink = self.pending.sink
        assert sink is not None
        shown = "".join(self._shown) if self._position < passed else ""
        held, self._held = self._held, None
        while (event := held or await sink.next()) is not None:
            held = None
            self.pending._mark_reader()
            if type(event) is Restart:
                self._position -= min(len(event.text), self._position)
                if passed > self._position:
                    return {"restart": self._position}
            elif type(event) is Text:
                start, end = self._position, self._position + len(event.delta)
                if start < passed and not event.delta.startswith(shown[start:end]):
                    self._held = event  # what an earlier life was told is not what the agent says in this one
                    return {"restart": start}
                self._position = end
                if end > passed:
                    return event.delta[-(end - passed) :]
        return None if self._position >= passed else {"restart": self._position}

    def close(self, job: VegaJob) -> None:
        """Cancel what the agent is still saying."""
        if self._reader is not None:
            self._reader.remove_done_callback(self._reader_ended)
            if self.child is not None:
                stop(job, self.child)
            self._let_go()

    def _reader_ended(self, reader: KernelProcess) -> None:
        """Close the stream: the reader was ended in the middle of it."""
        kernel = reader.kernel
        if self.child is not None and not kernel.stopping and self.child.pid in kernel.processes:
            kernel.end(self.child.pid)
        self._let_go()

    def _let_go(self) -> None:
        self._reader = None
        if self.pending is not None and not self.pending.done():
            self.pending.cancel()
        room, self._room = self._room, None
        leave_turn(room)
        if self._answers is not None:
            self._answers.close()


@journals_refusals
async def _check_allowed(job: VegaJob, pid: str) -> None:
    may_ask(job, pid)


async def _send_stream(
    job: VegaJob, target: Process, message: Any, timeout: Duration | None, budget: Money | None
) -> Stream:
    if not job.world.is_agent(target.pid):
        raise Fault("TypeError", "only an agent answers with a stream")
    slot = await job.world.slot_of(target.pid)
    stream = Stream(f"{job.ctx.own_process.pid}/{job.state.number()}")
    mocked = find_mock_reply(job, slot, message)
    if mocked is not None:
        job.state.mocked[stream.id] = re.findall(r"\S+\s*|\s+", render(mocked[0]))[::-1]
        return stream
    await _check_allowed(job, target.pid)
    plan = slot.plan
    limit_s = None if timeout is None else timeout.seconds
    within = make_recorded_scopes(job.world, plan.budget if budget is None else budget, f"~{stream.id}")
    opened = OpenStream(
        stream.id, target.pid, slot, limit_s, content_of(job.world.runtime.clean(content_text(message))), within
    )
    opened.find(job)
    job.world.streams[stream.id] = (opened, 0)
    return stream


async def _stream_next(job: VegaJob, stream: Stream) -> Any:
    """[the next piece], or null at the end. A program cannot give back what it has read: where the answer begins anew,
    the stream ends with an error."""
    piece = await _read(job, stream)
    if type(piece) is dict:
        raise await _begins_anew(job, stream)
    return None if piece is None else [piece]


async def _begins_anew(job: VegaJob, stream: Stream) -> LyraError:
    slot = job.world.streams[stream.id][0].slot
    await _stream_close(job, stream)
    await job.give_back()
    return handle_failure(job, slot, begins_anew())


async def _read(job: VegaJob, stream: Stream) -> str | dict[str, int] | None:
    """Return the next piece, as `OpenStream.read` gives it."""
    pieces = job.state.mocked.get(stream.id)
    if pieces:
        return pieces.pop()
    if pieces is not None:
        del job.state.mocked[stream.id]
        return None
    entry = job.world.streams.get(stream.id)
    if entry is None:
        raise Fault("ValueError", STREAM_IS_OVER)
    opened, passed = entry
    assert isinstance(opened, OpenStream)
    if opened.session is None and not job.ctx.replaying:
        agent, is_timed = opened.slot.plan.agent, opened.limit_s is not None or opened.slot.plan.timeout_s is not None
        await job.give_back(partial(job.world.runtime.models.ready_in, agent, timed=is_timed))
    try:
        piece = await _piece(job, opened, stream.id, passed)
    except (Divergence, Fault):
        raise
    except Exception as error:
        await _stream_close(job, stream)
        if is_crash(error):
            await job.give_back()
        raise handle_failure(job, opened.slot, error) from error
    if piece is None:
        await _stream_close(job, stream)
        return None
    if type(piece) is str:
        opened.give(piece)
        job.world.streams[stream.id] = (opened, passed + len(piece))
    return piece


@journals_refusals
async def _piece(job: VegaJob, opened: OpenStream, stream_id: str, passed: int) -> str | dict[str, int] | None:
    """Return the next piece, in time; with the first the agent's turn is waited for."""
    due_s = opened.start_clock(job)
    async with in_time(opened.slot.plan.name, opened.limit_s, due_s=due_s):
        with job.waiting(opened.pid):
            if opened.session is None:
                await opened.begin(job)
            return await job.ctx.do(opened.effect, stream_id, passed)


async def _stream_close(job: VegaJob, stream: Stream) -> None:
    """Done with it."""
    opened, _ = job.world.streams.pop(stream.id, (None, 0))
    if opened is not None:
        assert isinstance(opened, OpenStream)
        opened.close(job)
        if job.world.record is not None:
            job.world.record.leave(f"~{stream.id}")


async def _await(job: VegaJob, what: Future | Stream) -> Any:
    if isinstance(what, Future):
        return Process(what.id)
    parts: list[str] = []
    opened, passed = job.world.streams.get(what.id, (None, 0))
    while (piece := await _read(job, what)) is not None:
        if isinstance(piece, str):
            parts.append(piece)
        elif passed:  # a loop has read a part of it
            raise await _begins_anew(job, what)
        else:
            assert isinstance(opened, OpenStream)
            kept = piece["restart"]
            parts = ["".join(parts)[:kept]]
            opened.keep(kept)
            job.world.streams[what.id] = (opened, kept)
    return "".join(parts)


STREAMS: Final[dict[str, Callable[..., Any]]] = {
    "send_stream": reaches_heir(_send_stream),
    "stream_next": _stream_next,
    "stream_close": _stream_close,
    "await": _await,
}
