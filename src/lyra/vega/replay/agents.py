"""What happened beside the program's own processes: what its agents were told and said, and the messages that wait.

Collected while a journal is read, each thing with the number of its row, so that a replay can say how all stood at any
of them. An agent goes by the pid that programs know, also after its supervisor has put another process in its place; an
agent with a memory has one process that holds the conversation, and begins anew with each of those.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from lyra.core import codec
from lyra.core.naming import VEGA_AGENT
from lyra.kernel.journal import rows
from lyra.store.protocol import Record
from lyra.vega.durable.durable_run import agent_from_row
from lyra.vega.machine.snapshot import value_from_data

_CALL: Final = "agent:"  # begins the name of the program that asks a model
_LATER: Final = 1 << 62


class Utterance(NamedTuple):
    """`who` is user, assistant, tool or error."""

    who: str
    text: str


class AgentView(NamedTuple):
    """An agent as it stood: `told` is the conversation that it has in mind, of one that remembers."""

    pid: str
    name: str
    settings: dict[str, Any]
    state: str
    told: list[Utterance]
    waiting: list[str]


class _Letter:
    """A message on its way: from the row that sent it to the one that took it."""

    __slots__ = ("data", "form", "sent", "taken")

    def __init__(self, sent: int, data: bytes, form: str) -> None:
        self.sent, self.data, self.form, self.taken = sent, data, form, _LATER


class AgentHistory:
    def __init__(self, get_blob: Callable[[str], bytes]) -> None:
        self._get_blob = get_blob
        self._agents: dict[str, tuple[str, Any]] = {}  # name and settings as data, by the pid that programs know
        self._fronts: dict[str, list[str]] = {}  # the processes that stood for each, oldest first
        self._stands: set[str] = set()  # the pids in `_fronts`, for a quick look-up
        self._holders: dict[str, str] = {}  # the conversation of a front
        self._calls: dict[str, list[str]] = {}  # processes that answer one thing, by the agent's name
        self._whose: dict[str, str] = {}  # by the pid of such a process: its agent, where `answer_for` said so
        self._began: dict[str, int] = {}
        self._ended: dict[str, tuple[int, str]] = {}
        self._mail: dict[str, dict[int, _Letter]] = {}
        self._told: dict[str, list[tuple[int, str, bytes]]] = {}
        self._asked: dict[tuple[str, Any], str] = {}  # what is under way in a conversation

    # ------------------------------------------------------------ while the journal is read

    def add(self, record: Record, row: Any) -> None:
        act = _ROWS.get(record.kind)
        if act is not None:
            act(self, record.seq, record.pid, row)

    def _on_created(self, seq: int, pid: str, row: rows.Created) -> None:
        self._began[pid] = seq
        agent = agent_from_row(pid, row, lambda: codec.decode(self._bytes(row.args, row.blob)))
        if agent is not None:
            known, name, settings = agent
            self._agents[known] = (name, settings)
            if row.program == VEGA_AGENT:
                self._fronts.setdefault(known, []).append(pid)
                self._stands.add(pid)
        elif row.program.startswith(_CALL):
            if row.parent in self._stands:
                self._holders[row.parent] = pid
                self._told[pid] = []
            else:
                name = row.program.removeprefix(_CALL).partition("~")[0]
                self._calls.setdefault(name, []).append(pid)

    def _on_terminated(self, seq: int, pid: str, row: rows.Terminated) -> None:
        self._ended[pid] = (seq, str(row.error.get("message")) if row.error is not None else row.reason)

    def _on_sent(self, seq: int, _: str, row: rows.Sent) -> None:
        if not row.dropped:
            self._mail.setdefault(row.to, {})[seq] = _Letter(seq, self._bytes(row.message, row.blob), row.form)

    def _on_received(self, seq: int, pid: str, row: rows.Received) -> None:
        letter = self._mail.get(pid, {}).get(row.message)
        if letter is not None:
            letter.taken = seq
            if pid in self._told:
                self._told[pid].append((seq, "user", letter.data))

    def _on_started(self, _: int, pid: str, row: rows.Started) -> None:
        if pid in self._told:
            self._asked[pid, row.key] = row.name

    def _on_finished(self, seq: int, pid: str, row: rows.Finished) -> None:
        what = self._asked.pop((pid, row.key), "").partition(":")[0]
        if not what:
            return
        if row.error is not None:
            self._told[pid].append((seq, "error", codec.encode(str(row.error.get("message", "")))))
        elif what in _SPEAKERS:
            self._told[pid].append((seq, _SPEAKERS[what], self._bytes(row.value, row.blob)))

    def _bytes(self, raw: rows.Raw, blob: str) -> bytes:
        return self._get_blob(blob) if blob else bytes(raw)

    def answer_for(self, pid: str, calls: Iterable[str]) -> None:
        """These processes are calls of one agent. Their rows have its name alone, which others may have too."""
        self._whose.update(dict.fromkeys(calls, pid))

    # ------------------------------------------------------------ how it stood

    def agents(self, seq: int) -> list[str]:
        """Return the pids of the agents that existed after the row `seq`, oldest first."""
        return [pid for pid in self._agents if self._began[pid] <= seq]

    def agent(self, pid: str, seq: int) -> AgentView | None:
        """Return an agent after the row `seq`; None where there is none of that pid."""
        if pid not in self._agents or self._began[pid] > seq:
            return None
        name, settings = self._agents[pid]
        fronts = [front for front in self._fronts.get(pid, ()) if self._began[front] <= seq]
        front = fronts[-1] if fronts else pid  # a guard may not have begun what it guards
        holder = self._holders.get(front)
        told = self._list_utterances(holder, seq)
        waiting = (
            [] if holder is None else [_content(codec.decode(letter.data)) for letter in self._letters(holder, seq)]
        )
        state = self._state(pid, front, told, seq)
        return AgentView(pid, name, value_from_data(settings), state, told, waiting)

    def _list_utterances(self, holder: str | None, seq: int) -> list[Utterance]:
        told = [] if holder is None else self._told[holder]
        return [_utterance(who, codec.decode(data)) for _, who, data in told[: bisect_right(told, seq, key=_seq_of)]]

    def _state(self, agent: str, front: str, told: list[Utterance], seq: int) -> str:
        ended, why = self._ended.get(front, (_LATER, ""))
        if ended <= seq:
            return f"ended: {why}"
        if told:
            return "waits" if told[-1].who in ("assistant", "error") else "answers"
        calls = self._calls_of(agent)
        count = sum(self._began[pid] <= seq < self._ended.get(pid, (_LATER, ""))[0] for pid in calls)
        return "waits" if not count else f"answers {count} calls" if count > 1 else "answers a call"

    def _calls_of(self, agent: str) -> list[str]:
        """Return the calls that an agent answers. One that the program never came to may be of any agent of its name:
        where there are more of them, none is said to answer it."""
        name = self._agents[agent][0]
        is_only = sum(other == name for other, _ in self._agents.values()) == 1
        unclaimed = agent if is_only else ""
        return [pid for pid in self._calls.get(name, ()) if self._whose.get(pid, unclaimed) == agent]

    def _letters(self, pid: str, seq: int) -> list[_Letter]:
        return [letter for letter in self._mail.get(pid, {}).values() if letter.sent <= seq < letter.taken]

    def inbox(self, pid: str, seq: int) -> list[tuple[str, Any]]:
        """Return the messages that wait for a process of the program, which its machine has not been given yet: the
        word of a signal of the kernel's, or "", and the message."""
        return [(letter.form, codec.decode(letter.data)) for letter in self._letters(pid, seq)]


