"""`p <~ message`: an answer piece by piece, iterable, awaitable, cancelled when its loop is left."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.content import content_of
from lyra.agents.events import Text
from lyra.agents.replies import Pending
from lyra.agents.runtime import scopes
from lyra.agents.trace import Held
from lyra.core.effect import Effect
from lyra.errors import DeadlineExceeded, LyraError
from lyra.kernel.programs import program_of
from lyra.vega.runtime.agents import Cell
from lyra.vega.runtime.calls import content_text, failed, inside, mocked_reply, stop
from lyra.vega.values import Duration, Fault, Future, Money, Process, Stream, shown

if TYPE_CHECKING:
    from lyra.kernel.context import ChildHandle
    from lyra.kernel.process import Process as KernelProcess
    from lyra.vega.runtime.job import Job

__all__ = ["STREAMS", "Opened"]


class Opened:
    """A stream that is being read. Each piece is an effect, and the agent is asked with the first: a replay of what was
    read asks nobody, and goes on behind it."""

    __slots__ = ("_ask", "_passed", "cell", "child", "due", "effect", "limit_s", "pending")

    def __init__(self, cell: Cell, limit_s: float | None, ask: Callable[[], Pending]) -> None:
        self.cell = cell
        self.limit_s = limit_s
        self.due = None if limit_s is None else asyncio.get_running_loop().time() + limit_s
        self.child: ChildHandle | None = None
        self.pending: Pending | None = None
        self.effect = Effect(self.read, name=f"vega.stream:{cell.plan.name}", idempotent=True)
        self._ask = ask
        self._passed = 0  # characters that the program has

    async def read(self, _stream_id: str, passed: int) -> str | None:
        """The next piece behind what was passed; None at the end."""
        if self.pending is None:
            self.pending = self._ask()
        sink = self.pending.sink
        assert sink is not None
        while (event := await sink.next()) is not None:
            if type(event) is not Text:
                continue
            self._passed += len(event.delta)
            if self._passed > passed:
                return event.delta[-(self._passed - passed) :]
        return None


async def _send_stream(
    job: Job, target: Process, message: Any, timeout: Duration | None, budget: Money | None
) -> Stream:
    world = job.world
    cell = world.cells.get(target.pid)
    if cell is None:
        raise Fault("TypeError", "only an agent answers with a stream")
    stream = Stream(f"{job.ctx.pid}/{job.state.number()}")
    mocked = mocked_reply(job, cell, message)
    if mocked is not None:
        job.state.mocked[stream.id] = re.findall(r"\S+\s*|\s+", shown(mocked[0]))[::-1]
        return stream
    plan = cell.plan
    content, limit = content_of(content_text(message)), inside(plan.budget if budget is None else budget)
    await cell.__aenter__()
    session: KernelProcess | None = cell.session
    child = None
    if session is None:
        child = job.ctx.spawn(program_of(plan.agent), priority=plan.priority)
        session = child._found()

    def ask_it() -> Pending:
        assert session is not None
        with Held(scopes, limit):
            return world.runtime.ask(session, content, stream=True)

    opened = Opened(cell, plan.timeout_s if timeout is None else timeout.seconds, ask_it)
    opened.child = child
    world.streams[stream.id] = (opened, 0)
    return stream


async def _stream_next(job: Job, stream: Stream) -> Any:
    """[the next piece], or null at the end."""
    pieces = job.state.mocked.get(stream.id)
    if pieces:
        return [pieces.pop()]
    found = job.world.streams.get(stream.id)
    if found is None:
        return None
    opened, passed = found
    try:
        async with asyncio.timeout_at(opened.due) as clock:
            piece = await job.ctx.do(opened.effect, stream.id, passed)
    except TimeoutError:
        if not clock.expired():
            raise
        await _stream_close(job, stream)
        name = opened.cell.plan.name
        raise DeadlineExceeded(f"{name} did not answer within {opened.limit_s:g} s", timeout_s=opened.limit_s) from None
    except LyraError as error:
        await _stream_close(job, stream)
        raise failed(job, opened.cell, error) from error
    if piece is None:
        await _stream_close(job, stream)
        return None
    job.world.streams[stream.id] = (opened, passed + len(piece))
    return [piece]


async def _stream_close(job: Job, stream: Stream) -> None:
    """Done with it: what the agent is still saying is cancelled."""
    opened, _ = job.world.streams.pop(stream.id, (None, 0))
    if opened is None:
        return
    if opened.pending is not None and not opened.pending.done():
        opened.pending.cancel()
    await opened.cell.__aexit__()
    if opened.child is not None:
        stop(job, opened.child)


async def _await(job: Job, what: Future | Stream) -> Any:
    if isinstance(what, Future):
        return Process(what.id)
    parts = []
    while (piece := await _stream_next(job, what)) is not None:
        parts.append(piece[0])
    return "".join(parts)


STREAMS: Final[dict[str, Callable[..., Any]]] = {
    "send_stream": _send_stream,
    "stream_next": _stream_next,
    "stream_close": _stream_close,
    "await": _await,
}
