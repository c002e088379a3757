"""What runs: the calls of one function, made as early as they may be, their answers given in the order of the program.

The program itself runs as it is written. Where it calls an agent it comes to `at`, with whom it asks and what, computed
in their place. If just this was asked already by the look ahead, its answer is taken; if not, it is asked now, and the
look ahead begins here. What was asked early and is not what the program comes to is cancelled and waited for, the turns
of conversations that were over already are taken back, and what it cost is speculative.

What an early call spends stays out of every budget until the program comes to it (`session.early_call`). If the budgets
would not have allowed it then, it is made again, line by line, and so are those behind it. In a program with a journal
each call is a branch with a key of its own, made of its place in the program (`2/0.1/`: the function is branch 2, its
second call), so that a replay finds its answer whoever was faster.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakValueDictionary

from lyra.agents.parallel.call import Early
from lyra.agents.parallel.journal import AGAIN, TAKEN, Kept
from lyra.agents.parallel.lookahead import Expected, Shadow
from lyra.agents.parallel.loops import Loop
from lyra.agents.parallel.pending_values import Later, Made, copied
from lyra.agents.parallel.safe_values import Foreign
from lyra.agents.parallel.source.function_map import Map
from lyra.agents.parallel.targets import Question
from lyra.agents.sdk import run
from lyra.agents.session.early_call import Ahead, Changes, ahead
from lyra.agents.session.time_won import Lead, lead
from lyra.errors import Divergence
from lyra.kernel.base.tasks import Tasks
from lyra.kernel.process.call_keys import new_branch
from lyra.kernel.process.process import Process
from lyra.kernel.programs.context import Context

__all__ = ["Group", "PlainGroup"]

WINDOW: Final = 8  # calls under way at one time


class Group:
    """`async with Group(map, *arguments) as group: x = await group.at(0, names, p.send, "…") …`."""

    def __init__(self, map_: Map, *arguments: Any) -> None:
        self._map = map_
        self._arguments = arguments
        self._tasks = Tasks()
        self._queue: deque[Early] = deque()  # made and not taken, in the order of the program; first the one it is at
        self._number = 0  # of the call the program is at
        self._way = 0  # how often it went another way than line by line on: keys are not used twice
        self._shadow: Shadow | None = None
        self._steps: Iterator[Any] | None = None
        self._waits: tuple[Early, ...] = ()  # for whose answers the look ahead waits
        self._foreseen: dict[int, deque[Expected]] = {}
        # That the program is in; they go when it leaves them, as iterators do.
        self._loops: WeakValueDictionary[int, Loop] = WeakValueDictionary()
        self._paths: dict[Process, str] = {}  # of the programs that ask in their own name
        self._is_new = True
        self._lead: Lead | None = None  # where it is the outermost
        self.changes = Changes()
        self.strayed = False  # a loop goes through something else than was foreseen
        self.is_inside = False  # of a call that is itself ahead of its turn: here all are made in their turn

    async def __aenter__(self) -> Self:
        around = lead.get()
        if around is None or not around.is_open:
            self._lead = Lead()
            lead.set(self._lead)
        outer = ahead.get()
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
            await self.astray()
        finally:
            if self._lead is not None:  # what comes behind the function may still give back what it has won
                self._lead.is_open = False

    # ------------------------------------------------------------ where the program is

    async def at(self, site: int, names: tuple[Any, ...] | None, work: Any, /, *args: Any, **keywords: Any) -> Any:
        """The program calls an agent."""
        question = Question.made(work, list(args), keywords)
        if question is None:
            await self.astray()
            return await work(*args, **keywords)
        if self._is_new and not self.is_inside:
            self._is_new = False
            await asyncio.sleep(0)  # a process that was just spawned begins
        program = question.program
        kept = Kept(program) if program in self._paths and program.kernel.journal is not None else None
        try:
            call = await self._come_in_time(site, question, kept)
            if call is None:
                call = await self._now(site, names, question, kept)
        except BaseException as error:
            if self._queue and self._queue[0].ahead.is_due and not isinstance(error, (Divergence, GeneratorExit)):
                await self._give_up(self._queue[0])  # those behind it, which know that it has failed
                self._take(kept)
            await self.astray()
            raise
        self._take(kept)
        self.advance()
        return call.answer

    async def _come_in_time(self, site: int, question: Question, kept: Kept | None) -> Early | None:
        """The same, and note how much sooner it is over than line by line."""
        first = self._queue[0] if self._queue else None
        came_s = asyncio.get_running_loop().time()
        try:
            return await self._come(site, question, kept)
        finally:
            won = lead.get()
            if won is not None and first is not None:
                taken_s = first.took_s if self._queue and self._queue[0] is first else 0.0
                won.win(taken_s - (asyncio.get_running_loop().time() - came_s))

    async def _come(self, site: int, question: Question, kept: Kept | None) -> Early | None:
        """The call as it was made already, when it stands and is answered; None: it is made now."""
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
                if task is None or task.cancelling():  # if not, it was the call that was cancelled, not the program
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

    async def _stands(self, call: Early, site: int, question: Question, kept: Kept | None) -> bool:
        """Whether the program would have made the call just so. Then it is the program's from now on."""
        if call.site != site or not call.question.is_same(question) or (kept is not None and kept.word == AGAIN):
            return False
        if kept is not None and kept.word == TAKEN:
            call.ahead.over(taken=True)  # and charged, when the journal was read
            return True
        if kept is not None:
            await call.ahead.begun()
        return not call.is_in_vain() and not call.was_held() and call.ahead.come()

    async def _now(self, site: int, names: tuple[Any, ...] | None, question: Question, kept: Kept | None) -> Early:
        call = Early(self, site, question, self._key(question, self._number))
        call.ahead.come()
        if kept is not None and kept.word == TAKEN:
            call.ahead.over(taken=True)
        self._queue.appendleft(call)
        if question.program in self._paths:  # in a branch of its own
            self._start(call, None)
        if names is not None and len(self._queue) == 1:
            self._look(self._map.sites[site], dict(zip(self._map.names[site], names, strict=True)), call)
        if call.task is None:
            await call.here()
            return call
        try:
            await call.task
        except asyncio.CancelledError:
            call.task.cancel()
            raise
        return call

    def _key(self, question: Question, number: int) -> str:
        path = self._paths.get(question.program, "") if question.program is not None else ""
        return f"{path}{self._way}.{number}/" if path else ""

    def _take(self, kept: Kept | None) -> None:
        call = self._queue.popleft()
        self._number += 1
        if kept is not None and not kept.word:
            kept.write(TAKEN, call.ahead.usage)
        call.ahead.over(taken=True)

    def before(self, call: Early) -> list[Ahead]:
        """The calls that stand before one and are not taken yet."""
        found: list[Ahead] = []
        for other in self._queue:
            if other is call:
                break
            found.append(other.ahead)
        return found

    # ------------------------------------------------------------ ahead of it

    def look(self, place: int, *names: Any) -> None:
        """The program comes to a statement whose calls stand inside of a comprehension."""
        if not self._queue and not self.is_inside:
            self._look(
                self._map.statements[place], dict(zip(self._map.statement_names[place], names, strict=True)), None
            )

    def _look(self, place: Any, names: dict[str, Any], call: Early | None) -> None:
        """A look ahead begins, where the call that the program is at can be told from no other."""
        if self.is_inside:
            return
        now = None
        if call is not None:
            why = call.question.why_not(is_due=True)
            if why:
                _publish(call.question, why)
                return
            now = _answer_of(call)
        self._shadow = Shadow(self, names, self._map)
        self._steps = self._shadow.follow(self._map.body, self._map.path_to(place), place, now)
        self._waits = ()
        self.advance()

    def advance(self) -> None:
        """Go on looking ahead, as far as the answers that are there allow."""
        while self._steps is not None and all(call.is_answered for call in self._waits) and self._has_place():
            try:
                self._waits = next(self._steps)
            except (StopIteration, Foreign):
                self._stop()
            except Exception:  # noqa: BLE001 - the program goes on without a look ahead
                self._stop()
        if any(call.error is not None for call in self._waits):
            self._stop()

    def _has_place(self) -> bool:
        return bool(self._waits) or self.has_room()

    def _stop(self) -> None:
        if self._shadow is not None:
            self._shadow.names.clear()
        self._steps = self._shadow = None
        self._waits = ()

    def has_room(self) -> bool:
        return len(self._queue) < WINDOW

    def issue(self, site: int, work: Any, args: list[Any], keywords: dict[str, Any]) -> Later:
        question = Question.made(work, [*map(copied, args)], {name: copied(value) for name, value in keywords.items()})
        if question is None:
            raise Foreign("whom it asks is not known before its turn, or is no agent")
        why = question.why_not()
        if not why and question.program is not None and question.program not in self._paths:
            why = "the program it asks for is none of the function's arguments"
        if why:
            _publish(question, why)
            raise Foreign(why)
        call = Early(self, site, question, self._key(question, self._number + len(self._queue)))
        before = next((other for other in reversed(self._queue) if other.question.is_told(question)), None)
        self._queue.append(call)
        self._start(call, before)
        return _answer_of(call)

    def _start(self, call: Early, before: Early | None) -> None:
        call.task = self._tasks.start(call.run(before), name="early call")

    # ------------------------------------------------------------ loops

    def loop(self, number: int, work: Any, /, *args: Any, **keywords: Any) -> Loop:
        """The program begins a loop over `work`, or over what `enumerate` or `zip` make of the arguments."""
        foreseen = self._foreseen.get(number)
        made = Loop(self, work, args, keywords, foreseen.popleft() if foreseen else None)
        self._loops[number] = made
        return made

    def entered(self, loop: int) -> Expected:
        expected = Expected(0)
        self._foreseen.setdefault(loop, deque()).append(expected)
        return expected

    def left_in(self, loop: int, own: Callable[[str], Made | None]) -> tuple[Iterator[Any], Expected]:
        found = self._loops.get(loop)
        if found is None:
            raise Foreign("nobody knows what the loop goes through next")
        name = self._map.looped.get(loop, "")
        copy = own(name) if name in self._map.own else None
        return found.left(copy)

    # ------------------------------------------------------------ the end

    async def astray(self) -> None:
        """The program goes another way than was foreseen, or ends: nothing is left of what was made for that."""
        self._stop()
        self._way += 1
        self._foreseen.clear()
        self.strayed = False
        for loop in self._loops.values():
            loop.expected = None
        if not self._queue:
            return
        if sys.exc_info()[0] is GeneratorExit:  # nothing can be waited for
            for call in self._queue:
                if call.task is not None:
                    call.task.cancel()
            self._queue.clear()
            return
        await self._give_up()

    async def _give_up(self, but: Early | None = None) -> None:
        """What was made early and is not needed is cancelled, waited for, forgotten, and told as speculative."""
        self._stop()
        left = [call for call in self._queue if call is not but]
        for call in left:
            if call.task is not None:
                call.task.cancel()
        cancelled: asyncio.CancelledError | None = None
        for call in left:
            waiting = self._tasks.start(self._ended(call), name="early call ends")
            while not waiting.done():
                try:
                    await asyncio.wait([waiting])
                except asyncio.CancelledError as error:  # first they are all over
                    cancelled = error
        for call in reversed(left):
            if not call.ahead.is_over:
                call.take_back()
                call.ahead.over(taken=False)
        for call in left:
            self._queue.remove(call)
        if cancelled is not None:
            raise cancelled

    @staticmethod
    async def _ended(call: Early) -> None:
        if call.task is not None:
            await asyncio.wait([call.task])
            if not call.task.cancelled():
                call.task.exception()  # it has been seen
        if not call.ahead.is_over:
            await call.ahead.ended()


