"""UnfinishedTurn: what a process had done of its last turn when its kernel died, read from the journal.

A kernel that knows the agent's program continues with such a turn by itself. A caller that would rather stop it there
(a person comes back the next day) opens the kernel without the program, reads the turn here, withdraws it with
`withdraw`, and only then lets the agent run. The messages are complete: every tool call has a result, and one that may
or may not have taken effect says so. Nothing is run and nothing is written by `find_unfinished_turn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.agents.declaration.output import message_of
from lyra.agents.session.session import Metrics
from lyra.agents.turn.hook_points import going_on, message_with, outcome_of, result_with
from lyra.agents.turn.loop import COMPACT, REVISE, parse_message
from lyra.agents.turn.tool_calls import OUTPUT
from lyra.agents.turn.turn import NOTICES, notice_message
from lyra.core import codec
from lyra.core.message import Message
from lyra.core.tool import ToolCall, ToolResult
from lyra.errors import ProcessError
from lyra.kernel.journal.history import Entry, Fold, ProcessState
from lyra.kernel.journal.rows import error_from_row
from lyra.kernel.kernel import Kernel
from lyra.models.stream import Completion
from lyra.store.ended import load_all

if TYPE_CHECKING:
    from lyra.agents.declaration.hooks import HookOutcome
    from lyra.kernel.base.subsystem import State
    from lyra.store.protocol import Store


IN_DOUBT: Final = "the session ended while this call was under way; whether it took effect is not known"
NOT_RUN: Final = "the session ended before this call was made"
UNCHECKED: Final = "the session ended while hooks looked at the result of this call; it is not shown"
_MODEL, _TOOL = "model:", "tool:"
_MILESTONE: Final = "passage"  # a finished turn, in the journal's words
_NUMBER_BYTES: Final = 8


GetBlob = Callable[[str], bytes]


class UnfinishedTurn(NamedTuple):
    request_id: str
    question: Message
    messages: tuple[Message, ...]  # after the question
    doubts: tuple[ToolCall, ...]  # calls that may or may not have taken effect


class _Rows:
    """The journaled acts of a turn: those of the program itself in order, and those of its parallel branches."""

    def __init__(self, entries: dict[Any, Entry], get_blob: GetBlob, begin: int, branches: int) -> None:
        self._get_blob = get_blob
        self.branch = branches  # the first that no batch of calls has used yet
        self.line = sorted((key, entry) for key, entry in entries.items() if isinstance(key, int) and key > begin)
        self._branches: dict[int, list[Entry]] = {}
        for key, entry in entries.items():
            number = key.partition("/")[0] if isinstance(key, str) else ""
            if number.isdecimal():
                self._branches.setdefault(int(number), []).append(entry)

    def value(self, entry: Entry) -> Any:
        return codec.decode(self._get_blob(entry.blob) if entry.blob else bytes(entry.value))

    def find_acts(self, position: int, *, alone: bool, behind: int) -> list[Entry]:
        """Return the acts of one call: a call that is alone in its answer runs in the program itself."""
        if not alone:
            return self._branches.get(self.branch + position, [])
        acts = []
        for key, entry in self.line:
            if key > behind:
                if entry.kind == "do" and entry.name.startswith(_MODEL):
                    break
                acts.append(entry)
        return acts


def withdraw(kernel: Kernel, pid: str, turn: UnfinishedTurn) -> None:
    """Have the turn not continued, now or by a later kernel."""
    if turn.request_id:
        kernel.withdrawals.withdraw(kernel.processes[pid], turn.request_id)


def find_unfinished_turn(kernel: Kernel, pid: str) -> UnfinishedTurn | None:
    """Return the turn that a process is in the middle of; None where it is in none. Its program must not be known
    yet."""
    process, journal = kernel.processes.get(pid), kernel.journal
    if process is None or journal is None or not process.is_dormant:
        return None
    return turn_in(process.replay or {}, journal.store.get_blob, process.branches)


def withdraw_order(kernel: Kernel, pid: str) -> None:
    """Have an order about the conversation not continued, such as a summary that the process is in the middle of."""
    process, journal = kernel.processes.get(pid), kernel.journal
    if process is None or journal is None or not process.is_dormant:
        return
    entries = process.replay or {}
    received = _last(entries, "receive")
    if received <= _last(entries, _MILESTONE):
        return
    entry = entries[received]
    data = journal.store.get_blob(entry.blob) if entry.blob else bytes(entry.value)
    request_id, content = parse_message(codec.decode(data))
    if isinstance(content, dict) and COMPACT in content:
        kernel.withdrawals.withdraw(process, request_id)


def turn_in(entries: dict[Any, Entry], get_blob: GetBlob, branches: int) -> UnfinishedTurn | None:
    """Return the turn that the journaled acts of an agent process end in the middle of."""
    received, ended = _last(entries, "receive"), _last(entries, _MILESTONE)
    if received <= ended:
        return None
    if ended >= 0:
        branches = max(branches, int.from_bytes(entries[ended].hash[_NUMBER_BYTES:], "big"))
    rows = _Rows(entries, get_blob, received, branches)
    request_id, content = parse_message(rows.value(entries[received]))
    if content is None or isinstance(content, dict):  # a signal, or an order to revise the conversation
        return None
    messages, doubts = _messages(rows)
    question = message_of(content)
    submitted = _outcome(rows, [entry for _, entry in rows.line], "UserPromptSubmit")
    if submitted is not None:
        question = message_with(question, submitted)
    return UnfinishedTurn(request_id, question, tuple(messages), tuple(doubts))


def _outcome(rows: _Rows, acts: list[Entry], *events: str) -> HookOutcome | None:
    """Return what the hooks of a moment came to; None where none were run to their end."""
    names = [f"hook:{event}" for event in events]
    entry = next((act for act in acts if act.kind == "do" and act.name in names and act.done), None)
    return None if entry is None else outcome_of(rows.value(entry))


def _last(entries: dict[Any, Entry], kind: str) -> int:
    return max((key for key, entry in entries.items() if isinstance(key, int) and entry.kind == kind), default=-1)


def _messages(rows: _Rows) -> tuple[list[Message], list[ToolCall]]:
    messages: list[Message] = []
    doubts: list[ToolCall] = []
    summary_next = False
    for key, entry in rows.line:
        if entry.kind == "context":
            summary_next = True
        if (entry.kind, entry.name) == ("read", NOTICES):
            messages.append(notice_message(rows.value(entry)))
        stopped = _outcome(rows, [entry], "Stop", "SubagentStop")
        if stopped is not None and stopped.decision == "deny" and not stopped.ends_turn:
            messages.append(Message("user", going_on(stopped)))
        if entry.kind != "do" or not entry.name.startswith(_MODEL):
            continue
        if summary_next:
            summary_next = False
            continue
        if not entry.done or entry.error is not None:
            continue
        completion = msgspec.convert(rows.value(entry), Completion)
        messages.append(completion.message)
        calls = completion.tool_calls
        if calls:
            results = []
            for position, call in enumerate(calls):
                acts = rows.find_acts(position, alone=len(calls) == 1, behind=key)
                results.append(_result(rows, call, acts, doubts))
            messages.append(Message("tool", tool_results=tuple(results)))
            rows.branch += len(calls) if len(calls) > 1 else 0
    return messages, doubts


def _result(rows: _Rows, call: ToolCall, acts: list[Entry], doubts: list[ToolCall]) -> ToolResult:
    """Return the result of a call as the model would be told it: hooks may have added to it, or withheld it."""
    result = _find_result(rows, call, acts, doubts)
    if any(act.name in ("hook:PostToolUse", "hook:PostToolUseFailure") and not act.done for act in acts):
        return ToolResult(call.id, call.name, UNCHECKED, True, "cancelled")
    after = _outcome(rows, acts, "PostToolUse", "PostToolUseFailure")
    return result_with(result, _outcome(rows, acts, "PreToolUse"), after)


def _find_result(rows: _Rows, call: ToolCall, acts: list[Entry], doubts: list[ToolCall]) -> ToolResult:
    """Return the result that the journal has of a call, or a sentence in its place."""
    performed = next((act for act in acts if act.kind == "do" and act.name == f"{_TOOL}{call.name}"), None)
    if performed is not None and performed.done and performed.error is None:
        performed = next((act for act in acts if (act.kind, act.name) == ("read", OUTPUT)), performed)
    if performed is None:
        return ToolResult(call.id, call.name, NOT_RUN, True, "cancelled")
    if performed.error is not None:
        return ToolResult(call.id, call.name, str(error_from_row(performed.error)), True, "exec_failed")
    output = rows.value(performed) if performed.done else None
    if performed.done and output is not None:
        text = output if isinstance(output, (str, list)) else msgspec.json.encode(output, enc_hook=str).decode()
        return ToolResult(call.id, call.name, text)
    if not performed.idempotent or performed.done:  # a tool that is a part of the program has no value of its own
        doubts.append(call)
        return ToolResult(call.id, call.name, IN_DOUBT, True, "cancelled")
    return ToolResult(call.id, call.name, NOT_RUN, True, "cancelled")


def repair_messages(messages: list[Message], results: dict[str, ToolResult], sentence: str) -> list[Message]:
    """Return the messages with a result for every tool call: the one that is known, else an error with this
    sentence."""
    whole: list[Message] = []
    for index, message in enumerate(messages):
        whole.append(message)
        following = messages[index + 1] if index + 1 < len(messages) else None
        if not message.tool_calls or (following is not None and following.role == "tool"):
            continue
        whole.append(
            Message(
                "tool",
                tool_results=tuple(
                    results.get(call.id) or ToolResult(call.id, call.name, sentence, True, "cancelled")
                    for call in message.tool_calls
                ),
            )
        )
    return whole


# StoredAgent: the conversation of an agent process as its store has it, read without running anything.


class StoredAgent(NamedTuple):
    messages: tuple[Message, ...]
    metrics: Metrics
    unfinished: UnfinishedTurn | None


def read_agent(store: Store, pid: str, states: Iterable[State] = ()) -> StoredAgent:
    """Return the conversation of one process; `states` are filled with the facts that the layers above keep in the
    store."""
    snapshot = load_all(store)
    fold = Fold.load(snapshot.seq, snapshot.states, [*(type(state)() for state in Kernel().states.values()), *states])
    fold.add_all(store.read(after=snapshot.seq))
    process = fold.processes.get(pid)
    if process is None:
        raise ProcessError(f"{store.location} has no process {pid}", pid=pid)
    return _conversation(process, store)


def _conversation(process: ProcessState, store: Store) -> StoredAgent:
    messages: list[Message] = []
    metrics = Metrics()

    def value(entry: Entry) -> Any:
        return codec.decode(store.get_blob(entry.blob) if entry.blob else bytes(entry.value))

    def take(finished: Any) -> Metrics:
        messages.extend(Message.from_data(message) for message in finished["messages"])
        return msgspec.convert(finished["metrics"], Metrics)

    restored = store.get_blob(process.restored_blob) if process.restored_blob else bytes(process.restored)
    if codec.decode(restored) is not None:
        metrics = take(codec.decode(restored))
    for _, entry in sorted((key, entry) for key, entry in process.effects.items() if isinstance(key, int)):
        if entry.kind == "passage" and entry.name == "turn":
            metrics = take(value(entry))
        elif entry.kind == "receive":
            content = parse_message(value(entry))[1]
            if isinstance(content, dict) and REVISE in content:
                del messages[int(content[REVISE]["keep"]) :]
                messages += [Message.from_data(message) for message in content[REVISE]["add"]]
    return StoredAgent(tuple(messages), metrics, turn_in(process.effects, store.get_blob, process.first_branch))
