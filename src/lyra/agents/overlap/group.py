"""What runs: calls of one stretch, started as early as they may, their answers given in the order of the program.

A call may start early when whom it asks is known, remembers nothing that could not be taken back, and can only read: an
Agent for one question, or an agent's process on a kernel without a journal. Any other is ordered: it is made in its
turn, and none after it starts before it is over. Two calls of one process are made one after the other. When the
program fails, what was started early and is not due is cancelled and waited for, and the turns of conversations that
were over already are taken back.

What an early call spends is apart from every budget until the program comes to it (`lyra.agents.ahead`). If the budgets
would not have allowed it then, it is made again, line by line, and so are those behind it. In a program with a journal
each call is a branch with a key of its own, made of its place in the program (`2/0.1/`: the group is branch 2, its
first turn, the second call), so that a replay finds its answer whoever was faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from lyra.agents.agent import Agent
from lyra.agents.ahead import Ahead, Changes, ahead
from lyra.agents.overlap.kept import AGAIN, TAKEN, Kept
from lyra.agents.overlap.rules import OFF
from lyra.agents.process import AgentProcess
from lyra.agents.runtime import runtime_of
from lyra.agents.session import Metrics, Session
from lyra.core.apart import NO_ROOM
from lyra.core.tool import Tool
from lyra.errors import BudgetExceeded, Divergence
from lyra.kernel.context import Context, name_branch, new_branch
from lyra.kernel.kernel import Kernel
from lyra.kernel.process import Process
from lyra.kernel.tasks import Tasks

__all__ = ["Group", "PlainGroup", "loop_of", "plain_loop_of"]

WINDOW: Final = 8  # calls under way at one time
_READING: Final = frozenset({"fs.read", "net.get", "db.read", "memory.read", "env.read"})

Says = Callable[[Any], Any] | None
Ask = Callable[["Turn", Any], Awaitable[Any]]
Row = tuple[Says, Says, Ask]  # who is asked, where it lives, and the question


class _Abandoned(Exception):
    """A call that this one needs has failed: the program will not come here."""


_UNSET: Final = object()


class Turn:
    """One time through the stretch: its calls, and what they can ask each other."""

    __slots__ = ("calls", "item")

    def __init__(self, group: Group, number: int, rows: Sequence[Row], item: Any) -> None:
        self.item = item
        self.calls = [Early(group, self, f"{number}.{at}", row) for at, row in enumerate(rows)]

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

    __slots__ = (
        "_ask",
        "_group",
        "_on",
        "_who",
        "ahead",
        "key",
        "life",
        "mark",
        "over",
        "process",
        "task",
        "turn",
    )

    def __init__(self, group: Group, turn: Turn, key: str, row: Row) -> None:
        self._who, self._on, self._ask = row
        self._group = group
        self.turn = turn
        self.key = key
        self.life = -1
        self.renew()

    def renew(self) -> None:
        """Nothing was asked, or nothing of it counts: it is to be asked once more."""
        self.life += 1
        self.ahead = Ahead(lambda: self._group.before(self), self._group.changes)
        self.process: AgentProcess | None = None
        self.task: asyncio.Task[Any] | None = None
        self.mark: tuple[Session, int, bytes, Metrics] | None = None
        self.over = -1

    @property
    def target(self) -> Any:
        return self._said(self._who)

    @property
    def place(self) -> Any:
        """The kernel or the program's ctx that it names."""
        return self._said(self._on)

    def _said(self, says: Says) -> Any:
        if says is None:
            return None
        try:
            return says(self.turn.item)
        except Exception:  # noqa: BLE001 - in its turn the program finds out by itself
            return None

    @property
    def program(self) -> Process | None:
        """The process whose program asks, where it asks in its own name."""
        place = self.place
        return place._process if isinstance(place, Context) else None

    async def run(self, before: Early | None, path: str) -> Any:
        program = self.program
        if program is not None and "keys" not in OFF:
            name_branch(program, f"{path}{self.key}{f'.{self.life}' if self.life else ''}/")
        if not self._group.is_inside:
            ahead.set(self.ahead)
        failed = True
        try:
            if before is not None and before.task is not None and "delivery" not in OFF:
                await asyncio.wait([before.task])
                if before.task.cancelled() or before.task.exception() is not None:
                    raise _Abandoned
            session = _session(self.process)
            if session is not None:
                self.mark = (session, len(session.messages), session.digest, session.metrics.copy())
            value = await self._ask(self.turn, self.turn.item)
            if session is not None:
                self.over = len(session.messages)
            failed = False
            return value
        finally:
            self.ahead.settled(failed=failed)

    def was_refused(self) -> bool:
        """It found no room in its budget, in this life of the program or in one before."""
        if self.task is None or not self.task.done() or self.task.cancelled():
            return False
        error = self.task.exception()
        return isinstance(error, BudgetExceeded) and NO_ROOM in error.fields

    def take_back(self) -> None:
        """Forget a turn of the conversation that the program never came to."""
        if self.mark is None:
            return
        session, length, digest, metrics = self.mark
        session.metrics = metrics
        if self.over >= 0 and len(session.messages) == self.over:
            session.cut_back(length, digest)
            self.over = -1


