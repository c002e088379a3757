"""How a run stood: its processes, their mailboxes, budgets and conversations, and the values that they shared.

`RunMoment` is the table of processes (`history.processes`) that also reads the values of the rows. It takes the rows of
a run in order. What it knows after a row is what could be known then; rows that come later are not looked at.

`StoredRows` reads the rows of a run from a store, beside the kernel that may own it, and never writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from lyra.core import codec
from lyra.core.event import Event
from lyra.core.naming import SUPERVISE
from lyra.errors import Corrupt, LyraError
from lyra.observe.history.processes import ProcessRecord, ProcessTable, record_from_row, sum_into
from lyra.observe.timeline.step import OpenCalls, SupervisedStarts, brief, message_text, shorten, text_of_content
from lyra.store.ended import load_all, subtract
from lyra.store.protocol import Store

Wanted = Callable[[str, str], bool]  # whether a row of this pid and kind is to be read
_NAMES_OTHERS: Final = frozenset({"process.created", "message.sent"})  # rows that may belong to two processes
_JOURNAL_SHARED: Final = frozenset({"group.created", "group.deleted", "group.set", "group.unset"})


class StoredRows:
    """The journal of an open store. Rows that are not wanted are not decoded."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def readable(self, value: Any) -> Any:
        """Return a value of a row as a person reads it; programs that write theirs in their own form override this."""
        return value

    @property
    def location(self) -> str:
        return self._store.location

    def rows(self, *, after: int = 0, upto: int | None = None, wanted: Wanted | None = None) -> Iterator[Event]:
        for row in self._store.read(after=after, upto=upto):
            if wanted is None or wanted(row.pid, row.kind):
                yield Event(row.seq, row.time, row.pid, row.kind, codec.decode(row.data))

    def last_seq(self) -> int:
        return self._store.last_seq()

    def blob(self, digest: str) -> bytes:
        return self._store.get_blob(digest)

    def read_kept_states(self) -> tuple[int, dict[str, Any]]:
        """Return what is kept of processes whose first rows were dropped, by pid, and the last row that it covers."""
        first_seq = self._store.first_seq()
        if first_seq <= 1:
            return 0, {}
        kept = load_all(self._store)
        states = {pid: codec.decode(data) for pid, data in kept.states.items() if pid[:1] != "~"}
        put_away = [state for state in states.values() if state.get("passed_on")]
        for state in sorted(put_away, key=lambda state: state["created_seq"]):  # from above
            parent = states.get(state["created"].get("parent"))
            if parent is not None:
                subtract(parent["spent"], state["passed_on"])
            state["spent"] = state["passed_on"]
        return kept.seq, {pid: state for pid, state in states.items() if state.get("created_seq", 0) < first_seq}


class RunRows:
    """The rows of one process and of all that it started. `pids` are those processes, in the order of their start.

    Of a process whose first rows were dropped the kept state is all there is until the row that it covers: rows up to
    there that are left are not read, since the state has them in it.
    """

    def __init__(self, reader: StoredRows, pid: str) -> None:
        self.reader = reader
        self.pid = pid
        self.pids: dict[str, None] = {pid: None}
        self.first_seq = 0  # of the first row that was read
        self.kept: dict[str, Any] = {}  # what is left of processes whose rows were dropped
        self._kept_seq, states = reader.read_kept_states()
        if states:
            self._take_kept(states)

    def _take_kept(self, states: dict[str, Any]) -> None:
        parents = {pid: str((state.get("created") or {}).get("parent") or "") for pid, state in states.items()}
        for pid, state in states.items():
            above, seen = pid, {pid}
            while above != self.pid and parents.get(above) and parents[above] not in seen:
                above = parents[above]
                seen.add(above)
            if above == self.pid:
                self.pids[pid] = None
                self.kept[pid] = state

    def read(self, *, after: int = 0, upto: int | None = None) -> Iterator[Event]:
        """Yield the rows after one number and up to another."""

        def is_wanted(pid: str, kind: str) -> bool:
            return pid in self.pids or kind in _NAMES_OTHERS or kind in _JOURNAL_SHARED

        for event in self.reader.rows(after=after, upto=upto, wanted=is_wanted):
            if event.seq <= self._kept_seq and event.pid in self.kept:
                continue
            if event.kind == "process.created" and event.data.get("parent") in self.pids:
                self.pids[event.pid] = None
            is_sent = event.kind == "message.sent" and event.data.get("sender") in self.pids
            if is_sent or event.pid in self.pids or event.kind in _JOURNAL_SHARED:
                if not self.first_seq and event.kind not in _JOURNAL_SHARED:
                    self.first_seq = event.seq
                yield event