def _seq_of(entry: tuple[int, str, bytes]) -> int:
    return entry[0]


def _content(message: Any) -> str:
    """Return a message to an agent, as text."""
    if isinstance(message, dict) and "content" in message:
        message = message["content"]
    if isinstance(message, list):
        return " ".join(str(part.get("text", part)) if isinstance(part, dict) else str(part) for part in message)
    return message if isinstance(message, str) else repr(message)


def _utterance(who: str, value: Any) -> Utterance:
    if who != "assistant":
        return Utterance(who, _content(value))
    message = value.get("message", value) if isinstance(value, dict) else {"content": value}
    text = _content(message.get("content") or "")
    calls = [f"{call.get('name')}({_arguments(call.get('arguments'))})" for call in message.get("tool_calls") or ()]
    return Utterance(who, "; ".join(part for part in (text, *calls) if part)) if calls else Utterance(who, text)


def _arguments(given: Any) -> str:
    return ", ".join(f"{name}: {value!r}" for name, value in given.items()) if isinstance(given, dict) else ""


_SPEAKERS: Final = {"model": "assistant", "tool": "tool"}
_ROWS: Final[dict[str, Callable[[AgentHistory, int, str, Any], None]]] = {
    "process.created": AgentHistory._on_created,
    "process.terminated": AgentHistory._on_terminated,
    "message.sent": AgentHistory._on_sent,
    "message.received": AgentHistory._on_received,
    "effect.started": AgentHistory._on_started,
    "effect.finished": AgentHistory._on_finished,
}