class Group:
    """`async with Group([(who, where, ask), …]) as group: x = await group.commit(0) …`."""

    def __init__(self, rows: Sequence[Row], *, items: Iterable[Any] | None = None) -> None:
        self._rows = rows
        self._tasks = Tasks()
        self._queue: list[Early] = []  # in the order of the program
        self._issued = 0
        self._committed = 0
        self._turns = 0
        self._items: Iterator[Any] = iter(())
        self._current: Turn | None = None
        self._coming: list[Turn] = []
        self._paths: dict[Process, str] = {}  # of the programs that ask in their own name
        self.changes = Changes()
        self.is_inside = False  # of a call that is itself ahead of its turn: here all are made in their turn
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
        turn = Turn(self, self._turns, self._rows, item)
        self._turns += 1
        self._queue += turn.calls
        return turn

    async def __aenter__(self) -> Self:
        outer = ahead.get()
        self.is_inside = outer is not None and not outer.is_due
        self._name_branches()
        await asyncio.sleep(0)  # a process that was just spawned begins
        self._advance()
        return self

    def _name_branches(self) -> None:
        """Now, on the program's own line: the number depends on nothing but the program."""
        for call in self._queue[: len(self._rows)]:
            self._path(call.program)

    def _path(self, program: Process | None) -> str:
        if program is None:
            return ""
        if program not in self._paths:
            self._paths[program] = new_branch(program)
        return self._paths[program]

    def __iter__(self) -> Iterator[Any]:
        for turn in self._coming:
            self._current = turn
            yield turn.item
        for item in self._items:
            self._current = self._turn(item)
            self._advance()
            yield item

    def before(self, call: Early) -> list[Ahead]:
        """The calls that stand before one and are not taken yet."""
        found: list[Ahead] = []
        for other in self._queue[self._committed : self._issued]:
            if other is call:
                break
            found.append(other.ahead)
        return found

    async def commit(self, number: int) -> Any:
        """The answer of a call whose turn has come."""
        assert self._current is not None
        call = self._current.calls[number]
        program = call.program
        kept = Kept(program) if program is not None and program.kernel.journal is not None else None
        if call.task is None:
            assert self._queue[self._issued] is call, "calls are made in the order of the program"
            call.ahead.come()
            self._issue(call)
        await self._come(call, kept)
        assert call.task is not None
        try:
            value = await call.task
        except asyncio.CancelledError:
            call.task.cancel()
            self._take(call, kept)
            raise
        except Divergence:
            raise
        except Exception:
            self._take(call, kept)
            raise
        self._take(call, kept)
        self._committed += 1
        self._advance()
        return value

    async def _come(self, call: Early, kept: Kept | None) -> None:
        """The program is there: the call stands as it was made, or is made once more."""
        word = kept.word if kept is not None else ""
        if word == TAKEN:
            call.ahead.over(taken=True)  # and charged, when the journal was read
            return
        if kept is not None:
            await call.ahead.begun()
        if word == AGAIN or call.was_refused() or not call.ahead.come():
            if kept is not None and not word:
                kept.write(AGAIN)
            await self._again(call)

    def _take(self, call: Early, kept: Kept | None) -> None:
        if kept is not None and not kept.word:
            kept.write(TAKEN, call.ahead.usage)
        call.ahead.over(taken=True)

    async def _again(self, call: Early) -> None:
        at = self._committed
        assert self._queue[at] is call
        left = self._queue[at : self._issued if "behind" not in OFF else at + 1]
        await self._give_up(left)
        for each in left:
            each.renew()
        issued, self._issued = self._issued, at
        call.ahead.come()
        self._issue(call)
        if "behind" in OFF:
            self._issued = issued
        self._advance()

    # ------------------------------------------------------------ starting

    def _advance(self) -> None:
        while self._issued < len(self._queue) and self._issued - self._committed < WINDOW:
            call = self._queue[self._issued]
            why = "it is made for a call that is itself ahead of its turn" if self.is_inside else _why_not(call)
            if why:
                _publish(call, why)
                return  # in its turn, and nothing after it before
            self._issue(call)

    def _issue(self, call: Early) -> None:
        target = call.target
        call.process = target if isinstance(target, AgentProcess) else None
        before = next(
            (
                other
                for other in reversed(self._queue[: self._issued])
                if call.process is not None and other.process is not None and other.process.pid == call.process.pid
            ),
            None,
        )
        path = self._path(call.program)
        call.task = self._tasks.start(call.run(before, path), name="early call")
        self._issued += 1

    # ------------------------------------------------------------ the end

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not GeneratorExit:
            await self._give_up(self._queue[self._committed : self._issued])

    async def _give_up(self, calls: list[Early]) -> None:
        """What was made early and is not needed is cancelled, waited for, forgotten, and told as speculative."""
        left = [call for call in calls if call.task is not None]
        if "cancelled" not in OFF:
            for call in left:
                assert call.task is not None
                call.task.cancel()
        for call in left:
            assert call.task is not None
            with suppress(Exception, asyncio.CancelledError):
                await asyncio.wait([call.task])
                call.task.exception()
        for call in left:
            if not call.ahead.is_over and "cancelled" not in OFF:
                await call.ahead.ended()
        for call in reversed(left):
            if not call.ahead.is_over:
                if "take back" not in OFF:
                    call.take_back()
                call.ahead.over(taken=False)


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