def value_of(reader: StoredRows, data: Any, name: str = "value") -> Any:
    """Return the value of a row: in the row itself, or in the blob that it names."""
    digest = data.get("blob")
    if not digest:
        return reader.readable(data.get(name))
    try:
        return reader.readable(codec.decode(reader.blob(digest)))
    except Corrupt:
        raise
    except LyraError:  # a server that gives rows and no blobs, or a blob that was cleaned up
        return "(a large value that cannot be read from here)"


_MAILBOX_SHOWN: Final = 50
_VALUED: Final = ("do", "read", "passage")  # rows whose values are told by their names
_VALUES_KEPT: Final = 200  # readings and results by name, of one process


class RunMoment(ProcessTable):
    """The table of a run's processes, with what their rows say to a reader. `time` is that of the last row."""

    def __init__(self, reader: StoredRows) -> None:
        super().__init__()
        self._reader = reader
        self.conversations: dict[str, AgentConversation] = {}
        self.boards: dict[str, dict[str, Any]] = {}  # values of the groups, by group and key
        self.members: dict[str, set[str]] = {}  # groups, and which processes of the run are in them
        self.values: dict[str, dict[str, Any]] = {}  # that processes read and were given, by pid and name
        self.starts: dict[str, int] = {}  # of supervised children: how often each was started so far, by pid
        self._starts = SupervisedStarts()
        self.time = 0.0

    def add(self, event: Event) -> None:
        self.time = event.time
        if event.kind == "process.created":
            super().add(event)
            self._begin(event, event.data)
            return
        read = _READERS.get(event.kind)
        if read is not None and (event.kind in _SHARED or event.pid in self.records):
            read(self, event, event.data)  # before the change: an end takes away what it ends
        super().add(event)

    def take_kept(self, pid: str, kept: Mapping[str, Any]) -> None:
        """Take over a process whose rows were dropped, as far as its kept state tells."""
        created, ended = kept.get("created") or {}, kept.get("exit")
        process = self.records[pid] = record_from_row(pid, created, float(kept.get("created_at") or 0.0))
        process.spent = {str(name): int(amount) for name, amount in (kept.get("spent") or {}).items()}
        for seq, message, blob, form in kept.get("inbox") or ():
            process.mailbox[seq] = {"message": message, "blob": blob, "form": form}
        if ended:
            process.state, process.reason = "terminated", str(ended.get("reason", ""))
            process.ended_at = float(kept.get("exit_at") or 0.0)
        if process.is_agent:
            conversation = self.conversations.setdefault(pid, AgentConversation())
            conversation.restore_state(value_of(self._reader, {"v": kept.get("restored")}, "v"))
            for entry in _list_answers(kept.get("effects")):
                self._take_entry(conversation, entry)

    def _take_entry(self, conversation: AgentConversation, entry: list[Any]) -> None:
        kind, name, value, blob = entry[0], entry[1], entry[5], entry[6]
        value = value_of(self._reader, {"value": value, "blob": blob})
        if (kind, name) == ("passage", "turn"):
            conversation.turn_ended(value)
        elif kind == "receive":
            conversation.on_message(value)

    # ------------------------------------------------------------------ one reader a kind

    def _begin(self, event: Event, data: Mapping[str, Any]) -> None:
        process = self.records[event.pid]
        arguments = value_of(self._reader, data, "args")
        self.starts[event.pid] = max(1, self._starts.add(event.pid, data, arguments))
        if process.is_agent:
            conversation = self.conversations[event.pid] = AgentConversation()
            if isinstance(arguments, list) and arguments:
                conversation.on_message(arguments[0])
        elif process.program != SUPERVISE and arguments:
            self._keep_value(event.pid, "arguments", arguments)

    def _keep_value(self, pid: str, name: str, value: Any) -> None:
        self.values.setdefault(pid, {})[name] = value

    def _read_taken(self, event: Event, data: Mapping[str, Any]) -> None:
        conversation = self.conversations.get(event.pid)
        mail = self.records[event.pid].mailbox.get(data.get("message") or 0)
        if conversation is not None and mail is not None and not mail.get("form"):
            conversation.on_message(value_of(self._reader, mail, "message"))

    def _read_effect(self, event: Event, data: Mapping[str, Any]) -> None:
        conversation = self.conversations.get(event.pid)
        if conversation is not None:
            conversation.on_begun(data)

    def _read_answer(self, event: Event, data: Mapping[str, Any]) -> None:
        form = str(data.get("form") or "do")
        name = self.records[event.pid].under_way.get(str(data.get("key"))) or str(data.get("name", ""))
        conversation, values = self.conversations.get(event.pid), self.values.get(event.pid, {})
        if conversation is not None:
            self._converse(conversation, name, form, data)
        elif data.get("error") is None and form in _VALUED and (len(values) < _VALUES_KEPT or name in values):
            self._keep_value(event.pid, name, value_of(self._reader, data))

    def _converse(self, conversation: AgentConversation, name: str, form: str, data: Mapping[str, Any]) -> None:
        error = data.get("error")
        if form == "context":
            conversation.window_moved()
        elif (form, name) == ("passage", "turn"):
            conversation.turn_ended(value_of(self._reader, data))
        elif name.startswith("model:") and error is None:
            conversation.on_answer(value_of(self._reader, data))
        elif name.startswith("tool:"):
            conversation.on_called(name[len("tool:") :], value_of(self._reader, data), data)
        elif form == "read":
            conversation.on_finished(value_of(self._reader, data), data)

    def _read_checkpoint(self, event: Event, data: Mapping[str, Any]) -> None:
        saved = value_of(self._reader, data, "state")
        conversation = self.conversations.get(event.pid)
        if conversation is None or not conversation.restore_state(saved):
            self._keep_value(event.pid, "checkpoint", saved)

    def _read_result(self, event: Event, data: Mapping[str, Any]) -> None:
        if data.get("value") is not None or data.get("blob"):
            self._keep_value(event.pid, "result", value_of(self._reader, data))

    def _join(self, event: Event, data: Mapping[str, Any]) -> None:
        self.members.setdefault(str(data.get("group")), set()).add(event.pid)

    def _leave(self, event: Event, data: Mapping[str, Any]) -> None:
        self.members.get(str(data.get("group")), set()).discard(event.pid)

    def _share(self, event: Event, data: Mapping[str, Any]) -> None:
        board = self.boards.setdefault(str(data.get("group")), {})
        if event.kind == "group.set":
            board[str(data.get("key"))] = data.get("value")
        else:
            board.pop(str(data.get("key")), None)

    # ------------------------------------------------------------------ what it comes to

    def budget(self, pid: str) -> list[dict[str, Any]]:
        """Return the scopes that a process spends from, its own first: limits, what was used, and what is set aside."""
        scopes = []
        process = self.records.get(pid)
        while process is not None:
            parent = self.records.get(process.parent)
            if process.limits is not None or parent is None:
                scopes.append(self._scope(process))
            process = parent
        return scopes

    def _scope(self, top: ProcessRecord) -> dict[str, Any]:
        used: dict[str, int] = {}
        reserved: dict[str, int] = {}
        recorded: dict[str, int] = {}
        pids = {top.pid}
        for process in self.records.values():  # parents come before their children
            if process.pid not in pids and process.parent not in pids:
                continue
            pids.add(process.pid)
            sum_into(used, process.spent)
            sum_into(recorded, process.recorded)
            for cost in process.held.values():
                sum_into(reserved, cost)
        limits = {name: limit for name, limit in (top.limits or {}).items() if limit is not None}
        scope = {"pid": top.pid, "limits": shorten(limits), "used": used, "reserved": reserved}
        return {**scope, "recorded": recorded} if recorded else scope

    def mailbox(self, pid: str) -> dict[str, Any]:
        process = self.records.get(pid)
        waiting = [] if process is None else list(process.mailbox.values())
        return {"messages": [self._describe(row) for row in waiting[:_MAILBOX_SHOWN]], "count": len(waiting)}

    def _describe(self, row: Mapping[str, Any]) -> str:
        text = message_text(value_of(self._reader, row, "message"))
        return f"{row['form']}: {brief(text)}" if row.get("form") else brief(text, 300)

    def variables(self, pid: str) -> dict[str, Any]:
        """Return what is known of the variables of a process: what it read and was given, and what its groups share."""
        known = {name: shorten(value) for name, value in self.values.get(pid, {}).items()}
        shared = {group: shorten(self.boards.get(group, {})) for group, pids in self.members.items() if pids}
        return {**known, "shared": shared} if shared else known


