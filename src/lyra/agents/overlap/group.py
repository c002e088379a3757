"""What runs: calls of one stretch, started as early as they may, their answers given in the order of the program.

A call may start early when whom it asks is known, remembers nothing that could not be taken back, and can only read: an
Agent for one question, or an agent's process on a kernel without a journal. Any other is ordered: it is made in its
turn, and none after it starts before it is over. Two calls of one process are made one after the other. When the
program fails, what was started early and is not due is cancelled and waited for, and the turns of conversations that
were over already are taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from lyra.agents.agent import Agent
from lyra.agents.overlap.rules import OFF
from lyra.agents.process import AgentProcess
from lyra.agents.runtime import runtime_of, scopes
from lyra.agents.session import Session
from lyra.core.budget import DIMENSIONS, Budget
from lyra.core.tool import Tool
from lyra.kernel.tasks import Tasks

__all__ = ["Group", "PlainGroup", "loop_of", "plain_loop_of"]

WINDOW: Final = 8  # calls under way at one time
_READING: Final = frozenset({"fs.read", "net.get", "db.read", "memory.read", "env.read"})

Who = Callable[[Any], Any] | None
Ask = Callable[["Turn", Any], Awaitable[Any]]
Row = tuple[Who, Ask]


class _Abandoned(Exception):
    """A call that this one needs has failed: the program will not come here."""


_UNSET: Final = object()


class Turn:
    """One time through the stretch: its calls, and what they can ask each other."""

    __slots__ = ("calls", "item")

    def __init__(self, rows: Sequence[Row], item: Any) -> None:
        self.item = item
        self.calls = [Early(self, who, ask) for who, ask in rows]

    @staticmethod
    def kept(value: Any) -> Any:
        """A variable's value of when the stretch began; one that had none is the program's to find out."""
        if value is _UNSET:
            raise _Abandoned
        return value

    async def value(self, number: int) -> Any:
        """The answer of an earlier call, as soon as it is there."""
        call = self.calls[number]
        assert call.task is not None
        await asyncio.wait([call.task])
        if call.task.cancelled() or call.task.exception() is not None:
            raise _Abandoned
        return call.task.result()


class Early:
    """One call. `mark` is where the conversation stood before it, `over` where it stood after."""

    __slots__ = ("_ask", "mark", "over", "process", "task", "turn", "who")

    def __init__(self, turn: Turn, who: Who, ask: Ask) -> None:
        self.turn = turn
        self.who = who
        self._ask = ask
        self.process: AgentProcess | None = None
        self.task: asyncio.Task[Any] | None = None
        self.mark: tuple[Session, int, bytes] | None = None
        self.over = -1

    async def run(self, before: Early | None) -> Any:
        if before is not None and before.task is not None and "delivery" not in OFF:
            await asyncio.wait([before.task])
            if before.task.cancelled() or before.task.exception() is not None:
                raise _Abandoned
        session = _session(self.process)
        if session is not None:
            self.mark = (session, len(session.messages), session.digest)
        value = await self._ask(self.turn, self.turn.item)
        if session is not None:
            self.over = len(session.messages)
        return value

    def take_back(self) -> None:
        """Forget a turn of the conversation that the program never came to."""
        if self.mark is None or self.over < 0:
            return
        session, length, digest = self.mark
        if len(session.messages) == self.over:
            session.cut_back(length, digest)
            self.over = -1


class Group:
    """`async with Group([(who, ask), …]) as group: x = await group.commit(0) …`."""

    def __init__(self, rows: Sequence[Row], *, items: Iterable[Any] | None = None) -> None:
        self._rows = rows
        self._tasks = Tasks()
        self._queue: list[Early] = []  # in the order of the program
        self._issued = 0
        self._committed = 0
        self._items: Iterator[Any] = iter(())
        self._current: Turn | None = None
        self._coming: list[Turn] = []
        if items is None:
            self._current = self._turn(None)
        elif isinstance(items, (list, tuple, range, str, dict)):
            self._coming = [self._turn(item) for item in items]
        else:  # going on in it may do anything: one turn at a time
            self._items = iter(items)

    @staticmethod
    def peek(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except NameError:
            return _UNSET

    def _turn(self, item: Any) -> Turn:
        turn = Turn(self._rows, item)
        self._queue += turn.calls
        return turn

    async def __aenter__(self) -> Self:
        await asyncio.sleep(0)  # a process that was just spawned begins
        self._advance()
        return self

    def __iter__(self) -> Iterator[Any]:
        for turn in self._coming:
            self._current = turn
            yield turn.item
        for item in self._items:
            self._current = self._turn(item)
            self._advance()
            yield item

    async def commit(self, number: int) -> Any:
        """The answer of a call whose turn has come."""
        assert self._current is not None
        call = self._current.calls[number]
        if call.task is None:
            assert self._queue[self._issued] is call, "calls are made in the order of the program"
            self._issue(call)
        assert call.task is not None
        try:
            value = await call.task
        except asyncio.CancelledError:
            call.task.cancel()
            raise
        self._committed += 1
        self._advance()
        return value

    # ------------------------------------------------------------ starting

    def _advance(self) -> None:
        while self._issued < len(self._queue) and self._issued - self._committed < WINDOW:
            call = self._queue[self._issued]
            if not _may_start(call):
                return  # in its turn, and nothing after it before
            self._issue(call)

    def _issue(self, call: Early) -> None:
        target = _target(call)
        call.process = target if isinstance(target, AgentProcess) else None
        before = next(
            (
                other
                for other in reversed(self._queue[: self._issued])
                if call.process is not None and other.process is not None and other.process.pid == call.process.pid
            ),
            None,
        )
        call.task = self._tasks.start(call.run(before), name="early call")
        self._issued += 1

    # ------------------------------------------------------------ the end

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = [call for call in self._queue[self._committed : self._issued] if call.task is not None]
        if "cancelled" not in OFF:
            for call in left:
                assert call.task is not None
                call.task.cancel()
        for call in left:
            assert call.task is not None
            with suppress(BaseException):
                await asyncio.wait([call.task])
                call.task.exception()
        if "take back" not in OFF:
            for call in reversed(left):
                call.take_back()


def loop_of(items: Iterable[Any], rows: Sequence[Row]) -> Group:
    """A group for all turns of a `for`."""
    return Group(rows, items=items)


class PlainGroup:
    """The same in a plain function: a loop of its own runs while the function waits for an answer."""

    peek = staticmethod(Group.peek)

    def __init__(self, rows: Sequence[Row], *, items: Iterable[Any] | None = None) -> None:
        self._group = Group(rows, items=items)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.run(self._group.__aenter__())
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(self._group)

    def commit(self, number: int) -> Any:
        return self._runner.run(self._group.commit(number))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self._group.__aexit__(kind, error, trace))
        finally:
            self._runner.close()


def plain_loop_of(items: Iterable[Any], rows: Sequence[Row]) -> PlainGroup:
    return PlainGroup(rows, items=items)


# ---------------------------------------------------------------- who may be asked early


def _target(call: Early) -> Any:
    if call.who is None:
        return None
    try:
        return call.who(call.turn.item)
    except Exception:  # noqa: BLE001 - in its turn the program finds out by itself
        return None


def _may_start(call: Early) -> bool:
    target = _target(call)
    if "ordered" in OFF:
        return target is not None
    if target is None or _is_limited(scopes.get()):
        return False
    if isinstance(target, Agent):
        return _only_reads(target)
    session = _session(target) if isinstance(target, AgentProcess) else None
    return (
        session is not None and not session.durable and _only_reads(session.agent) and not _is_limited((target.budget,))
    )


def _session(process: Any) -> Session | None:
    if process is None:
        return None
    return runtime_of(process._kernel).sessions.get(process.pid)


def _only_reads(agent: Agent) -> bool:
    """Whether an agent can do nothing but answer: no notes, no tools that change anything or may change themselves."""
    if agent.memory is not None or agent.sources or agent.budget is not None or callable(agent.system):
        return False
    return all(_reads(tool) for tool in agent.toolbox)


def _reads(tool: Tool) -> bool:
    """A tool that says what it needs, all of it reading; one that needs nothing has to say that it may be repeated."""
    if tool.needs_of is not None:
        return False
    needs = {need.name for need in tool.needs}
    return needs <= _READING if needs else tool.idempotent


def _is_limited(budgets: Iterable[Budget]) -> bool:
    return any(scope.spendable(dimension) is not None for scope in budgets for dimension in DIMENSIONS)