def _why_not(call: Early) -> str:
    """Why a call is made in its turn; empty: it may start early."""
    target, place = call.target, call.place
    if "ordered" in OFF:
        return "" if target is not None else "whom it asks"
    if isinstance(target, Agent):
        if isinstance(place, Kernel) and place.journal is not None:
            return "the kernel that `on=` names keeps a journal, and could not forget the call"
        return _does_more(target)
    if not isinstance(target, AgentProcess):
        return "whom it asks is not known before its turn, or is no agent"
    session = _session(target)
    if session is None:
        return f"agent process {target.pid} is not at work"
    if session.durable:
        return f"a journal keeps the conversation of agent process {target.pid}, and could not take a turn back"
    return _does_more(session.agent)


def _publish(call: Early, why: str) -> None:
    target, place = call.target, call.place
    if isinstance(target, AgentProcess):
        kernel, pid = target._kernel, target.pid
    elif isinstance(place, Context):
        kernel, pid = place._process.kernel, place.pid
    else:
        return
    if kernel.agents_heard:
        kernel.publish(pid, "call.ordered", {"pid": pid, "why": why})


def _session(process: Any) -> Session | None:
    if process is None:
        return None
    return runtime_of(process._kernel).sessions.get(process.pid)


def _does_more(agent: Agent) -> str:
    """What an agent does besides answering: it keeps notes, or has tools that change something or themselves."""
    if agent.memory is not None:
        return f"agent {agent.name} has a memory"
    if callable(agent.system):
        return f"the system prompt of agent {agent.name} is made anew for each call"
    if agent.sources:
        return f"the tools of agent {agent.name} may change"
    tool = next((tool for tool in agent.toolbox if not _reads(tool)), None)
    return "" if tool is None else f"tool {tool.name} of agent {agent.name} does more than read"


def _reads(tool: Tool) -> bool:
    """A tool that says what it needs, all of it reading; one that needs nothing has to say that it may be repeated."""
    if tool.needs_of is not None:
        return False
    needs = {need.name for need in tool.needs}
    return needs <= _READING if needs else tool.idempotent
