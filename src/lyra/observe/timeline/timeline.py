"""RunTimeline: the run of a process to step through, from the rows of its journal.

    timeline = RunTimeline(StoredRows(store), "talk")
    for step in timeline.steps: …
    timeline.moment(7)["conversation"]

The steps are held in memory in their short form; values and states are read from the store when they are asked for, so
a long journal costs time and little room. A run that is under way can be read again with `refresh`. `StepFold` makes
the steps (`step`) from rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from lyra.core.checking.check import did_you_mean
from lyra.core.event import Event, is_failed_end
from lyra.core.naming import VEGA_AGENT, VEGA_PROCESS, to_fixed_name
from lyra.errors import ConfigError, NoSuchProcess
from lyra.observe.history.processes import ProcessRecord, sum_into
from lyra.observe.timeline.state import RunMoment, RunRows, StoredRows, value_of
from lyra.observe.timeline.step import (
    OpenCalls,
    RunStep,
    SupervisedStarts,
    answer_of,
    brief,
    digest_of,
    ending_text,
    error_text,
    last_answer,
    message_text,
    shorten,
    start_words,
    text_of_content,
    vega_name,
)

_FORMS: Final = {"passage": "milestone", "wait": "wait", "context": "note"}  # rows without a beginning that are steps
_ENDING: Final = {"reason", "result", "error"}  # what a wait for a child gives
_FINISHED_LATER: Final = ("running", "waiting")


class StepFold:
    """The fold over the rows of a run. `steps` grows; a step that is under way changes when its end is read."""

    def __init__(self, reader: StoredRows, *, shown_chars: int = 160) -> None:
        self._reader = reader
        self._shown = shown_chars
        self.steps: list[RunStep] = []
        self._open: dict[tuple[str, str], RunStep] = {}
        self._mailed: dict[int, Event] = {}  # messages that were sent and not taken, by the number of their row
        self._programs: dict[str, str] = {}
        self.names: dict[str, str] = {}  # of the processes, by pid
        self._starts = SupervisedStarts()
        self._calls: dict[str, list[Mapping[str, Any]]] = {}  # tool calls that a model asked for, by process
        self._running = OpenCalls[RunStep]()
        self.outputs: dict[int, int] = {}  # step → the row of its result, where that is not the row of its end

    def add(self, event: Event) -> None:
        handle = _HANDLERS.get(event.kind)
        if handle is not None:
            handle(self, event, event.data)

    def add_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    # ------------------------------------------------------------------ one handler a kind

    def _on_created(self, event: Event, data: Mapping[str, Any]) -> None:
        program, parent = to_fixed_name(str(data.get("program", ""))), str(data.get("parent") or "")
        self._programs[event.pid] = program
        arguments = value_of(self._reader, data, "args")
        vega = vega_name(event.pid, program, arguments)
        self.names[event.pid] = str(data.get("name") or vega or program.rpartition(":")[2])
        starts = self._starts.add(event.pid, data, arguments)
        fork = data.get("fork") or {}
        whose = data.get("name") or vega or program
        if parent not in self._programs:
            what = (
                f"{whose} began"
                if "of" not in fork
                else f"{whose} began as a fork of {fork.get('of')} at {fork.get('at')}"
            )
            step = self._step(event, "began", what, request=arguments, name=program)
            self._reword(step, start_words(program, arguments, step.request), arguments)
            return
        kind, what = "spawn", f"started {whose}"
        if starts > 1:
            kind, what = "restart", f"started {whose} again ({starts - 1})"
        step = self._step(event, kind, what, request=arguments, name=program, child=event.pid)
        step.pid = parent
        self._reword(step, start_words(program, arguments, step.request), arguments)

    def _on_sent(self, event: Event, data: Mapping[str, Any]) -> None:
        if not data.get("dropped"):
            self._mailed[event.seq] = event
        sender = data.get("sender") or ""
        if sender in self._programs and not data.get("form") and data.get("key") is not None:
            message = message_text(value_of(self._reader, data, "message"))
            step = self._step(event, "sent", f"to {data.get('to')}", request=message, name=str(data.get("to")))
            step.pid = sender

    def _on_received(self, event: Event, data: Mapping[str, Any]) -> None:
        mail = self._mailed.pop(data.get("message", 0), None)
        if not data.get("message"):
            self._step(event, "message", "no message came in time")
            return
        message = None if mail is None else value_of(self._reader, mail.data, "message")
        form = "" if mail is None else str(mail.data.get("form") or "")
        if form:
            self._signal(event, form, message if isinstance(message, Mapping) else {})
            return
        sender = "" if mail is None else str(mail.data.get("sender") or "")
        what = f"from {sender}" if sender else "a message"
        step = self._step(event, "message", what, request=message_text(message), name=sender)
        step.key = str(data.get("key"))

    def _signal(self, event: Event, form: str, message: Mapping[str, Any]) -> None:
        if "verb" not in message:
            self._step(event, "signal", f"{form} of {message.get('pid', '')}", result=message)
        elif message["verb"] != "started":  # which asks a supervisor whether it has begun, and changes nothing
            self._step(event, "signal", f"order to {message['verb']} {message.get('id', '')}".rstrip())

    def _on_begun(self, event: Event, data: Mapping[str, Any]) -> None:
        name = str(data.get("name", ""))
        kind, rest = _kind_of(name)
        place = (event.pid, str(data.get("key")))
        step = self._open.get(place)
        if step is not None:  # begun again after a crash
            step.tries += 1
            return
        if kind == "model":
            self._tools_are_over(event.pid)
        self._running.begin(event.pid, data)
        step = self._step(event, kind, rest, name=name, status="running")
        step.key = place[1]
        if kind == "model":
            step.agent, _, step.model = rest.partition(":")
            step.what = f"{step.agent} asks {step.model}"
        elif kind == "tool":
            call = self._call_of(event.pid, rest)
            self._tell(step, "request", None if call is None else call.get("arguments"))
        self._open[place] = step

    def _call_of(self, pid: str, tool: str) -> Mapping[str, Any] | None:
        """Return the next call of a tool that the last answer of the model asked for."""
        calls = self._calls.get(pid, [])
        for index, call in enumerate(calls):
            if call.get("name") == tool:
                return calls.pop(index)
        return None

    def _on_ended(self, event: Event, data: Mapping[str, Any]) -> None:
        key, form = str(data.get("key")), str(data.get("form") or "do")
        running = self._running.take(event.pid, data)
        if running is not None:
            running.ended_at, self.outputs[running.number] = event.time, event.seq
            self._outcome(running, event, data)
            return
        step = self._open.pop((event.pid, key), None)
        if step is None:
            if form == "do" and data.get("name"):  # refused before it began
                kind, rest = _kind_of(str(data["name"]))
                step = self._step(event, kind, rest, name=str(data["name"]))
            elif form in _FORMS:
                step = self._step(event, _FORMS[form], str(data.get("name", "")), name=str(data.get("name", "")))
                if (form, step.name) == ("passage", "turn"):
                    self._tools_are_over(event.pid)
                    step.kind, step.what = "turn", "the turn is over"
                elif form == "wait":
                    step.child, step.what = step.name, f"waited for {step.name}"
            else:
                return
            step.key = key
        step.ended_at, step.end_seq = event.time, event.seq
        recorded = data.get("recorded")
        step.usage = dict(data.get("usage") or recorded or {})
        step.is_recorded = recorded is not None
        if self._running.is_admitted(event.pid, data):
            step.ended_at, step.is_inside = None, True
            self._running.put(event.pid, data, step)
        else:
            self._outcome(step, event, data)

    def _tools_are_over(self, pid: str) -> None:
        for step in self._running.take_all(pid):
            step.status = "ok"

    def _outcome(self, step: RunStep, event: Event, data: Mapping[str, Any]) -> None:
        error = data.get("error")
        step.status = "ok" if error is None else str(error.get("code", "error"))
        if error is not None:
            self._tell(step, "error", error_text(error))
            return
        value = value_of(self._reader, data)
        if step.kind == "model":
            message = value.get("message") if isinstance(value, Mapping) else None
            message = message if isinstance(message, Mapping) else {}
            calls = [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]
            self._calls[event.pid] = list(calls)
            text = text_of_content(message.get("content"))
            asks = ", ".join(f"{call.get('name')}({brief(call.get('arguments'), 60)})" for call in calls)
            self._sum_up(step, asks, [call.get("arguments") for call in calls])
            self._tell(step, "result", " ".join(part for part in (text, f"calls {asks}" if asks else "") if part))
        elif step.kind == "turn":
            failure = value.get("error") if isinstance(value, Mapping) else None
            if failure:  # the conversation continues: the row itself is no failed effect
                step.status = str(failure.get("code", "error"))
                self._tell(step, "error", error_text(failure))
            else:
                self._tell(step, "result", last_answer(value))
        elif step.kind == "wait" and isinstance(value, Mapping) and value.keys() == _ENDING:
            self._tell(step, "result", ending_text(value))
        else:
            self._tell(step, "result", value)

    def _on_retried(self, event: Event, data: Mapping[str, Any]) -> None:
        step = self._open.get((event.pid, str(data.get("key"))))
        if step is not None:
            step.tries += 1

    def _timer(self, event: Event, data: Mapping[str, Any]) -> None:
        pause_s = max(0.0, float(data.get("due") or 0.0) - event.time)
        step = self._step(event, "sleep", f"sleeps {pause_s:.3g} s")
        step.key = str(data.get("key"))

    def _on_question(self, event: Event, data: Mapping[str, Any]) -> None:
        text = data.get("question") or data.get("message") or ""
        step = self._step(event, "question", str(data.get("kind", "")), request=text, status="waiting")
        step.key, step.name = str(data.get("key")), str(data.get("id", ""))
        self._open[event.pid, f"?{data.get('id')}"] = step

    def _on_answered(self, event: Event, data: Mapping[str, Any]) -> None:
        step = self._open.pop((event.pid, f"?{data.get('id')}"), None)
        if step is None:
            return
        step.ended_at, step.end_seq = event.time, event.seq
        word = event.kind.partition(".")[2]
        step.status = "ok" if word == "resolved" else word
        self._tell(step, "result", answer_of(data) if word == "resolved" else str(data.get("reason") or word))

    def _checkpoint(self, event: Event, data: Mapping[str, Any]) -> None:
        state = value_of(self._reader, data, "state")
        step = self._step(event, "checkpoint", "saved its state", result=state)
        step.key = str(data.get("key"))

    def _on_shared(self, event: Event, data: Mapping[str, Any]) -> None:
        word = "wrote" if event.kind == "group.set" else "wiped"
        what = f"{word} {data.get('group')}.{data.get('key')}"
        self._step(event, "shared", what, result=data.get("value"))

    def _stopping(self, event: Event, data: Mapping[str, Any]) -> None:
        self._step(event, "stopping", f"is told to end: {data.get('reason')}")

    def _on_terminated(self, event: Event, data: Mapping[str, Any]) -> None:
        error = data.get("error")
        kind = "exit" if error is None else "crash"
        step = self._step(event, kind, f"{event.pid} ended: {data.get('reason')}")
        if error is not None:
            step.status = str(error.get("code", "error"))
            self._tell(step, "error", error_text(error))
        elif data.get("value") or data.get("blob"):
            self._tell(step, "result", value_of(self._reader, data))
        places = [place for place in self._open if place[0] == event.pid]
        for cut in (*(self._open.pop(place) for place in places), *self._running.take_all(event.pid)):
            cut.status = "cut_off" if cut.status in _FINISHED_LATER else cut.status

    def _on_noted(self, event: Event, data: Mapping[str, Any]) -> None:
        self._step(event, "note", _NOTES[event.kind].format_map(_Named(data)))

    # ------------------------------------------------------------------ making one

    def _step(
        self, event: Event, kind: str, what: str, *, request: Any = None, result: Any = None, **fields: Any
    ) -> RunStep:
        step = RunStep(len(self.steps) + 1, event.seq, event.pid, kind, brief(what, 200), event.time, **fields)
        self.steps.append(step)
        self._tell(step, "request", request)
        self._tell(step, "result", result)
        return step

    def _tell(self, step: RunStep, field: str, value: Any) -> None:
        """Give a step the short text of a value."""
        if value is not None:
            text = brief(value, self._shown)
            setattr(step, field, text)
            self._sum_up(step, text, value)

    def _reword(self, step: RunStep, words: str, value: Any) -> None:
        """Tell the request of a step in other words; its digest has the whole value."""
        if words != step.request:
            self._sum_up(step, "" if step.digest else "…", value)
            step.request = words

    def _sum_up(self, step: RunStep, text: str, value: Any) -> None:
        """Add to the digest of a step what its text leaves out; pids that a kernel gave count by their order."""
        if "…" in text:
            places = {pid: f"<{index}>" for index, pid in enumerate(self._programs)}
            step.digest = digest_of(value, places, step.digest)


class _Named(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return ""


def _kind_of(name: str) -> tuple[str, str]:
    """Return the kind of an effect by its name, and the rest of the name."""
    word, _, rest = name.partition(":")
    return (word, rest) if word in ("model", "tool") else ("effect", name)


_NOTES: Final = {
    "process.tainted": "has read text from outside: {by}",
    "process.diverged": "the program asked for something that its journal does not have",
    "message.withdrawn": "a question was withdrawn",
    "memory.added": "remembered in {scope}: {text}",
    "group.joined": "joined the group {group}",
    "group.left": "left the group {group}",
}
_HANDLERS: Final[dict[str, Callable[[StepFold, Event, Mapping[str, Any]], None]]] = {
    "process.created": StepFold._on_created,
    "process.stopping": StepFold._stopping,
    "process.terminated": StepFold._on_terminated,
    "message.sent": StepFold._on_sent,
    "message.received": StepFold._on_received,
    "effect.started": StepFold._on_begun,
    "effect.finished": StepFold._on_ended,
    "effect.retried": StepFold._on_retried,
    "timer.set": StepFold._timer,
    "interrupt.created": StepFold._on_question,
    "interrupt.resolved": StepFold._on_answered,
    "interrupt.expired": StepFold._on_answered,
    "interrupt.cancelled": StepFold._on_answered,
    "program.checkpoint": StepFold._checkpoint,
    "group.set": StepFold._on_shared,
    "group.unset": StepFold._on_shared,
    **dict.fromkeys(_NOTES, StepFold._on_noted),
}


STEPS_MAX: Final = 200_000  # of one run; further rows are not read
COMPACTED: Final = "its first rows were dropped by a compaction; the moment 0 is what was kept"
_MESSAGES_SHOWN: Final = 200
_TREE_SHOWN: Final = 500


class RunTimeline:
    """See the module. Steps are numbered from 1; place 0 is before the first."""

    def __init__(self, reader: StoredRows, pid: str, *, steps_max: int = STEPS_MAX, run_id: str = "") -> None:
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
    def from_name(cls, reader: StoredRows, word: str, **options: Any) -> RunTimeline:
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
