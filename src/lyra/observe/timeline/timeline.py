"""RunTimeline: the run of a process to step through, from the rows of its journal.

    timeline = RunTimeline(StoredRows(store), "talk")
    for step in timeline.steps: …
    timeline.moment(7)["conversation"]

The steps are held in memory in their short form; values and states are read from the store when they are asked for, so
a long journal costs time and little room. A run that is under way can be read again with `refresh`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from lyra.core.checking.check import did_you_mean
from lyra.core.event import Event, is_failed_end
from lyra.core.naming import VEGA_AGENT, VEGA_PROCESS
from lyra.errors import ConfigError, NoSuchProcess
from lyra.observe.history.processes import ProcessRecord, sum_into
from lyra.observe.timeline.journal import RowReader, RunRows, value_of
from lyra.observe.timeline.state import RunMoment
from lyra.observe.timeline.step import RunStep, shorten
from lyra.observe.timeline.steps import StepFold

STEPS_MAX: Final = 200_000  # of one run; further rows are not read
COMPACTED: Final = "its first rows were dropped by a compaction; the moment 0 is what was kept"
_MESSAGES_SHOWN: Final = 200
_TREE_SHOWN: Final = 500


class RunTimeline:
    """See the module. Steps are numbered from 1; place 0 is before the first."""

    def __init__(self, reader: RowReader, pid: str, *, steps_max: int = STEPS_MAX, run_id: str = "") -> None:
        """`run_id` is the name of a run that has its own journal, in which `pid` is its main process."""
        self._reader = reader
        self._rows = RunRows(reader, pid)
        self._steps_max = steps_max
        self._fold = StepFold(reader)
        self._seq = 0  # of the last row of the run
        self._read_seq = 0  # of the last row that was looked at
        self._kept: RunMoment | None = None  # the state that was looked at last
        self._members: dict[str, set[str]] = {}  # groups that processes of the run are in
        self.pid = pid
        self.run_id = run_id
        self.is_cut = False  # the run has more steps than are held
        self.ended_as = ""
        self.has_failed = False
        self.fork: Mapping[str, Any] | None = None
        self.program = str((self._rows.kept.get(pid, {}).get("created") or {}).get("program", ""))
        self.refresh()
        if not self._fold.steps and pid not in self._rows.kept:
            raise self._unknown(pid)

    @classmethod
    def from_name(cls, reader: RowReader, word: str, **options: Any) -> RunTimeline:
        """Return the run of a process by pid, or by the name that a process had last."""
        _, kept = reader.read_kept_states()
        pid = next((pid for pid, state in kept.items() if (state.get("created") or {}).get("name") == word), word)
        for event in reader.rows(wanted=_is_creation):
            if event.pid == word:
                pid = word
                break
            if event.data.get("name") == word:
                pid = event.pid
        return cls(reader, pid, **options)

    @property
    def steps(self) -> Sequence[RunStep]:
        return self._fold.steps

    @property
    def name(self) -> str:
        """Return what the run is called in its store: a pid, or the id of a run with a journal of its own."""
        return self.run_id or self.pid

    @property
    def location(self) -> str:
        return self._reader.location

    @property
    def pids(self) -> list[str]:
        return list(self._rows.pids)

    @property
    def names(self) -> Mapping[str, str]:
        """Return what the processes of the run are called, by pid: their names, or those of their programs."""
        return self._fold.names

    @property
    def is_compacted(self) -> bool:
        """Whether the first rows of the run were dropped from the store."""
        return self.pid in self._rows.kept

    def refresh(self) -> int:
        """Read the rows that came since; gives how many steps are new."""
        before, last = len(self._fold.steps), self._reader.last_seq()
        for event in self._rows.read(after=self._read_seq, upto=last):
            if len(self._fold.steps) >= self._steps_max:
                self.is_cut = True
                return len(self._fold.steps) - before
            self._seq = self._read_seq = event.seq
            if self._is_shown(event):
                self._fold.add(event)
            if event.pid == self.pid:
                if event.kind == "process.created":
                    self.program, self.fork = str(event.data.get("program", "")), event.data.get("fork")
                elif event.kind == "process.terminated":
                    self.ended_as, self.has_failed = str(event.data.get("reason", "")), is_failed_end(event.data)
        self._read_seq = last  # rows of other runs between the last one of this run and here are not read again
        return len(self._fold.steps) - before

    def _is_shown(self, event: Event) -> bool:
        """Return whether a row belongs to the run: one about a group does where a process of the run is in it."""
        if not event.kind.startswith("group."):
            return True
        group = str(event.data.get("group"))
        if event.kind == "group.joined" and event.pid in self._rows.pids:
            self._members.setdefault(group, set()).add(event.pid)
        return bool(self._members.get(group)) and event.kind not in ("group.created", "group.deleted")

    # ------------------------------------------------------------------ steps

    def step(self, number: int) -> RunStep:
        """Return a step by its number; ConfigError where there is none."""
        if not 1 <= number <= len(self.steps):
            known = f"it has steps 1 to {len(self.steps)}" if self.steps else COMPACTED
            raise ConfigError(f"there is no step {number} in the run of {self.name}", hint=known)
        return self.steps[number - 1]

    def page(self, after: int, limit: int) -> list[RunStep]:
        """At most `limit` steps behind step `after`."""
        return list(islice(self.steps, max(0, after), max(0, after) + limit))

    def detail(self, number: int) -> dict[str, Any]:
        """Return a step with its whole values."""
        step = self.step(number)
        data = step.to_data()
        for event in self._reader.rows(after=step.seq - 1, upto=step.seq):
            data |= self._values(event, is_beginning=True)
        last = self._fold.outputs.get(number, step.end_seq)
        if last > step.seq:
            for event in self._reader.rows(after=last - 1, upto=last):
                data |= self._values(event, is_beginning=False)
        return data

    def _values(self, event: Event, *, is_beginning: bool) -> dict[str, Any]:
        row = event.data
        if event.kind == "message.received":
            return {"value": self._message(int(row.get("message") or 0))}
        name = {"process.created": "args", "message.sent": "message", "program.checkpoint": "state"}.get(
            event.kind, "value"
        )
        values: dict[str, Any] = {}
        if row.get(name) is not None or row.get("blob"):
            values["value"] = shorten(value_of(self._reader, row, name))
        if row.get("response") is not None:
            values["value"] = shorten(row["response"])
        if row.get("error"):
            values["error_detail"] = shorten(row["error"])
        if is_beginning and row.get("cost"):
            values["reserved"] = dict(row["cost"])
        return values

    def _message(self, seq: int) -> Any:
        for mail in self._reader.rows(after=seq - 1, upto=seq):
            return shorten(value_of(self._reader, mail.data, "message"))
        return None

    def totals(self, upto: int | None = None) -> dict[str, Any]:
        """Return what the steps cost, up to a number or in all; steps that a fork took over are summed apart. What
        processes had spent whose rows were dropped counts, too."""
        usage: dict[str, int] = {}
        recorded: dict[str, int] = {}
        for kept in self._rows.kept.values():
            sum_into(usage, kept.get("spent"))
        for step in islice(self.steps, upto):
            sum_into(recorded if step.is_recorded else usage, step.usage)
        return {"usage": usage, "recorded": recorded, "cost_usd": usage.get("usd", 0) / 1_000_000}

    # ------------------------------------------------------------------ how it stood

    def state(self, number: int) -> RunMoment:
        """Everything as it stood when step `number` was over and the next had not begun; 0 is before the first."""
        return self._read_on(RunMoment(self._reader), number)

    def _read_on(self, state: RunMoment, number: int) -> RunMoment:
        """Bring a state that stands at an earlier step, or at the beginning, to the end of a step."""
        if not state.seq:
            for pid, kept in self._rows.kept.items():
                state.take_kept(pid, kept)
        if number <= 0:
            return state
        step, last = self.step(number), self.last_seq_of(number)
        begin = 0 if self._members else max(0, self._rows.first_seq - 1)  # values of groups may be older than the run
        for event in self._rows.read(after=max(begin, state.seq), upto=last):
            state.add(event)
        if step.end_seq > last:
            for event in self._reader.rows(after=step.end_seq - 1, upto=step.end_seq):
                state.add(event)
        return state

    def last_seq_of(self, number: int) -> int:
        """Return the last row that belongs to a step: the one before the next step."""
        return self.steps[number].seq - 1 if number < len(self.steps) else self._seq

    def _state_to_look_at(self, number: int) -> RunMoment:
        """Return the state after a step; the one that was looked at last is read on, where that is earlier."""
        kept, self._kept = self._kept, None
        is_earlier = kept is not None and 0 < kept.seq <= self.last_seq_of(number) and number > 0
        state = self._read_on(kept if kept is not None and is_earlier else RunMoment(self._reader), number)
        if number > 0 and state.seq <= self.last_seq_of(number):
            self._kept = state
        return state

    def moment(self, number: int, pid: str | None = None) -> dict[str, Any]:
        """Return the moment after a step: conversation, variables, budget, mailbox and tree, of one process of the
        run."""
        state = self._state_to_look_at(number)
        step = self.step(number) if number > 0 else None
        chosen = pid or (step.pid if step is not None else self.pid)
        if pid is not None and pid not in state.records:
            raise NoSuchProcess(f"the run of {self.name} has no process {pid!r} at step {number}", pid=pid)
        spoken = next((name for name in (chosen, self.pid, *state.conversations) if name in state.conversations), "")
        messages = state.conversations[spoken].messages if spoken else []
        walked = list(islice(state.walk(), _TREE_SHOWN))
        return {
            "number": number,
            "steps": len(self.steps),
            "step": None if step is None else self.detail(number),
            "time": state.time,
            "pid": chosen,
            "conversation": {
                "pid": spoken,
                "messages": [_copy_message(message) for message in messages[-_MESSAGES_SHOWN:]],
                "count": len(messages),
            },
            "variables": state.variables(chosen),
            "budget": state.budget(chosen),
            "mailbox": state.mailbox(chosen),
            "tree": [self._tree_row(depth, process, state) for depth, process in walked],
            "processes": len(state.records),
            "totals": self.totals(number),
        }

    def _tree_row(self, depth: int, process: ProcessRecord, state: RunMoment) -> dict[str, Any]:
        is_of_vega = process.program in (VEGA_PROCESS, VEGA_AGENT)  # which say less than the names that people know
        return {
            "depth": depth,
            "pid": process.pid,
            "name": process.name or (self.names.get(process.pid, "") if is_of_vega else ""),
            "program": process.program,
            "state": process.state if process.is_live else "ended",
            "reason": process.reason,
            "error": process.error,
            "starts": state.starts.get(process.pid, 1),
            "doing": next(iter(process.under_way.values()), ""),
            "micro_usd": process.micro_usd,
            "recorded_micro_usd": process.recorded.get("usd", 0),
        }

    def summary(self) -> dict[str, Any]:
        """Return the run in a few figures."""
        return {
            "pid": self.pid,
            "run_id": self.run_id or None,
            "program": self.program,
            "steps": len(self.steps),
            "processes": len(self._rows.pids),
            "state": self.ended_as or "running",
            "failed": self.has_failed,
            "began_at": self.steps[0].began_at if self.steps else None,
            "fork": shorten(self.fork) if self.fork else None,
            "is_cut": self.is_cut,
            "is_compacted": self.is_compacted,
            **self.totals(),
        }

    def _unknown(self, pid: str) -> NoSuchProcess:
        _, kept = self._reader.read_kept_states()
        known = list(dict.fromkeys((*kept, *(event.pid for event in self._reader.rows(wanted=_is_creation)))))
        near = did_you_mean(pid, known)
        hint = f"did you mean {near!r}?" if near else "`lyra ps -a` lists the processes of a store"
        return NoSuchProcess(f"there is no process {pid!r} in {self.location}", hint=hint, pid=pid)


def _copy_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message for a reader: the state continues to add results to its own."""
    results = message.get("tool_results")
    return dict(message) if results is None else {**message, "tool_results": [dict(result) for result in results]}


def _is_creation(_pid: str, kind: str) -> bool:
    return kind == "process.created"
