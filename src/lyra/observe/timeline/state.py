"""How a run stood: its processes, their mailboxes, budgets and conversations, and the values that they shared.

`RunMoment.add` takes the rows of a run in order. What it knows after a row is what could be known then; rows that come
later are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from lyra.core.event import Event
from lyra.core.naming import SUPERVISE, fixed_name
from lyra.observe.timeline.journal import RowReader, value_of
from lyra.observe.timeline.step import (
    OpenCalls,
    SupervisedStarts,
    add_usage,
    brief,
    message_text,
    plain,
    text_of_content,
)

_MAILBOX_SHOWN: Final = 50
_VALUED: Final = ("do", "read", "passage")  # rows whose values are told by their names
_VALUES_KEPT: Final = 200  # readings and results by name, of one process


class RunProcess(msgspec.Struct):
    """One process of a run. `spent` is its own, `recorded` what the run that it was forked from had paid."""

    pid: str
    program: str = ""
    name: str = ""
    parent: str = ""
    state: str = "running"  # running, waiting, stopping or ended
    reason: str = ""
    error: str = ""
    created_at: float = 0.0
    ended_at: float | None = None
    limits: dict[str, Any] | None = None
    spent: dict[str, int] = {}
    recorded: dict[str, int] = {}
    held: dict[str, dict[str, int]] = {}
    mailbox: dict[int, str] = {}
    questions: dict[str, str] = {}
    under_way: dict[str, str] = {}  # effects, by key
    values: dict[str, Any] = {}
    starts: int = 1  # of a supervised child: how often it was started so far
    fork: dict[str, Any] | None = None

    @property
    def is_agent(self) -> bool:
        return self.program.startswith("agent:")


class RunMoment:
    """The fold. `processes` are in the order of their start."""

    def __init__(self, reader: RowReader) -> None:
        self._reader = reader
        self.processes: dict[str, RunProcess] = {}
        self.conversations: dict[str, AgentConversation] = {}
        self.boards: dict[str, dict[str, Any]] = {}  # values of the groups, by group and key
        self.members: dict[str, set[str]] = {}  # groups, and which processes of the run are in them
        self._starts = SupervisedStarts()
        self._mail: dict[int, Mapping[str, Any]] = {}  # messages to agents that were not taken, by their row
        self.seq = 0
        self.time = 0.0

    def add(self, event: Event) -> None:
        self.seq, self.time = event.seq, event.time
        handle = _HANDLERS.get(event.kind)
        if handle is None:
            return
        if event.kind in _ABOUT_ONE:
            process = self.processes.get(event.pid)
            if process is not None:
                handle(self, event, event.data, process)
        else:
            handle(self, event, event.data, None)

    def take_kept(self, pid: str, kept: Mapping[str, Any]) -> None:
        """Take over a process whose rows were dropped, as far as its kept state tells."""
        created, ended = kept.get("created") or {}, kept.get("exit")
        process = self.processes[pid] = _process(pid, created, float(kept.get("created_at") or 0.0))
        process.spent = {str(name): int(amount) for name, amount in (kept.get("spent") or {}).items()}
        for seq, message, blob, form in kept.get("inbox") or ():
            self._put_in_mailbox(process, seq, {"message": message, "blob": blob, "form": form})
        if ended:
            process.state, process.reason = "ended", str(ended.get("reason", ""))
            process.ended_at = float(kept.get("exit_at") or 0.0)
        if process.is_agent:
            conversation = self.conversations.setdefault(pid, AgentConversation())
            conversation.restored(value_of(self._reader, {"v": kept.get("restored")}, "v"))
            for entry in _kept_answers(kept.get("effects")):
                self._take_entry(conversation, entry)

    def _take_entry(self, conversation: AgentConversation, entry: list[Any]) -> None:
        kind, name, value, blob = entry[0], entry[1], entry[5], entry[6]
        value = value_of(self._reader, {"value": value, "blob": blob})
        if (kind, name) == ("passage", "turn"):
            conversation.turn_ended(value)
        elif kind == "receive":
            conversation.asked(value)

    # ------------------------------------------------------------------ one handler a kind

    def _created(self, event: Event, data: Mapping[str, Any], _: RunProcess | None) -> None:
        process = self.processes[event.pid] = _process(event.pid, data, event.time)
        arguments = value_of(self._reader, data, "args")
        process.starts = max(1, self._starts.add(event.pid, data, arguments))
        if process.is_agent:
            conversation = self.conversations[event.pid] = AgentConversation()
            if isinstance(arguments, list) and arguments:
                conversation.asked(arguments[0])
        elif process.program != SUPERVISE and arguments:
            process.values["arguments"] = arguments

    def _sent(self, event: Event, data: Mapping[str, Any], _: RunProcess | None) -> None:
        receiver = self.processes.get(str(data.get("to")))
        if receiver is not None and not data.get("dropped"):
            self._put_in_mailbox(receiver, event.seq, data)

    def _put_in_mailbox(self, receiver: RunProcess, seq: int, data: Mapping[str, Any]) -> None:
        text = message_text(value_of(self._reader, data, "message"))
        if receiver.is_agent and not data.get("form"):
            self._mail[seq] = data
        receiver.mailbox[seq] = brief(text, 300) if not data.get("form") else f"{data['form']}: {brief(text)}"

    def _received(self, event: Event, data: Mapping[str, Any], process: RunProcess) -> None:
        if not data.get("message"):
            return
        process.mailbox.pop(data["message"], None)
        conversation = self.conversations.get(event.pid)
        if conversation is None:
            return
        mail = self._mail.pop(data["message"], None)
        if mail is not None:
            conversation.asked(value_of(self._reader, mail, "message"))

    def _begun(self, _: Event, data: Mapping[str, Any], process: RunProcess) -> None:
        key = str(data.get("key"))
        process.under_way[key] = str(data.get("name", ""))
        conversation = self.conversations.get(process.pid)
        if conversation is not None:
            conversation.begun(data)
        if data.get("cost"):
            process.held[key] = dict(data["cost"])

    def _ended(self, event: Event, data: Mapping[str, Any], process: RunProcess) -> None:
        key, form, error = str(data.get("key")), str(data.get("form") or "do"), data.get("error")
        name = process.under_way.pop(key, "") or str(data.get("name", ""))
        process.held.pop(key, None)
        add_usage(process.spent, data.get("usage"))
        add_usage(process.recorded, data.get("recorded"))
        conversation = self.conversations.get(event.pid)
        if conversation is not None:
            self._converse(conversation, name, form, data)
        elif error is None and form in _VALUED and (len(process.values) < _VALUES_KEPT or name in process.values):
            process.values[name] = value_of(self._reader, data)

    def _converse(self, conversation: AgentConversation, name: str, form: str, data: Mapping[str, Any]) -> None:
        error = data.get("error")
        if form == "context":
            conversation.window_moved()
        elif (form, name) == ("passage", "turn"):
            conversation.turn_ended(value_of(self._reader, data))
        elif name.startswith("model:") and error is None:
            conversation.answered(value_of(self._reader, data))
        elif name.startswith("tool:"):
            conversation.called(name[len("tool:") :], value_of(self._reader, data), data)
        elif form == "read":
            conversation.finished(value_of(self._reader, data), data)

    def _checkpoint(self, event: Event, data: Mapping[str, Any], process: RunProcess) -> None:
        saved = value_of(self._reader, data, "state")
        conversation = self.conversations.get(event.pid)
        if conversation is None or not conversation.restored(saved):
            process.values["checkpoint"] = saved

    def _asked(self, _: Event, data: Mapping[str, Any], process: RunProcess) -> None:
        process.questions[str(data.get("id"))] = str(data.get("question") or data.get("message") or "")
        process.state = "waiting"

    def _answered(self, _: Event, data: Mapping[str, Any], process: RunProcess) -> None:
        process.questions.pop(str(data.get("id")), None)
        if not process.questions and process.state == "waiting":
            process.state = "running"

    def _stopping(self, _: Event, data: Mapping[str, Any], process: RunProcess) -> None:
        process.state, process.reason = "stopping", str(data.get("reason", ""))

    def _terminated(self, event: Event, data: Mapping[str, Any], process: RunProcess) -> None:
        process.state, process.reason, process.ended_at = "ended", str(data.get("reason", "")), event.time
        error = data.get("error") or {}
        process.error = str(error.get("message") or error.get("code") or "")
        process.mailbox, process.questions, process.under_way, process.held = {}, {}, {}, {}
        if data.get("value") is not None or data.get("blob"):
            process.values["result"] = value_of(self._reader, data)

    def _joined(self, event: Event, data: Mapping[str, Any], _: RunProcess | None) -> None:
        if event.pid in self.processes:
            self.members.setdefault(str(data.get("group")), set()).add(event.pid)

    def _left(self, event: Event, data: Mapping[str, Any], _: RunProcess | None) -> None:
        self.members.get(str(data.get("group")), set()).discard(event.pid)

    def _shared(self, event: Event, data: Mapping[str, Any], _: RunProcess | None) -> None:
        board = self.boards.setdefault(str(data.get("group")), {})
        if event.kind == "group.set":
            board[str(data.get("key"))] = data.get("value")
        else:
            board.pop(str(data.get("key")), None)

    # ------------------------------------------------------------------ what it comes to

    def tree(self) -> Iterator[tuple[int, RunProcess]]:
        """Each process with its depth, parents before their children."""
        below: dict[str, list[RunProcess]] = {}
        for process in self.processes.values():
            above = process.parent if process.parent in self.processes else ""
            below.setdefault(above, []).append(process)
        todo = [(0, process) for process in reversed(below.get("", []))]
        while todo:
            depth, process = todo.pop()
            yield depth, process
            todo += [(depth + 1, child) for child in reversed(below.get(process.pid, []))]

    def budget(self, pid: str) -> list[dict[str, Any]]:
        """The scopes that a process spends from, its own first: limits, what was used, and what is set aside."""
        scopes = []
        process = self.processes.get(pid)
        while process is not None:
            parent = self.processes.get(process.parent)
            if process.limits is not None or parent is None:
                scopes.append(self._scope(process))
            process = parent
        return scopes

    def _scope(self, top: RunProcess) -> dict[str, Any]:
        used: dict[str, int] = {}
        reserved: dict[str, int] = {}
        recorded: dict[str, int] = {}
        for process in self._below(top.pid):
            add_usage(used, process.spent)
            add_usage(recorded, process.recorded)
            for cost in process.held.values():
                add_usage(reserved, cost)
        limits = {name: limit for name, limit in (top.limits or {}).items() if limit is not None}
        scope = {"pid": top.pid, "limits": plain(limits), "used": used, "reserved": reserved}
        return {**scope, "recorded": recorded} if recorded else scope

    def _below(self, pid: str) -> list[RunProcess]:
        members, pids = [], {pid}
        for process in self.processes.values():  # parents come before their children
            if process.pid in pids or process.parent in pids:
                pids.add(process.pid)
                members.append(process)
        return members

    def mailbox(self, pid: str) -> dict[str, Any]:
        process = self.processes.get(pid)
        waiting = [] if process is None else list(process.mailbox.values())
        return {"messages": waiting[:_MAILBOX_SHOWN], "count": len(waiting)}

    def variables(self, pid: str) -> dict[str, Any]:
        """Return what is known of the variables of a process: what it read and was given, and what its groups share."""
        process = self.processes.get(pid)
        known = {} if process is None else {name: plain(value) for name, value in process.values.items()}
        shared = {group: plain(self.boards.get(group, {})) for group, pids in self.members.items() if pids}
        return {**known, "shared": shared} if shared else known


def _process(pid: str, created: Mapping[str, Any], time: float) -> RunProcess:
    budget = created.get("budget")
    return RunProcess(
        pid,
        program=fixed_name(str(created.get("program", ""))),
        name=str(created.get("name") or ""),
        parent=str(created.get("parent") or ""),
        created_at=time,
        limits=None if budget is None else dict(budget.get("limits") or {}),
        fork=created.get("fork"),
    )


def _kept_answers(effects: Any) -> list[list[Any]]:
    if not isinstance(effects, Mapping):
        return []
    keys = sorted(key for key in effects if isinstance(key, int))
    return [entry for entry in (effects[key] for key in keys) if isinstance(entry, list) and len(entry) > 6]


_ABOUT_ONE: Final = frozenset(
    {
        "process.stopping",
        "process.terminated",
        "message.received",
        "effect.started",
        "effect.finished",
        "interrupt.created",
        "interrupt.resolved",
        "interrupt.expired",
        "interrupt.cancelled",
        "program.checkpoint",
    }
)
_HANDLERS: Final[dict[str, Callable[[RunMoment, Event, Mapping[str, Any], Any], None]]] = {
    "process.created": RunMoment._created,
    "process.stopping": RunMoment._stopping,
    "process.terminated": RunMoment._terminated,
    "message.sent": RunMoment._sent,
    "message.received": RunMoment._received,
    "effect.started": RunMoment._begun,
    "effect.finished": RunMoment._ended,
    "interrupt.created": RunMoment._asked,
    "interrupt.resolved": RunMoment._answered,
    "interrupt.expired": RunMoment._answered,
    "interrupt.cancelled": RunMoment._answered,
    "program.checkpoint": RunMoment._checkpoint,
    "group.joined": RunMoment._joined,
    "group.left": RunMoment._left,
    "group.set": RunMoment._shared,
    "group.unset": RunMoment._shared,
}


# ---------------------------------------------------------------- conversation
# The conversation of an agent process, row by row: what it was asked, said, called and was given.

_TEXT_MAX: Final = 20_000
_REVISE, _COMPACT = "lyra.revise", "lyra.compact"


class AgentConversation:
    """`messages` are mappings with a role, a text and, where there are any, tool calls or results. A tool that is not
    done, such as one that waits for a person, has a result that `is_open` and no output."""

    __slots__ = ("_is_summary_next", "_open_calls", "_running", "_turn_start", "messages")

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._turn_start = 0
        self._open_calls: list[Mapping[str, Any]] = []
        self._running = OpenCalls[dict[str, Any]]()
        self._is_summary_next = False

    def asked(self, message: Any) -> None:
        """A message was taken from the mailbox, or given as the task of a process."""
        content = message.get("content") if isinstance(message, Mapping) and "lyra.ask" in message else message
        if isinstance(content, Mapping) and _REVISE in content:
            order = content[_REVISE]
            del self.messages[int(order.get("keep", 0)) :]
            self.messages += [_shown(added) for added in order.get("add") or ()]
            return
        if content is None or (isinstance(content, Mapping) and _COMPACT in content):
            return
        self._turn_start = len(self.messages)
        self.messages.append({"role": "user", "text": _cut(text_of_content(content))})

    def window_moved(self) -> None:
        """The next answer of a model is a summary, and no part of the conversation."""
        self._is_summary_next = True

    def answered(self, completion: Any) -> None:
        """A model answered."""
        if self._is_summary_next:
            self._is_summary_next = False
            return
        message = completion.get("message") if isinstance(completion, Mapping) else None
        if isinstance(message, Mapping):
            self.messages.append(_shown(message))
            self._open_calls = [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]

    def begun(self, row: Mapping[str, Any]) -> None:
        """An effect began; a model is asked when all tools are done."""
        if str(row.get("name", "")).startswith("model:"):
            for result in self._running.take_all(""):
                result.pop("is_open", None)
        self._running.begin("", row)

    def called(self, tool: str, value: Any, row: Mapping[str, Any]) -> None:
        """A tool gave its result, failed, or was let run as a part of the program."""
        call = next((call for call in self._open_calls if call.get("name") == tool), None)
        if call is not None:
            self._open_calls.remove(call)
        if not self.messages or self.messages[-1]["role"] != "tool":
            self.messages.append({"role": "tool", "text": "", "tool_results": []})
        result = {"id": "" if call is None else call.get("id", ""), "name": tool, **_outcome(value, row)}
        if self._running.is_admitted("", row):
            result["is_open"] = True
            self._running.put("", row, result)
        self.messages[-1]["tool_results"].append(result)

    def finished(self, value: Any, row: Mapping[str, Any]) -> None:
        """A tool that ran as a part of the program is done, where this is the row of its result."""
        result = self._running.take("", row)
        if result is not None:
            result.pop("is_open", None)
            result |= _outcome(value, row)

    def turn_ended(self, outcome: Any) -> None:
        """The end of a turn is journaled: its messages are these."""
        messages = outcome.get("messages") if isinstance(outcome, Mapping) else None
        if isinstance(messages, list):
            self.messages[self._turn_start :] = [_shown(message) for message in messages]
        self._turn_start = len(self.messages)

    def restored(self, state: Any) -> bool:
        """A saved state has the whole conversation; False where it is the state of something else."""
        messages = state.get("messages") if isinstance(state, Mapping) else None
        if not isinstance(messages, list):
            return False
        self.messages = [_shown(message) for message in messages]
        self._turn_start = len(self.messages)
        return True


def _outcome(value: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    error = row.get("error")
    if error is None:
        return {"output": plain(value)}
    return {"output": str(error.get("message", "failed")), "is_error": True}


def _shown(message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        return {"role": "user", "text": _cut(str(message))}
    shown: dict[str, Any] = {
        "role": str(message.get("role", "")),
        "text": _cut(text_of_content(message.get("content"))),
    }
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]
    results = [result for result in message.get("tool_results") or () if isinstance(result, Mapping)]
    if calls:
        shown["tool_calls"] = [
            {"id": call.get("id", ""), "name": call.get("name", ""), "arguments": plain(call.get("arguments"))}
            for call in calls
        ]
    if results:
        shown["tool_results"] = [
            {key: plain(result[key]) for key in ("id", "name", "output", "is_error") if key in result}
            for result in results
        ]
    return shown


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}… ({len(text)} characters)"
