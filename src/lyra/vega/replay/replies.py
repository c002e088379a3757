"""Which row of a journal has what a model said to a call.

A call without memory is answered by a process of its own, and its reply is what a model said to that process last. A
call of an agent that remembers is a turn of its conversation: it begins when the conversation takes the question, which
goes by the caller and its key, or by the stream's name, and ends when it takes the next one. So it does not matter how
many calls were under way at the same time, or who was faster.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from lyra.core import codec

if TYPE_CHECKING:
    from lyra.kernel.journal import rows
    from lyra.store.protocol import Record
    from lyra.vega.replay.timeline import TimelineStep


_MODEL: Final = "model:"
_ASK: Final = "lyra.ask"  # the key of a question to a conversation
_LATER: Final = 1 << 62


def agent_of(effect: str) -> str:
    """The agent in the name of a model's effect, `model:NAME:provider/model`; a model's name may have colons too."""
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

    def _started(self, _: int, pid: str, row: rows.Started) -> None:
        if row.name.startswith(_MODEL):
            self._asked[pid, row.key] = agent_of(row.name)

    def _finished(self, seq: int, pid: str, row: rows.Finished) -> None:
        agent = self._asked.pop((pid, row.key), None)
        if agent is not None:
            self._reply_rows.setdefault(pid, []).append((seq, agent))

    def _sent(self, seq: int, _: str, row: rows.Sent) -> None:
        data = self._get_blob(row.blob) if row.blob else bytes(row.message)
        if _ASK.encode() in data:
            message = codec.decode(data)
            if isinstance(message, dict) and isinstance(message.get(_ASK), str):
                self._questions[seq] = message[_ASK]

    def _received(self, seq: int, pid: str, row: rows.Received) -> None:
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
        """What a conversation was answering when it wrote a row; "" for who holds none."""
        turns = self._turns.get(pid, [])
        index = bisect_right(turns, seq, key=lambda turn: turn[0])
        return turns[index - 1][1] if index else ""

    def answering(self, question: str) -> str:
        """The conversation that has a question to answer; "" where none is at it."""
        places = self._places.get(question)
        return places[-1][0] if places and places[-1][2] == _LATER else ""

    def of(self, step: TimelineStep) -> int | None:
        """The row of the reply to a step; None where no model answered it."""
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
    """The names under which a step may have asked a conversation."""
    if step.stream:
        yield f"~{step.stream}"
    for key in step.keys:
        yield f"~{step.pid}:{key}"


_ROWS: Final[dict[str, Callable[[Replies, int, str, Any], None]]] = {
    "effect.started": Replies._started,
    "effect.finished": Replies._finished,
    "message.sent": Replies._sent,
    "message.received": Replies._received,
}
