"""What waits in the mailboxes, and what agents did, at any row of a run's journal.

A program's own process is run again by a replay; an agent's is not, so all there is of it is here: when it stood, what
it was asked, and what was said in its conversation. A message waits from the row that sends it to the row that takes
it; a process that has taken it may still keep it for a later `receive`, which its fiber knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core import codec
from lyra.kernel.links import Down, read_signal
from lyra.vega.runtime.convert import from_python
from lyra.vega.snapshot import value_from_data
from lyra.vega.values import Process

if TYPE_CHECKING:
    from lyra.vega.link import Linked

__all__ = ["AgentLife", "Post"]

_ASK: Final = "lyra.ask"


class Post:
    """Messages by receiver, in the order they were sent."""

    def __init__(self) -> None:
        self._sent: dict[str, list[tuple[int, str, bytes]]] = {}  # seq, form and data
        self._taken: dict[int, int] = {}  # by the row that sent it: the row that took it

    def sent(self, seq: int, to: str, form: str, data: bytes) -> None:
        self._sent.setdefault(to, []).append((seq, form, data))

    def taken(self, sent_seq: int, seq: int) -> None:
        self._taken[sent_seq] = seq

    def waiting(self, pid: str, upto: int, linked: Linked) -> list[Any]:
        """What was sent to a process and not taken when the row `upto` was written."""
        found = []
        for seq, form, data in self._sent.get(pid, ()):
            if seq > upto:
                break
            if self._taken.get(seq, upto + 1) > upto:
                found += _read(form, data, linked)
        return found

    def last_taken(self, pid: str, upto: int) -> tuple[int, str] | None:
        """The question that a conversation took last, and with which row."""
        taken = [
            (at, data)
            for seq, _, data in self._sent.get(pid, ())
            if (at := self._taken.get(seq, upto + 1)) <= upto and _ASK.encode() in data
        ]
        if not taken:
            return None
        at, data = max(taken)
        return at, str(codec.decode(data).get("content", ""))


def _read(form: str, data: bytes, linked: Linked) -> list[Any]:
    """A message as a program sees it; none of a signal that it does not see."""
    message = read_signal(form, data)
    if type(message) is Down:
        return [["DOWN", Process(message.pid), message.message or message.reason]]
    if isinstance(message, list) and len(message) == 2 and message[0] == "vega":
        return [value_from_data(message[1], linked)]
    if isinstance(message, dict) and _ASK in message:
        return [from_python(message.get("content"))]
    return [] if isinstance(message, msgspec.Struct) else [from_python(message)]


class AgentLife:
    """One agent by the pid that programs know: the processes that stood for it, and what was said in conversations."""

    def __init__(self, pid: str, name: str, born: int) -> None:
        self.pid = pid
        self.name = name
        self.born = born
        self.fronts: list[tuple[int, str]] = []  # when each began, and its pid
        self.talks: list[tuple[int, str]] = []  # conversations, the same
        self.calls: dict[str, int] = {}  # processes that answer one question, and when they began
        self._said: list[tuple[int, str, list[tuple[str, str]]]] = []  # when, in which conversation, who and what

    def say(self, seq: int, talk: str, messages: list[Any], *, is_whole: bool = False) -> None:
        """A turn of a conversation is over; `is_whole` where it tells all the turns so far."""
        if is_whole:
            messages = messages[sum(len(said) for _, pid, said in self._said if pid == talk) :]
        self._said.append((seq, talk, [(str(one["role"]), _text(one)) for one in messages]))

    def talk(self, upto: int) -> str:
        """The process that holds its conversation at a row; "" where there is none."""
        return next((pid for seq, pid in reversed(self.talks) if seq <= upto), "")

    def history(self, upto: int) -> list[tuple[str, str]]:
        """Who said what in the conversation of that moment."""
        talk = self.talk(upto)
        return [one for seq, pid, said in self._said if seq <= upto and pid == talk for one in said]

    def answered_at(self, upto: int) -> int:
        """The row of the last turn that was over."""
        return max((seq for seq, pid, _ in self._said if seq <= upto and pid == self.talk(upto)), default=0)

    def front(self, upto: int) -> str:
        return next((pid for seq, pid in reversed(self.fronts) if seq <= upto), "")


def _text(message: dict[str, Any]) -> str:
    """A message in words: its text, the tools that it calls, what they gave."""
    content = message.get("content") or ""
    parts = [content if isinstance(content, str) else str(content)]
    parts += [f"calls {call.get('name')}({call.get('arguments')})" for call in message.get("tool_calls") or ()]
    parts += [f"{result.get('output')}" for result in message.get("tool_results") or ()]
    return " ".join(part for part in parts if part)