def _answer_of(call: Early) -> Later:
    agent = call.question.agent
    kind = str if agent is not None and agent.output is None else None
    return Later((call,), kind, lambda: call.answer)


def _publish(question: Question, why: str) -> None:
    place = question.keywords.get("on")
    if question.process is not None:
        kernel, pid = question.process._kernel, question.process.pid
    elif type(place) is Context:
        kernel, pid = place.own_process.kernel, place.pid
    else:
        return
    if kernel.agents_heard:
        kernel.publish(pid, "call.ordered", {"pid": pid, "why": why})


class PlainGroup:
    """The same in a plain function: a loop of its own runs while the function waits for an answer."""

    def __init__(self, map_: Map, *arguments: Any) -> None:
        self._group = Group(map_, *arguments)
        self._runner: asyncio.Runner | None = None  # from the first call of an agent on

    def __enter__(self) -> Self:
        return self

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._runner is None:
            self._runner = asyncio.Runner()
            self._runner.run(self._group.__aenter__())
        return self._runner.run(work)

    @property
    def strayed(self) -> bool:
        return self._group.strayed

    @property
    def loop(self) -> Any:
        return self._group.loop

    def at(self, site: int, names: tuple[Any, ...] | None, work: Any, /, *args: Any, **keywords: Any) -> Any:
        if work is not run:
            self.astray()
            return work(*args, **keywords)
        return self._run(self._group.at(site, names, work, *args, **keywords))

    def look(self, place: int, *names: Any) -> None:
        async def look() -> None:
            self._group.look(place, *names)

        self._run(look())

    def astray(self) -> None:
        if self._runner is not None:
            self._runner.run(self._group.astray())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.astray()
        finally:
            if self._runner is not None:
                self._runner.close()
