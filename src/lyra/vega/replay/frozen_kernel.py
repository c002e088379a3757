"""The parts of a kernel that does nothing new: every answer comes from the journal, and no agent is asked.

`RecordedReplay` is what the journal answers one process; where it has no more, whatever is under way is given up. A
FrozenWorld knows agents by their journaled answers alone. A RecordingFiber keeps the messages that it was given, so
that the player can give them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lyra.core.naming import VEGA_PROCESS
from lyra.kernel.journal.history import Entry
from lyra.kernel.programs.registry import Programs
from lyra.kernel.seams import Seams
from lyra.vega.machine.fiber import EarlyCallGroup, Fiber, NotEarly, OutOfFuel, VmEffect
from lyra.vega.replay.journal import RunJournal
from lyra.vega.runtime.agents.plan import AgentPlan
from lyra.vega.runtime.agents.slot import AgentSlot, AgentTurn
from lyra.vega.runtime.world import World, pad_globals
from lyra.vega.values.values import copy_value

if TYPE_CHECKING:
    from lyra.core.budgets.budget import Usage
    from lyra.kernel.process.process import Process as KernelProcess
    from lyra.vega.machine.link import LinkedProgram
    from lyra.vega.replay.timeline import JournaledAnswer, TimelineStep


class EndOfRecord(asyncio.CancelledError):
    """The journal has no more rows of this process: its fiber and its early calls are cancelled."""


_END_OF_JOURNAL: Final = "end of journal"


class JournalAnswers(dict[Any, Any]):
    """What the journal answers one process, with a marker behind the last answer.

    A kernel ends the replay of a process that has used all its answers, and the process continues by itself. The marker
    is never used, so the process stays in its replay: it stops where `pop` finds no answer.
    """

    def __init__(self, entries: Mapping[Any, Entry]) -> None:
        super().__init__(entries)
        self[_END_OF_JOURNAL] = Entry(_END_OF_JOURNAL, "", b"")

    def open_keys(self) -> Iterator[Any]:
        """Return the keys of the answers that were not used."""
        return (key for key in self if key != _END_OF_JOURNAL)


class RecordedReplay(JournalAnswers):
    """The answers of a process whose every step is written down. `taken` are the keys of those that it used on its own
    line since the reader last cleared the list; `beside` those of each branch beside it, by its path."""

    def __init__(self, entries: dict[Any, Entry], process: KernelProcess, journal: RunJournal) -> None:
        super().__init__(entries)
        self._process = process
        self._journal = journal
        self._kept = journal.checkpoints.get(process.pid, {})
        self.taken: list[Any] = []
        self.beside: dict[str, list[Any]] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self._real(key), default)

    def pop(self, key: Any, default: Any = None) -> Any:  # noqa: ARG002 - as a dict has it
        real = self._real(key)
        entry = super().get(real)
        if entry is None or not entry.done or (entry.kind == "sleep" and not self._is_over(real, entry)):
            raise EndOfRecord
        if type(key) is int and real != key:
            self._process.keys, self._process.rng = real + 1, None
        (self.taken if type(real) is int else self.beside.setdefault(real.rpartition("/")[0], [])).append(real)
        return super().pop(real)

    def find_branch_answers(self, path: str) -> list[Any]:
        """Return what the journal answered a call that was made beside others: where it was made again, that."""
        return self.beside.get(f"{path}.again") or self.beside.get(path, [])

    def _real(self, key: Any) -> Any:
        """Return the key in the journal: behind a checkpoint that was kept here, or of a call that was made ahead of
        its turn, turned out to be another one, and was made again."""
        while type(key) is int and key in self._kept and key not in self:
            key += 1
        if type(key) is str and key.startswith("ahead"):
            path, _, number = key.rpartition("/")
            again = f"{path}.again/{number}"
            return again if again in self else key
        return key

    def _is_over(self, key: Any, entry: Entry) -> bool:
        return self._journal.went_on(self._process.pid, key) or entry.due <= self._journal.last_at


class OnlyVega(Programs):
    """The programs of a replay: only Vega processes run. Answers of agents and supervisors come from the journal."""

    __slots__ = ("_process",)

    def __init__(
        self, process: Callable[..., Any], became_known: Callable[[str], None], programs: Iterable[Any]
    ) -> None:
        self._process = process
        super().__init__(became_known, programs)

    def get(self, name: str) -> Any:
        return self._process if name == VEGA_PROCESS else None


def replay_seams(process: Callable[..., Any]) -> Seams:
    """Return the kernel of a replay: only `process` runs, and a program that gives up on another process does not end
    it, as that one may have more to tell."""
    return Seams(programs=partial(OnlyVega, process), kills=False)


class FrozenWorld(World):
    """The World of a replay: no agent is asked, so no agent has a process."""

    def plan(self, name: str, settings: dict[str, Any]) -> AgentPlan:
        """Tools of other servers are not looked for."""
        kept = {key: value for key, value in settings.items() if key not in ("tools", "output_tools")}
        return super().plan(name, kept)

    def slot(self, pid: str, plan: AgentPlan, promised: AgentSlot | None = None) -> AgentSlot:  # noqa: ARG002 - no agent is asked early
        return self.agent_slots.setdefault(pid, _Absent(plan))

    def fiber(self, seed: Any, linked: LinkedProgram | None = None) -> Fiber:
        linked = linked or self.linked
        if seed is None:
            return RecordingFiber.start(linked)
        function, arguments, globals_ = self.read(seed)
        fiber = RecordingFiber.call(linked, function, arguments, pad_globals(linked, globals_))
        fiber.depth = depth_of(seed)
        return fiber


def depth_of(seed: Any) -> int:
    """Return how deep a process that began like this is in the calls of the process that waits for it."""
    return int(seed.get("depth", 0)) if type(seed) is dict else 0


class _Absent(AgentSlot):
    __slots__ = ()

    async def ready(self) -> None:
        raise EndOfRecord

    def room(self, outer: AgentTurn | None) -> None:
        """No call waits for a turn in a replay."""


class RecordingFiber(Fiber):
    """A fiber that keeps the messages it was given."""

    __slots__ = ("_told", "expired", "heard")

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.heard: list[Any] = []
        self.expired = False
        self._told: tuple[TimelineStep, int] | None = None  # the last message, and how many there were with it

    def note_message(self, step: TimelineStep, answer: JournaledAnswer) -> None:
        """Note the message that a receive was given; whether it wants that shows when it has looked."""
        if answer.is_receive and answer.heard:
            self._told = (step, len(self.mailbox or ()))

    def note_mailbox(self, outcome: Any) -> None:
        """Note, after the fiber has run on, whether it took the last message: one that it left stays in the mailbox."""
        if self._told is None or type(outcome) is OutOfFuel:
            return
        (step, count), self._told = self._told, None
        if type(outcome) is VmEffect and outcome.kind == "receive" and len(self.mailbox or ()) == count:
            step.what, step.result = "a message comes", f"{step.result} stays in the mailbox"

    def deliver(self, message: Any) -> None:
        self.heard.append(copy_value(message))
        super().deliver(message)

    def expire(self) -> None:
        self.expired = True
        super().expire()


class ReplayRecord:
    """The record of a replay: nothing is written, since the journal has it."""

    def name(self, name: str, pid: str) -> None:
        """Kept by the world alone."""

    def get_session_costs(self, session: str) -> dict[str, int]:  # noqa: ARG002 - as the record has it
        return {}

    def pay(self, sessions: list[str], usage: Usage) -> None:
        """Not written: the journal has it."""

    def leave(self, session: str) -> None:
        """Nothing was paid in it."""


class PrintlessRecord(ReplayRecord):
    """A replay record that drops printed lines: the steps of the timeline have them."""

    def print(self, pid: str, number: int, text: str) -> None:
        """Not shown: the step of the timeline has it."""


_FOR_EVER_S: Final = 1e9


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._ahead_s = 0.0
        self.idle: Callable[[], object] | None = None
        selector: Any = self._selector  # type: ignore[attr-defined]
        self._look = selector.select
        selector.select = self._select

    def time(self) -> float:
        return self._ahead_s

    def _select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout > 0:
            self._ahead_s += timeout or 0.0
            if self.idle is not None and (timeout is None or self._ahead_s > _FOR_EVER_S):
                self.call_soon(self.idle)
                self.idle = None
        return self._look(0 if self.idle is not None or timeout is not None else 0.001)


def run_in_virtual_time(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `work` to its end. The event that it gets is set when no task can continue."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _VirtualTimeLoop)
        loop.set_exception_handler(lambda *_: None)  # tasks that came to the end of their record
        all_wait = asyncio.Event()
        loop.idle = all_wait.set
        await work(all_wait)

    with asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner:
        runner.run(main())


# A replay has no time to save: it says that no call is made ahead.

SILENT: Final = frozenset({"ahead_begin", "ahead_start", "ahead_promise", "ahead_look", "ahead_end"})


def answer_quietly(fiber: Fiber, effect: VmEffect) -> bool:
    """Answer a quiet effect; False for any other."""
    if effect.kind not in SILENT:
        return False
    if effect.kind == "ahead_begin":
        fiber.resume(EarlyCallGroup(0, is_kept=True))
    elif effect.kind == "ahead_end":
        fiber.resume(None)
    else:
        refusal = NotEarly("a replay makes every call in its turn")
        fiber.throw(refusal.name, refusal.text)
    return True
