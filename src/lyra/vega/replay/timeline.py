"""A run as the list of its steps: every effect of every process, in the order in which the program came to it.

A step is one effect with the outcome of it, or the start or the end of a process. Its `number` is its place in the
list.
The answer is kept as the machine gets it, so that `player` can give it again; `what` and `result` are texts for people,
cut where they are long.

`AgentHistory` and `Replies` have what happened beside the program's own processes: what its agents were told and said,
and the messages that wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core import codec
from lyra.core.naming import VEGA_AGENT
from lyra.errors import LyraError
from lyra.kernel.journal import rows
from lyra.observe.history.processes import sum_into
from lyra.observe.timeline.state import StoredRows
from lyra.observe.timeline.step import TravelStep, token_count
from lyra.observe.timeline.timeline import STEPS_MAX, RunTimeline
from lyra.store.protocol import Record, Store
from lyra.store.space import Space, spaces
from lyra.store.sqlite import SqliteStore
from lyra.vega.durable.durable_run import agent_from_row
from lyra.vega.durable.record import MAIN
from lyra.vega.durable.runs import DurableRun
from lyra.vega.machine.snapshot import value_from_data
from lyra.vega.values.values import Closure, ErrorValue, Fault, render_with_id

if TYPE_CHECKING:
    from lyra.kernel.journal import rows
    from lyra.vega.bytecode.program import Program


_CALL: Final = "agent:"  # begins the name of the program that asks a model
_AGENTS_LATER: Final = 1 << 62


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
        self.sent, self.data, self.form, self.taken = sent, data, form, _AGENTS_LATER


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
        act = _AGENTS_ROWS.get(record.kind)
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
        ended, why = self._ended.get(front, (_AGENTS_LATER, ""))
        if ended <= seq:
            return f"ended: {why}"
        if told:
            return "waits" if told[-1].who in ("assistant", "error") else "answers"
        calls = self._calls_of(agent)
        count = sum(self._began[pid] <= seq < self._ended.get(pid, (_AGENTS_LATER, ""))[0] for pid in calls)
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
_AGENTS_ROWS: Final[dict[str, Callable[[AgentHistory, int, str, Any], None]]] = {
    "process.created": AgentHistory._on_created,
    "process.terminated": AgentHistory._on_terminated,
    "message.sent": AgentHistory._on_sent,
    "message.received": AgentHistory._on_received,
    "effect.started": AgentHistory._on_started,
    "effect.finished": AgentHistory._on_finished,
}


START: Final = "start"
END: Final = "end"
_CUT: Final = 200
_LOOKED: Final = 4_000  # of a long text, before it is cut to what is shown


class JournaledAnswer(msgspec.Struct):
    """What an effect gave: messages first, then a value or an error, or that its time was over."""

    value: Any = None
    error: tuple[str, str] | None = None  # name and text
    thrown: ErrorValue | None = None  # an error that keeps the place it was thrown at
    heard: list[Any] = []
    expired: bool = False
    is_receive: bool = False  # it gave messages and nothing else
    is_last: bool = False  # the process ended with it


class TimelineStep(TravelStep):
    """An effect, numbered from 0. `kind` is as the machine names it, or START, or END; `seq` is the row that answered
    it, or a later one where the program came to it later; `agent` is whom it asks."""

    message: str = ""  # what it asks, whole
    target: str = ""  # the process that it asks
    file: str = ""
    line: int = 0
    keys: list[Any] = msgspec.field(default_factory=list)  # of the answers in the journal that it took
    children: list[str] = msgspec.field(default_factory=list)  # processes that answered it
    stream: str = ""  # the name of the stream that it opens, or is the first to read
    answer: JournaledAnswer | None = None
    version: int = 0  # which of the run's programs continues after it

    @property
    def is_effect(self) -> bool:
        return self.kind not in (START, END)

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else ""

    def to_data(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "pid": self.pid,
            "kind": self.kind,
            "what": self.what,
            "agent": self.agent or None,
            "file": self.file,
            "line": self.line,
            "result": self.result,
            "error": self.error or None,
            "at": self.ended_at,
            "cost_usd": self.micro_usd / 1_000_000,
            "input_tokens": self.usage.get("input_tokens", 0),
            "output_tokens": self.usage.get("output_tokens", 0),
        }


class ProcessFacts(msgspec.Struct):
    """One process of the program: what it runs, who started it, and what it began with."""

    pid: str
    function: str
    parent: str = ""
    seed: Any = None  # as the journal has it; None for the main one
    ended: str = ""  # why, if it has
    known_as: str = ""


class Timeline:
    """`steps` in order; `processes` by pid; `waits` says what each process that has not ended waits for."""

    def __init__(
        self,
        run_id: str,
        program: Program,
        sources: dict[str, str],
        steps: list[TimelineStep],
        processes: dict[str, ProcessFacts],
    ) -> None:
        self.run_id = run_id
        self.program = program
        self.sources = sources
        self.versions = [(program, sources)]  # oldest first, where another one was put in force
        self.steps = steps
        self.processes = processes
        self.agents: dict[str, str] = {}  # names by pid
        self.agent_history = AgentHistory(_nothing)  # what agents were told and said
        self.replies = Replies(_nothing)  # and where that is written
        self.waits: dict[str, str] = {}
        self.notes: list[str] = []
        self.state = ""
        self._total: list[dict[str, int]] = [{}]
        self._printed: list[int] = []
        for number, step in enumerate(steps):
            step.number = number
            self._total.append(dict(self._total[-1]) if step.usage else self._total[-1])
            sum_into(self._total[-1], step.usage)
            if step.kind == "print":
                self._printed.append(number)

    def __len__(self) -> int:
        return len(self.steps)

    def sum_costs(self, position: int) -> dict[str, int]:
        """Return what all steps before a position cost."""
        return self._total[min(position, len(self.steps))]

    def output(self, position: int, limit: int | None = None) -> list[str]:
        """Return what was printed before a position; the last `limit` lines of it."""
        upto = bisect_right(self._printed, position - 1)
        first = 0 if limit is None else max(0, upto - limit)
        return [self.steps[number].message for number in self._printed[first:upto]]

    def step(self, number: int) -> TimelineStep | None:
        return self.steps[number] if 0 <= number < len(self.steps) else None

    def line(self, file: str, number: int, version: int = -1) -> str:
        """Return a line of the sources that the run keeps; "" for one that is not there."""
        lines = self.versions[version][1].get(file, "").split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""


def cost_words(usage: dict[str, int]) -> str:
    """Return a usage in words: `$0.0100, 120 tokens, 2 calls`."""
    micro_usd, calls = usage.get("usd", 0), usage.get("llm_calls", 0)
    return f"${micro_usd / 1_000_000:.4f}, {token_count(usage)} tokens, {calls} calls"


def _nothing(digest: str) -> bytes:
    raise KeyError(digest)


def brief(value: Any, limit: int = _CUT, program: Program | None = None) -> str:
    """Return a value for a person, on one line, never longer than `limit`."""
    if type(value) is str:
        kept = value[:_LOOKED].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        text = f'"{kept}"' if len(value) <= _LOOKED else f'"{kept}…'
    elif type(value) is Closure and program is not None and value.function < len(program.functions):
        text = f"<function {program.functions[value.function].name}>"
    elif type(value) is ErrorValue:
        text = f"{value.name}: {value.text[:_LOOKED]}"
    elif type(value) is list:
        text = _render_items(
            [(None, item) for item in value[:64]], "[]", limit, program, is_more=len(value) > _SHOWN_ITEMS
        )
    elif type(value) is dict:
        first = [pair for pair, _ in zip(value.items(), range(64), strict=False)]
        text = _render_items(first, "{}", limit, program, is_more=len(value) > _SHOWN_ITEMS)
    else:
        try:
            text = render_with_id(value)[:_LOOKED]
        except Fault:
            text = "<a value too large to show>"
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


_SHOWN_ITEMS: Final = 64


def _render_items(
    items: list[tuple[Any, Any]], ends: str, limit: int, program: Program | None, *, is_more: bool, depth: int = 0
) -> str:
    """Return the first items of a list or a map. Nested ones only so deep, and no further than fits."""
    parts: list[str] = []
    length = 0
    for key, item in items:
        if type(item) in (list, dict) and (depth >= 3 or not item):
            text = "[…]" if type(item) is list and item else "{…}" if item else "[]" if type(item) is list else "{}"
        elif type(item) is list:
            pairs = [(None, value) for value in item[:_SHOWN_ITEMS]]
            text = _render_items(pairs, "[]", limit, program, is_more=len(item) > _SHOWN_ITEMS, depth=depth + 1)
        elif type(item) is dict:
            some = [pair for pair, _ in zip(item.items(), range(_SHOWN_ITEMS), strict=False)]
            text = _render_items(some, "{}", limit, program, is_more=len(item) > _SHOWN_ITEMS, depth=depth + 1)
        else:
            text = brief(item, limit, program)
        parts.append(text if key is None else f"{brief(key, 40) if type(key) is not str else key}: {text}")
        length += len(parts[-1]) + 2
        if length > limit:
            is_more = True
            break
    return f"{ends[0]}{', '.join(parts)}{', …' if is_more else ''}{ends[1]}"


# The reply of a call without memory is what a model said last to its own process. A call with memory is a turn: it
# begins when the conversation takes the question, by caller and key or by the stream's name, and ends when it takes the
# next. So it does not matter how many calls were under way at the same time.

_MODEL: Final = "model:"
_ASK: Final = "lyra.ask"  # the key of a question to a conversation
_LATER: Final = 1 << 62


def agent_of(effect: str) -> str:
    """Return the agent in the name of a model's effect, `model:NAME:provider/model`; a model's name may have colons
    too."""
    return effect.removeprefix(_MODEL).partition(":")[0] if effect.startswith(_MODEL) else ""


class Replies:
    def __init__(self, get_blob: Callable[[str], bytes]) -> None:
        self._get_blob = get_blob
        self._asked: dict[tuple[str, Any], str] = {}  # agents, by the process and key of what its model is asked
        self._reply_rows: dict[str, list[tuple[int, str]]] = {}  # by process: the row of each reply, and whose it is
        self._questions: dict[int, str] = {}  # on their way to a conversation, by the row that sent them
        self._turns: dict[str, list[tuple[int, str]]] = {}  # by conversation: from which row on, to which question
        self._places: dict[str, list[tuple[str, int, int]]] = {}  # by question: conversation, first row, row behind

    # ------------------------------------------------------------ while the journal is read

    def add(self, record: Record, row: Any) -> None:
        act = _ROWS.get(record.kind)
        if act is not None:
            act(self, record.seq, record.pid, row)

    def _on_started(self, _: int, pid: str, row: rows.Started) -> None:
        if row.name.startswith(_MODEL):
            self._asked[pid, row.key] = agent_of(row.name)

    def _on_finished(self, seq: int, pid: str, row: rows.Finished) -> None:
        agent = self._asked.pop((pid, row.key), None)
        if agent is not None:
            self._reply_rows.setdefault(pid, []).append((seq, agent))

    def _on_sent(self, seq: int, _: str, row: rows.Sent) -> None:
        data = self._get_blob(row.blob) if row.blob else bytes(row.message)
        if _ASK.encode() in data:
            message = codec.decode(data)
            if isinstance(message, dict) and isinstance(message.get(_ASK), str):
                self._questions[seq] = message[_ASK]

    def _on_received(self, seq: int, pid: str, row: rows.Received) -> None:
        question = self._questions.pop(row.message, None)
        if question is None:
            return
        turns = self._turns.setdefault(pid, [])
        if turns:
            self._places[turns[-1][1]][-1] = (pid, turns[-1][0], seq)
        turns.append((seq, question))
        self._places.setdefault(question, []).append((pid, seq, _LATER))

    # ------------------------------------------------------------ questions

    def question_at(self, pid: str, seq: int) -> str:
        """Return what a conversation was answering when it wrote a row; "" for one that holds none."""
        turns = self._turns.get(pid, [])
        index = bisect_right(turns, seq, key=lambda turn: turn[0])
        return turns[index - 1][1] if index else ""

    def answering(self, question: str) -> str:
        """Return the conversation that has a question to answer; "" where none is at it."""
        places = self._places.get(question)
        return places[-1][0] if places and places[-1][2] == _LATER else ""

    def row_of(self, step: TimelineStep) -> int | None:
        """Return the row of the reply to a step; None where no model answered it."""
        for pid, first, behind in reversed([place for name in questions(step) for place in self._places.get(name, ())]):
            reply = self._last(pid, step.agent, first, behind)
            if reply is not None:
                return reply
        replies = (self._last(child, step.agent, 0, _LATER) for child in reversed(step.children))
        return next((reply for reply in replies if reply is not None), None)

    def _last(self, pid: str, agent: str, first: int, behind: int) -> int | None:
        replies = self._reply_rows.get(pid, ())
        return next((seq for seq, whose in reversed(replies) if whose == agent and first < seq < behind), None)


def questions(step: TimelineStep) -> Iterator[str]:
    """Yield the names under which a step may have asked a conversation."""
    if step.stream:
        yield f"~{step.stream}"
    for key in step.keys:
        yield f"~{step.pid}:{key}"


_ROWS: Final[dict[str, Callable[[Replies, int, str, Any], None]]] = {
    "effect.started": Replies._on_started,
    "effect.finished": Replies._on_finished,
    "message.sent": Replies._on_sent,
    "message.received": Replies._on_received,
}


_SAVED: Final = {"value", "heap"}  # the keys of a value as `machine.snapshot` saves it
_MESSAGE: Final = "vega"  # the first of the two parts of a message from one process to another
_ANY: Final = 1 << 30  # functions: which one it is does not matter for its text
_SHOWN_CHARS: Final = 20_000


class VegaRows(StoredRows):
    """The journal of a run, with the values of its program as a person reads them."""

    def readable(self, value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == _SAVED:
            return _render_saved(value)
        if isinstance(value, list):
            if len(value) == 2 and value[0] == _MESSAGE:
                return self.readable(value[1])
            return [_render_saved(item) if isinstance(item, dict) and item.keys() == _SAVED else item for item in value]
        return value


def _render_saved(saved: dict[str, Any]) -> Any:
    """Return a value as it is saved: itself where it is plain, else its text."""
    try:
        value = value_from_data(saved, functions=_ANY)
    except (LyraError, ValueError, LookupError, TypeError):  # of another version
        return saved
    return value if value is None or isinstance(value, (bool, int, float, str)) else brief(value, _SHOWN_CHARS)


def run_names(store: Store | None) -> list[str]:
    """Return the names of all journals beside the store's own, oldest first; some may belong to no run."""
    return spaces(store) if isinstance(store, SqliteStore) else []


def run_in_store(store: Store, name: str) -> DurableRun | None:
    """Return the run of this name, over its own connection (`run.space`); None where there is none that has begun."""
    if not isinstance(store, SqliteStore) or name not in spaces(store):
        return None
    space = Space(store.location, name, make=False, writes=False)
    try:
        run = DurableRun(space)
        if space.last_seq() and run.has_begun:
            return run
    except BaseException:
        space.close()
        raise
    space.close()
    return None


def timeline_of_run(run: DurableRun, *, steps_max: int = STEPS_MAX) -> RunTimeline:
    """Return the steps of the run's journal."""
    return RunTimeline(VegaRows(run.space), MAIN, steps_max=steps_max, run_id=run.id)
