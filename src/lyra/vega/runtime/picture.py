"""A Picture: what a run looks like at this moment, for a display such as `vega run --watch`.

    picture = Picture()
    await run(source, kernel=kernel, picture=picture)        # meanwhile: picture.rows(20), picture.total()

The run tells it who begins and who waits for whom; calls, costs, retries and restarts it hears as Events. It keeps a
row for each process that a program can hold: an agent is one, with all its calls and restarts, and so is a function
that was spawned. Those that came to a good end are only counted. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.core.budgets.money import Money
from lyra.core.event import Event, ModelCalled
from lyra.vega.bytecode.opcodes import OP_RECEIVE, OP_RECEIVE_NEXT

if TYPE_CHECKING:
    from lyra.core.budgets.budget import Budget
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.vega.runtime.agents.slot import AgentSlot
    from lyra.vega.runtime.job import VegaJob


_FAILED_MAX: Final = 50  # rows kept of processes that failed
_CALLS_MAX: Final = 10_000  # then those that are over are forgotten
_LAST_MAX: Final = 200  # rows of the last picture
_STATES: Final = {"new": "ready", "blocked": "waiting"}  # the kernel's words, fewer of them


class PictureRow(NamedTuple):
    """One process: `state` is idle, working, restarting (an agent), ready, running, waiting (a function), watching (a
    supervisor), ended or failed; `waits_for` says what for, in words."""

    pid: str
    name: str
    state: str
    calls: int
    tokens: int
    cost: Money
    restarts: int
    waits_for: str


class Total(NamedTuple):
    """The whole run. `limit` is that of `--budget` or, without one, of the session opened last; None: there is none."""

    alive: int
    ended: int
    calls: int
    tokens: int
    cost: Money
    restarts: int
    spent: Money
    limit: Money | None


class _PictureEntry:
    """A process as it was met."""

    pid: str
    process: Process  # the run of it that there is now

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        self.job: VegaJob | None = None
        self.calls = self.tokens = self.micro_usd = self.restarts = 0
        self.restarting = False
        self.open = 0  # callers of an agent
        self.doing = ""  # what an agent's newest effect is
        self.waits: list[str] = []  # for these to answer
        self.last: tuple[str, str] | None = None  # state and what it waited for, when the program ended

    @property
    def state(self) -> str:
        if self.last is not None:
            return self.last[0]
        if self.restarting:
            return "restarting"
        ended = self.process.exit
        if ended is not None:
            return "ended" if ended.error is None else "failed"
        if self.kind == "agent":
            return "working" if self.open else "idle"
        if self.kind == "supervisor":
            return "watching"
        return _STATES.get(self.process.state, self.process.state)

    @property
    def waits_for(self) -> str:
        if self.last is not None:
            return self.last[1]
        if self.kind == "agent":
            return self.doing if self.open else ""
        if self.waits:
            return ", ".join(dict.fromkeys(self.waits))
        if self.job is None or self.state != "waiting":
            return ""
        fiber = self.job.fiber
        if fiber.pc < len(fiber.code.code) and fiber.code.code[fiber.pc][0] in (OP_RECEIVE, OP_RECEIVE_NEXT):
            return "a message"
        return f"line {fiber.place()[1]}"

    @property
    def weight(self) -> tuple[bool, bool, int, int, bool]:
        """Return how much a process is worth a line, compared with others."""
        busy = self.state in ("working", "restarting", "running", "failed") or bool(self.waits)
        return (self.kind == "main", busy, self.micro_usd, self.calls + self.restarts, self.kind != "function")

    def row(self) -> PictureRow:
        return PictureRow(
            self.pid,
            self.name,
            self.state,
            self.calls,
            self.tokens,
            Money(self.micro_usd),
            self.restarts,
            self.waits_for,
        )


class Picture:
    """`tell`, when set, is called with a process's name and a sentence for each thing worth its own line."""

    def __init__(self, tell: Callable[[str, str], object] | None = None) -> None:
        self._tell = tell
        self._kernel: Kernel | None = None
        self._seen: dict[str, _PictureEntry] = {}
        self._calls: dict[str, _PictureEntry] = {}  # by the pid of the process that asks the model
        self._promised: dict[AgentSlot, _PictureEntry] = {}  # agents that were asked before they were spawned
        self._budget: Budget | None = None
        self._session: Budget | None = None
        self._ended = self._model_calls = self._tokens = self._micro_usd = self._restarts = 0
        self._last: tuple[list[_PictureEntry], int] | None = None

    # ------------------------------------------------------------ what the run tells

    def attach(self, kernel: Kernel, budget: Budget) -> None:
        self._kernel = kernel
        self._budget = budget
        kernel.on_event(self._hear, _HEARD)

    def began(self, job: VegaJob, *, is_main: bool) -> None:
        """Note that a process written in Vega runs, or runs again."""
        kind, name = ("main", "main") if is_main else ("function", job.fiber.code.name)
        self._get_entry(kind, name, job.ctx.own_process).job = job

    def agent(self, process: Process, slot: AgentSlot) -> None:
        """Note that an agent is there, or there again."""
        is_new = _key(process) not in self._seen
        if slot in self._promised:
            self._seen[_key(process)] = self._promised.pop(slot)
        seen = self._get_entry("agent", slot.plan.name, process)
        if slot.session is not None:
            self._calls[slot.session.pid] = seen
        if is_new or seen.restarts:
            self._say(seen.name, "started" if is_new else "started again")

    def supervisor(self, process: Process, name: str) -> None:
        self._get_entry("supervisor", name, process)

    def note_model_call(self, pid: str, slot: AgentSlot) -> None:
        """Note that the process of this pid asks the model for an agent."""
        if slot.is_promised:
            seen: _PictureEntry | None = self._promised.setdefault(slot, _PictureEntry("agent", slot.plan.name))
        else:
            seen = None if slot.front is None else self._seen.get(_key(slot.front))
        if seen is not None:
            self._calls[pid] = seen

    @contextmanager
    def waiting(self, job: VegaJob, process: Process | None) -> Iterator[None]:
        """Show in the block that a process waits for the answer of another."""
        caller = self._seen.get(_key(job.ctx.own_process))
        asked = None if process is None else self._seen.get(_key(process))
        if asked is None or caller is None:
            yield
            return
        asked.open += 1
        caller.waits.append(asked.name)
        try:
            yield
        finally:
            asked.open -= 1
            caller.waits.remove(asked.name)

    def session(self, budget: Budget) -> None:
        self._session = budget

    def over(self) -> None:
        """Note that the program ended; what is left of it will be stopped. From now on only costs are added."""
        self._last = self._busiest(_LAST_MAX), len(self._seen)
        for entry in self._last[0]:
            entry.last = entry.state, entry.waits_for

    # ------------------------------------------------------------ what there is to see

    def rows(self, limit: int) -> tuple[list[PictureRow], int]:
        """Return the busiest processes in the order in which they began, and how many more there are."""
        if self._last is None:
            chosen = self._busiest(limit)
            count = len(self._seen)
        else:
            chosen = _heaviest(limit, self._last[0])
            count = self._last[1]
        return [entry.row() for entry in chosen], count - len(chosen)

    def total(self) -> Total:
        budget = self._budget
        if budget is None or budget.limit("usd") is None:
            budget = self._session
        limit = None if budget is None else budget.limit("usd")
        return Total(
            alive=len(self._seen),
            ended=self._ended,
            calls=self._model_calls,
            tokens=self._tokens,
            cost=Money(self._micro_usd),
            restarts=self._restarts,
            spent=Money(0) if budget is None else Money(int(budget.used("usd"))),
            limit=None if limit is None else Money(int(limit)),
        )

    def _busiest(self, limit: int) -> list[_PictureEntry]:
        self._forget_ended()
        return _heaviest(limit, [*self._seen.values()])

    def _forget_ended(self) -> None:
        """Functions that ended are only counted, but for some that failed."""
        failed = 0
        for key, entry in [*self._seen.items()]:
            if entry.kind != "function" or entry.process.exit is None or entry.restarting:
                continue
            if entry.process.exit.error is not None and failed < _FAILED_MAX:
                failed += 1
                continue
            del self._seen[key]
            self._ended += 1
        if len(self._calls) > _CALLS_MAX and self._kernel is not None:
            there = self._kernel.processes
            self._calls = {pid: seen for pid, seen in self._calls.items() if pid in there}

    # ------------------------------------------------------------ what it hears

    def _get_entry(self, kind: str, name: str, process: Process) -> _PictureEntry:
        key = _key(process)
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _PictureEntry(kind, name)
        seen.process, seen.pid, seen.restarting = process, process.known_as, False
        return seen

    def _hear(self, event: Event) -> None:
        _HEARD[event.kind](self, event.pid, event.data)

    def _model_called(self, pid: str, data: Any) -> None:
        call = ModelCalled.from_data(data)
        tokens, micro_usd = call.input_tokens + call.output_tokens, call.micro_usd
        self._model_calls += 1
        self._tokens += tokens
        self._micro_usd += micro_usd
        seen = self._calls.get(pid)
        if seen is not None:
            seen.calls += 1
            seen.tokens += tokens
            seen.micro_usd += micro_usd
        outcome = f"{tokens} tokens, {Money(micro_usd)}" if call.status == "ok" else f"failed: {call.status}"
        self._say(call.agent, outcome)

    def _on_answer(self, pid: str, _data: Any) -> None:
        seen = self._calls.get(pid)
        if seen is not None:
            seen.doing = ""

    def _effect_started(self, pid: str, data: Any) -> None:
        seen = self._calls.get(pid)
        if seen is not None:
            seen.doing = data["name"].removeprefix(f"model:{seen.name}:")

    def _effect_retried(self, pid: str, data: Any) -> None:
        seen = self._calls.get(pid)
        if seen is not None:
            text = f"try {data['attempt'] + 1} after {data['delay_s']:.1f} s: {data['error']}"
            seen.doing = text
            self._say(seen.name, text)

    def _restarting(self, pid: str, data: Any) -> None:
        self._restarts += 1
        seen = self._child(pid, data["id"])
        if seen is not None:
            seen.restarts += 1
            seen.restarting = True
            self._say(seen.name, f"crashed; restart {seen.restarts}")

    def _gave_up(self, pid: str, data: Any) -> None:
        seen = self._child(pid, data["id"])
        self._say(data["id"] if seen is None else seen.name, "crashed once too often")

    def _child(self, pid: str, child_id: str) -> _PictureEntry | None:
        """Whom a supervisor means: one of its children, or the only one it guards."""
        return self._seen.get(f"{pid}/{child_id}") or self._seen.get(pid)

    def _say(self, name: str, sentence: str) -> None:
        if self._tell is not None:
            self._tell(name, sentence)


_HEARD: Final[dict[str, Callable[[Picture, str, Any], None]]] = {
    "model.called": Picture._model_called,
    "agent.answered": Picture._on_answer,
    "effect.started": Picture._effect_started,
    "effect.retried": Picture._effect_retried,
    "child.restarting": Picture._restarting,
    "supervisor.gave_up": Picture._gave_up,
}


def _key(process: Process) -> str:
    """Return what stays the same when a process is started again: its guard's pid, or its name below its supervisor."""
    if process.known_as == process.pid and process.name is not None and process.parent is not None:
        return f"{process.parent.pid}/{process.name}"
    return process.known_as


def _heaviest(limit: int, seen: list[_PictureEntry]) -> list[_PictureEntry]:
    """Return the `limit` heaviest entries, in their own order."""
    if len(seen) <= limit:
        return seen
    chosen = nlargest(limit, range(len(seen)), key=lambda index: seen[index].weight)
    return [seen[index] for index in sorted(chosen)]