def _list_answers(effects: Any) -> list[list[Any]]:
    if not isinstance(effects, Mapping):
        return []
    keys = sorted(key for key in effects if isinstance(key, int))
    return [entry for entry in (effects[key] for key in keys) if isinstance(entry, list) and len(entry) > 6]


_SHARED: Final = frozenset({"group.left", "group.set", "group.unset"})  # also of processes that are no part of the run
_READERS: Final[dict[str, Callable[[RunMoment, Event, Mapping[str, Any]], None]]] = {
    "process.terminated": RunMoment._read_result,
    "message.received": RunMoment._read_taken,
    "effect.started": RunMoment._read_effect,
    "effect.finished": RunMoment._read_answer,
    "program.checkpoint": RunMoment._read_checkpoint,
    "group.joined": RunMoment._join,
    "group.left": RunMoment._leave,
    "group.set": RunMoment._share,
    "group.unset": RunMoment._share,
}


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

    def on_message(self, message: Any) -> None:
        """Note that a message was taken from the mailbox, or given as the task of a process."""
        content = message.get("content") if isinstance(message, Mapping) and "lyra.ask" in message else message
        if isinstance(content, Mapping) and _REVISE in content:
            order = content[_REVISE]
            del self.messages[int(order.get("keep", 0)) :]
            self.messages += [_render_message(added) for added in order.get("add") or ()]
            return
        if content is None or (isinstance(content, Mapping) and _COMPACT in content):
            return
        self._turn_start = len(self.messages)
        self.messages.append({"role": "user", "text": _cut(text_of_content(content))})

    def window_moved(self) -> None:
        """Note that the next answer of a model is a summary, and no part of the conversation."""
        self._is_summary_next = True

    def on_answer(self, completion: Any) -> None:
        """Note that a model answered."""
        if self._is_summary_next:
            self._is_summary_next = False
            return
        message = completion.get("message") if isinstance(completion, Mapping) else None
        if isinstance(message, Mapping):
            self.messages.append(_render_message(message))
            self._open_calls = [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]

    def on_begun(self, row: Mapping[str, Any]) -> None:
        """Note that an effect began; a model is asked when all tools are done."""
        if str(row.get("name", "")).startswith("model:"):
            for result in self._running.take_all(""):
                result.pop("is_open", None)
        self._running.begin("", row)

    def on_called(self, tool: str, value: Any, row: Mapping[str, Any]) -> None:
        """Note that a tool gave its result, failed, or was let run as a part of the program."""
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

    def on_finished(self, value: Any, row: Mapping[str, Any]) -> None:
        """Note that a tool that ran as a part of the program is done, where this is the row of its result."""
        result = self._running.take("", row)
        if result is not None:
            result.pop("is_open", None)
            result |= _outcome(value, row)

    def turn_ended(self, outcome: Any) -> None:
        """Take the messages of a turn whose end is journaled."""
        messages = outcome.get("messages") if isinstance(outcome, Mapping) else None
        if isinstance(messages, list):
            self.messages[self._turn_start :] = [_render_message(message) for message in messages]
        self._turn_start = len(self.messages)

    def restore_state(self, state: Any) -> bool:
        """Restore a saved state, which has the whole conversation; False where it is the state of something else."""
        messages = state.get("messages") if isinstance(state, Mapping) else None
        if not isinstance(messages, list):
            return False
        self.messages = [_render_message(message) for message in messages]
        self._turn_start = len(self.messages)
        return True


def _outcome(value: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    error = row.get("error")
    if error is None:
        return {"output": shorten(value)}
    return {"output": str(error.get("message", "failed")), "is_error": True}


def _render_message(message: Any) -> dict[str, Any]:
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
            {
                "id": call.get("id", ""),
                "name": call.get("name", ""),
                "arguments": shorten(call.get("arguments")),
            }
            for call in calls
        ]
    if results:
        shown["tool_results"] = [
            {key: shorten(result[key]) for key in ("id", "name", "output", "is_error") if key in result}
            for result in results
        ]
    return shown


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}… ({len(text)} characters)"
