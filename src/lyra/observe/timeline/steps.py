"""StepFold: the steps of a run (`step`), from its rows.

Readings of the clock and ties between processes are no steps. The whole values of a step stay in the store:
`RunTimeline.detail` reads them again by the numbers of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from lyra.core.event import Event
from lyra.core.naming import to_fixed_name
from lyra.observe.timeline.journal import RowReader, value_of
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
    start_words,
    text_of_content,
    vega_name,
)

_FORMS: Final = {"passage": "milestone", "wait": "wait", "context": "note"}  # rows without a beginning that are steps
_ENDING: Final = {"reason", "result", "error"}  # what a wait for a child gives
_FINISHED_LATER: Final = ("running", "waiting")


class StepFold:
    """The fold over the rows of a run. `steps` grows; a step that is under way changes when its end is read."""

    def __init__(self, reader: RowReader, *, shown_chars: int = 160) -> None:
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
