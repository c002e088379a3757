"""CallGroup: the agent calls of one function at run time, made as early as possible, answered in program order.

The program itself runs as it is written. Where it calls an agent, it calls `CallGroup.call` with the target and the
arguments. If the lookahead has made the same call already, its answer is used; if not, the call is made now, and a
lookahead begins here. Early calls that the program does not come to are cancelled and awaited, turns that they added to
conversations are removed, and their cost is speculative.

The cost of an early call stays out of every budget until the program comes to it (`session.early_call`). If the budgets
would not have allowed it then, it is made again, line by line, and so are the calls behind it. In a program with a
journal each call is a branch with a key made of its place in the program (`2/0.1/`: the function is branch 2, its
second call), so that a replay finds its answer whichever call was faster.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakValueDictionary

from lyra.agents.parallel.call import ParallelCall
from lyra.agents.parallel.expressions import VIEWS
from lyra.agents.parallel.lookahead import ExpectedItems, Lookahead
from lyra.agents.parallel.pending_values import OwnContainer, PendingValue, calls_of, resolve, snapshot_of
from lyra.agents.parallel.safe_values import StopLookahead, is_plain, is_same_value
from lyra.agents.parallel.source.function_map import FunctionMap
from lyra.agents.parallel.targets import AgentCall
from lyra.agents.sdk import run
from lyra.agents.session.early_call import ChangeSignal, EarlyCall, TimeWon, current_early_call, time_won
from lyra.core import codec
from lyra.core.budgets.budget import NOTHING, Usage
from lyra.errors import Divergence
from lyra.kernel.base.tasks import Tasks
from lyra.kernel.journal import rows
from lyra.kernel.process.cut_short import process_lives_on
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import new_branch, next_key, take_entry
from lyra.kernel.programs.context import Context

WINDOW: Final = 8  # calls at a time


class CallGroup:
    """`async with CallGroup(map, *arguments) as group: x = await group.call(0, names, p.send, "…") …`."""

    def __init__(self, map_: FunctionMap, *arguments: Any) -> None:
        self._map = map_
        self._arguments = arguments
        self._tasks = Tasks()
        self._queue: deque[ParallelCall] = deque()  # made and not used yet, in program order, the current one first
        self._number = 0  # the number of the current call
        self._way = 0  # how often the program left the foreseen way: keys are not used twice
        self._lookahead: Lookahead | None = None
        self._steps: Iterator[Any] | None = None
        self._waits: tuple[ParallelCall, ...] = ()  # the calls that the lookahead waits for
        self._foreseen: dict[int, deque[ExpectedItems]] = {}
        # The loops that the program is in; weak, so that they go when the program leaves them, as iterators do.
        self._loops: WeakValueDictionary[int, ObservedLoop] = WeakValueDictionary()
        self._paths: dict[Process, str] = {}  # the branch of this function in each program that asks by its `ctx`
        self._is_new = True
        self._time_won: TimeWon | None = None  # if this is the outermost decorated function
        self.changes = ChangeSignal()
        self.mispredicted = False  # a loop reads other items than were foreseen
        self.is_inside = False  # whether it runs inside an early call: then all its calls are made in their turn

    async def __aenter__(self) -> Self:
        around = time_won.get()
        if around is None or not around.is_open:
            self._time_won = TimeWon()
            time_won.set(self._time_won)
        outer = current_early_call.get()
        self.is_inside = outer is not None and not outer.is_due
        for (
            argument
        ) in self._arguments:  # now, on the program's own line: the number depends on nothing but the program
            if type(argument) is Context and argument.own_process not in self._paths:
                self._paths[argument.own_process] = new_branch(argument.own_process)
        self._arguments = ()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.discard()
        finally:
            if self._time_won is not None:  # code after the function may still give back the time won
                self._time_won.is_open = False

    # ------------------------------------------------------------ where the program is

    async def call(self, site: int, names: tuple[Any, ...] | None, work: Any, /, *args: Any, **keywords: Any) -> Any:
        """Make an agent call of the program, or use the early one."""
        question = AgentCall.from_call(work, list(args), keywords)
        if question is None:
            await self.discard()
            return await work(*args, **keywords)
        if self._is_new and not self.is_inside:
            self._is_new = False
            await asyncio.sleep(0)  # lets a process that was just spawned begin
        program = question.program
        kept = JournaledDecision(program) if program in self._paths and program.kernel.journal is not None else None
        try:
            call = await self._come_in_time(site, question, kept)
            if call is None:
                call = await self._now(site, names, question, kept)
        except BaseException as error:
            if self._queue and self._queue[0].early_call.is_due and not isinstance(error, (Divergence, GeneratorExit)):
                await self._give_up(self._queue[0])  # the calls behind it
                self._take(kept)
            await self.discard()
            raise
        self._take(kept)
        self.advance()
        return call.answer

    async def _come_in_time(
        self, site: int, question: AgentCall, kept: JournaledDecision | None
    ) -> ParallelCall | None:
        """`_come`, with the time counted by which it ends earlier than in the line-by-line run."""
        first = self._queue[0] if self._queue else None
        came_s = asyncio.get_running_loop().time()
        try:
            return await self._come(site, question, kept)
        finally:
            won = time_won.get()
            if won is not None and first is not None:
                taken_s = first.took_s if self._queue and self._queue[0] is first else 0.0
                won.win(taken_s - (asyncio.get_running_loop().time() - came_s))

    async def _come(self, site: int, question: AgentCall, kept: JournaledDecision | None) -> ParallelCall | None:
        """Return the early call if it can be used, answered; None if the call has to be made now."""
        word = kept.word if kept is not None else ""
        call = self._queue[0] if self._queue else None
        if call is not None and await self._stands(call, site, question, kept):
            assert call.task is not None
            try:
                await call.task
                return call
            except asyncio.CancelledError:
                call.task.cancel()
                task = asyncio.current_task()
                if task is None or task.cancelling():  # otherwise the call was cancelled, not the program
                    raise
            except Exception:
                if word == TAKEN or not call.is_in_vain() or not call.was_free():
                    raise
        if call is not None:
            await self._give_up()
            if kept is not None and not word:
                kept.write(AGAIN)
        if call is not None or word == AGAIN:
            self._way += 1
        return None

    async def _stands(self, call: ParallelCall, site: int, question: AgentCall, kept: JournaledDecision | None) -> bool:
        """Return whether the early call is what the program asks now; if so, its turn has come."""
        if call.site != site or not call.question.is_same(question) or (kept is not None and kept.word == AGAIN):
            return False
        if kept is not None and kept.word == TAKEN:
            call.early_call.close(taken=True)  # charged when the journal was read
            return True
        if kept is not None:
            await call.early_call.wait_for_child()
        return not call.is_in_vain() and not call.was_held() and call.early_call.take_turn()

    async def _now(
        self, site: int, names: tuple[Any, ...] | None, question: AgentCall, kept: JournaledDecision | None
    ) -> ParallelCall:
        call = ParallelCall(self, site, question, self._key(question, self._number))
        call.early_call.take_turn()
        if kept is not None and kept.word == TAKEN:
            call.early_call.close(taken=True)
        self._queue.appendleft(call)
        if question.program in self._paths:  # a program with a journal: in its own branch
            self._start(call, None)
        if names is not None and len(self._queue) == 1:
            self._look(self._map.sites[site], dict(zip(self._map.names[site], names, strict=True)), call)
        if call.task is None:
            await call.ask_now()
            return call
        try:
            await call.task
        except asyncio.CancelledError:
            call.task.cancel()
            raise
        return call

    def _key(self, question: AgentCall, number: int) -> str:
        path = self._paths.get(question.program, "") if question.program is not None else ""
        return f"{path}{self._way}.{number}/" if path else ""

    def _take(self, kept: JournaledDecision | None) -> None:
        call = self._queue.popleft()
        self._number += 1
        if kept is not None and not kept.word:
            kept.write(TAKEN, call.early_call.usage)
        call.early_call.close(taken=True)

    def before(self, call: ParallelCall) -> list[EarlyCall]:
        """Return the calls before one whose answers are not used yet."""
        earlier: list[EarlyCall] = []
        for other in self._queue:
            if other is call:
                break
            earlier.append(other.early_call)
        return earlier

    # ------------------------------------------------------------ early calls

    def look_ahead(self, place: int, *names: Any) -> None:
        """Begin a lookahead at a statement whose calls stand inside of a comprehension."""
        if not self._queue and not self.is_inside:
            self._look(
                self._map.statements[place], dict(zip(self._map.statement_names[place], names, strict=True)), None
            )

    def _look(self, place: Any, names: dict[str, Any], call: ParallelCall | None) -> None:
        """Begin a lookahead, unless the current call must not run beside others."""
        if self.is_inside:
            return
        now = None
        if call is not None:
            why = call.question.why_not(is_due=True)
            if why:
                _publish(call.question, why)
                return
            now = _answer_of(call)
        self._lookahead = Lookahead(self, names, self._map)
        self._steps = self._lookahead.follow(self._map.body, self._map.path_to(place), place, now)
        self._waits = ()
        self.advance()

    def advance(self) -> None:
        """Continue the lookahead as far as the answers so far allow."""
        while self._steps is not None and all(call.is_answered for call in self._waits) and self._has_place():
            try:
                self._waits = next(self._steps)
            except (StopIteration, StopLookahead):
                self._stop()
            except Exception:  # noqa: BLE001 - the program continues without a lookahead
                self._stop()
        if any(call.error is not None for call in self._waits):
            self._stop()

    def _has_place(self) -> bool:
        return bool(self._waits) or self.has_room()

    def _stop(self) -> None:
        if self._lookahead is not None:
            self._lookahead.names.clear()
        self._steps = self._lookahead = None
        self._waits = ()

    def has_room(self) -> bool:
        return len(self._queue) < WINDOW

    def issue(self, site: int, work: Any, args: list[Any], keywords: dict[str, Any]) -> PendingValue:
        question = AgentCall.from_call(
            work, [*map(snapshot_of, args)], {name: snapshot_of(value) for name, value in keywords.items()}
        )
        if question is None:
            raise StopLookahead("whom it asks is not known before its turn, or is no agent")
        why = question.why_not()
        if not why and question.program is not None and question.program not in self._paths:
            why = "the program it asks for is none of the function's arguments"
        if why:
            _publish(question, why)
            raise StopLookahead(why)
        call = ParallelCall(self, site, question, self._key(question, self._number + len(self._queue)))
        before = next((other for other in reversed(self._queue) if other.question.is_same_conversation(question)), None)
        self._queue.append(call)
        self._start(call, before)
        return _answer_of(call)

    def _start(self, call: ParallelCall, before: ParallelCall | None) -> None:
        call.task = self._tasks.start(call.run(before), name="early call")

    # ------------------------------------------------------------ loops

    def loop(self, number: int, work: Any, /, *args: Any, **keywords: Any) -> ObservedLoop:
        """Begin a loop of the program over `work`, or over what `enumerate` or `zip` make of the arguments."""
        foreseen = self._foreseen.get(number)
        loop = ObservedLoop(self, work, args, keywords, foreseen.popleft() if foreseen else None)
        self._loops[number] = loop
        return loop

    def enter_loop(self, loop: int) -> ExpectedItems:
        expected = ExpectedItems(0)
        self._foreseen.setdefault(loop, deque()).append(expected)
        return expected

    def read_left_items(
        self, loop: int, own: Callable[[str], OwnContainer | None]
    ) -> tuple[Iterator[Any], ExpectedItems]:
        running = self._loops.get(loop)
        if running is None:
            raise StopLookahead("the items that the loop reads next are not known")
        name = self._map.looped.get(loop, "")
        copy = own(name) if name in self._map.own else None
        return running.read_left_items(copy)

    # ------------------------------------------------------------ the end

    async def discard(self) -> None:
        """Give up all early calls: the program goes another way than was foreseen, or ends."""
        self._stop()
        self._way += 1
        self._foreseen.clear()
        self.mispredicted = False
        for loop in self._loops.values():
            loop.expected = None
        if not self._queue:
            return
        if sys.exc_info()[0] is GeneratorExit:  # nothing can be awaited any more
            for call in self._queue:
                if call.task is not None:
                    call.task.cancel()
            self._queue.clear()
            return
        await self._give_up()

    async def _give_up(self, but: ParallelCall | None = None) -> None:
        """Cancel early calls, wait for their end, remove their turns, and count their cost as speculative."""
        self._stop()
        left = [call for call in self._queue if call is not but]
        for call in left:
            if call.task is not None:
                call.task.cancel()
        cancelled: asyncio.CancelledError | None = None
        for call in left:
            waiting = self._tasks.start(self._wait_for_end(call), name="early call ends")
            while not waiting.done():
                try:
                    await asyncio.wait([waiting])
                except asyncio.CancelledError as error:  # raised after all of them have ended
                    cancelled = error
        for call in reversed(left):
            if not call.early_call.is_over:
                call.remove_turn()
                call.early_call.close(taken=False)
        for call in left:
            self._queue.remove(call)
        if cancelled is not None:
            raise cancelled

    @staticmethod
    async def _wait_for_end(call: ParallelCall) -> None:
        if call.task is not None:
            await asyncio.wait([call.task])
            if not call.task.cancelled():
                call.task.exception()  # marked as retrieved
        if not call.early_call.is_over:
            await call.early_call.wait_until_idle()


def _answer_of(call: ParallelCall) -> PendingValue:
    agent = call.question.agent
    kind = str if agent is not None and agent.output is None else None
    return PendingValue((call,), kind, lambda: call.answer)


def _publish(question: AgentCall, why: str) -> None:
    place = question.keywords.get("on")
    if question.process is not None:
        kernel, pid = question.process.kernel, question.process.pid
    elif type(place) is Context:
        kernel, pid = place.own_process.kernel, place.pid
    else:
        return
    if kernel.agents_heard:
        kernel.publish(pid, "call.ordered", {"pid": pid, "why": why})


class PlainCallGroup:
    """A CallGroup for a plain function: its own event loop runs while the function waits for an answer."""

    def __init__(self, map_: FunctionMap, *arguments: Any) -> None:
        self._group = CallGroup(map_, *arguments)
        self._runner: asyncio.Runner | None = None  # made with the first agent call

    def __enter__(self) -> Self:
        return self

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._runner is None:
            self._runner = asyncio.Runner()
            self._runner.run(self._group.__aenter__())
        return self._runner.run(work)

    @property
    def mispredicted(self) -> bool:
        return self._group.mispredicted

    @property
    def loop(self) -> Any:
        return self._group.loop

    def call(self, site: int, names: tuple[Any, ...] | None, work: Any, /, *args: Any, **keywords: Any) -> Any:
        if work is not run:
            self.discard()
            return work(*args, **keywords)
        return self._run(self._group.call(site, names, work, *args, **keywords))

    def look_ahead(self, place: int, *names: Any) -> None:
        async def look() -> None:
            self._group.look_ahead(place, *names)

        self._run(look())

    def discard(self) -> None:
        if self._runner is not None:
            self._runner.run(self._group.discard())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.discard()
        finally:
            if self._runner is not None:
                self._runner.close()


# The journal row for a call of `@lyra.parallel` that a program has come to: whether its result was used, and its
# cost.

TAKEN: Final = "taken"
AGAIN: Final = "again"  # its early result could not be used: the call was made once more
_FORM: Final = "ahead"


class JournaledDecision:
    """The decision on one call; `word` is empty until there is one."""

    __slots__ = ("_key", "_process", "word")

    def __init__(self, process: Process) -> None:
        self._process = process
        self._key = next_key(process)
        self.word = ""
        if process.replay is not None:
            entry = take_entry(process, self._key, _FORM, "", b"")
            if entry is not None:
                self.word = str(codec.decode(bytes(entry.value)))

    def write(self, word: str, usage: Usage = NOTHING) -> None:
        """Write the decision, without waiting: later rows come after it in the journal."""
        self.word = word
        journal = self._process.kernel.journal
        assert journal is not None
        if process_lives_on(self._process):
            spent = usage.to_data() if usage.packed else None
            row = rows.Finished(self._key, rows.Raw(codec.encode(word)), usage=spent, form=_FORM)
            journal.write(self._process.pid, "effect.finished", rows.encode(row))
            self._process.count_spent(usage)


_MANY: Final = 10_000


class ObservedLoop:
    """A `for` as it runs: the real iterator, read one item at a time, and compared with the foreseen items."""

    __slots__ = ("__weakref__", "_count", "_group", "_items", "_sources", "_work", "expected")

    def __init__(
        self,
        group: CallGroup,
        work: Any,
        args: tuple[Any, ...],
        keywords: dict[str, Any],
        expected: ExpectedItems | None,
    ) -> None:
        self._group = group
        self._work = work if args or keywords else None
        self._sources = args if args or keywords else (work,)
        self.expected = expected
        self._count = 0
        self._items = iter(work(*args, **keywords) if args or keywords else work)
        if keywords:
            self._work = ObservedLoop  # a value that `read_left_items` refuses: keywords change how the items are read

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            item = next(self._items)
        except StopIteration:
            self._compare(ended=True)
            raise
        self._compare(item)
        self._count += 1
        return item

    def _compare(self, item: Any = None, *, ended: bool = False) -> None:
        expected = self.expected
        if expected is None:
            return
        index = self._count - expected.first
        if index >= len(expected.items):
            if not ended and expected.ends:
                self._group.mispredicted = True
        elif (
            ended
            or any(not call.is_answered for call in calls_of(expected.items[index]))
            or not _is_same(resolve(expected.items[index]), item)
        ):
            self._group.mispredicted = True

    def read_left_items(self, own: OwnContainer | None) -> tuple[Iterator[Any], ExpectedItems]:
        """Return the items still to come; `own` is the lookahead's copy if the loop runs over a list of the function's
        own."""
        self.expected = ExpectedItems(self._count)
        if self._work is None:
            items = _rest(self._sources[0], self._count) if own is None else _from(own.parts, self._count)
            return items, self.expected
        if self._work is enumerate:
            first = self._sources[1] if len(self._sources) > 1 else 0
            items = _rest(self._sources[0], self._count)
            return (OwnContainer(tuple, list(row)) for row in enumerate(items, first + self._count)), self.expected
        if self._work is zip:
            parts = [_rest(source, self._count) for source in self._sources]
            return (OwnContainer(tuple, list(row)) for row in zip(*parts, strict=False)), self.expected
        raise StopLookahead("the items that the loop reads next are not known")


def _from(parts: list[Any], index: int) -> Iterator[Any]:
    while index < len(parts):
        yield parts[index]
        index += 1


def _rest(source: Any, count: int) -> Iterator[Any]:
    kind = type(source)
    if kind is list:
        return _from(source, count)
    if kind in (tuple, range) or is_plain(source):
        return iter(source[count:]) if kind is not frozenset else iter(list(source)[count:])
    if kind in (dict, set) or kind in VIEWS:
        return iter(list(source)[count : count + _MANY])
    raise StopLookahead(f"it goes through a {kind.__name__}")


def _is_same(expected: Any, item: Any) -> bool:
    if type(expected) is tuple and type(item) is tuple:
        return len(expected) == len(item) and all(map(_is_same, expected, item))
    return is_same_value(expected, item)
