"""Messages between shards, and how a full mailbox abroad slows its senders down.

    sender      sends up to `MESSAGES_ON_TRUST` messages to one address; half way it posts `waits`, and beyond it a
                message stands in line here, like that of a local sender at a full mailbox, until `room` comes
    receiver    `waits` stands in the line of the mailbox among the local senders; when its turn comes it is answered
                with `room`, at once where there is room

So a shard has at most that many messages in a mailbox abroad beyond its limit, whatever crashes, and a mailbox that is
full holds up no message to another one. A message whose receiver is not there is dropped with an Event, as
between processes of one shard. Clients of the cluster, who have no line, are refused at a full mailbox.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lyra.core import codec
from lyra.core.limits import MESSAGES_ON_TRUST, WAITING_SENDERS_MAX
from lyra.errors import LyraError, Overloaded, ProcessError
from lyra.kernel.base.acting import acting
from lyra.kernel.base.waiting import NO_WAIT, resume
from lyra.kernel.journal import rows
from lyra.kernel.process.links import form_of, read_signal
from lyra.kernel.process.mailbox import RoomTurn, SenderTurn
from lyra.kernel.process.process import Process
from lyra.kernel.remote.part import RemotePart, drop_item, read_tables, split_address

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote

_COUNTED_MAX = 10_000  # addresses whose messages are counted; the oldest begin anew


class Messages(RemotePart):
    """See the module."""

    NAME: ClassVar[str] = "messages"
    SENDS: ClassVar[frozenset[str]] = frozenset({"message", "waits", "room"})
    KEEPS: ClassVar[frozenset[str]] = frozenset({"waits", "room"})

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._mailboxes = parts.mailboxes
        self._remote = remote
        self.asked: dict[str, Any] = {}  # addresses that were asked for room and have not answered
        self.stalled: dict[str, dict[str, Any]] = {}  # pid or name here → shards that wait for room there
        self._trust = max(2, min(MESSAGES_ON_TRUST, parts.mailboxes.limit))
        self._begin_at = 0  # what an address is counted from
        self._sent: dict[str, int] = {}  # address → messages since it had room
        self._lines: dict[str, deque[PostTurn]] = {}  # address → messages that wait for room there
        parts.core.after_abort.append(self._let_go)
        parts.core.subsystems.stop.append(self._stop)

    # ------------------------------------------------------------------ what it remembers

    def apply_posted(self, pid: str, shard: str, what: str, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        if what == "waits":
            self.asked[f"{shard}/{data['to']}"] = None
        elif what == "room":
            drop_item(self.stalled, data["of"], shard)

    def apply_taken(self, shard: str, what: str, data: dict[str, Any]) -> None:
        if what == "waits":
            self.stalled.setdefault(data["to"], {})[shard] = None
        elif what == "room":
            self.asked.pop(f"{shard}/{data['of']}", None)

    def dump(self) -> Any:
        return {"asked": self.asked, "stalled": self.stalled}

    def load(self, data: Any) -> None:
        tables = read_tables(data, ("asked", "stalled"))
        self.asked, self.stalled = tables["asked"], tables["stalled"]

    def on_restored(self) -> None:
        """Ask for room with the first message to each address, since how many went before is not known; have the
        shards that wait for room stand in line again."""
        if self._remote.state.numbers:
            self._begin_at = self._trust // 2 - 1
        self._sent = dict.fromkeys(self.asked, self._trust)
        for word, shards in [(word, list(shards)) for word, shards in self.stalled.items()]:
            for shard in shards:
                self._stand_in_line(shard, word)

    # ------------------------------------------------------------------ sending

    def send(self, process: Process, key: rows.Key, digest: bytes, address: str, message: Any) -> Awaitable[Any]:
        """Send a message of a process to an address abroad; the row is the answer that a replay finds."""
        turn = self._make_turn(address, message, process, key, digest)
        if self._must_wait(address):
            self._get_in_line(turn)
            return turn
        self._post(turn)
        return NO_WAIT

    def send_from_outside(self, address: str, message: Any) -> int | PostTurn:
        """Send a message that no program sends; gives the row of its post, or what gives it after a wait for room."""
        turn = self._make_turn(address, message, None)
        if self._must_wait(address):
            self._get_in_line(turn)
            return turn
        return self._post(turn)

    def tell(self, address: str, signal: Any, *, pid: str = "") -> None:
        """Send a message of the kernel itself, which waits for nothing."""
        shard, to = split_address(address)
        data = {"to": to, "form": form_of(signal), "message": self._mailboxes.encode(signal)}
        self._remote.post(shard, "message", data, pid=pid, refusable=False)

    def _make_turn(
        self, address: str, message: Any, sender: Process | None, key: rows.Key | None = None, digest: bytes = b""
    ) -> PostTurn:
        pid = split_address(address)[1]
        data: dict[str, Any] = {"to": pid, "form": form_of(message), "message": self._mailboxes.encode(message)}
        giver = sender if sender is not None else acting()
        if giver is not None and giver.core is self._core:
            data |= {"from": self._remote.address_of(giver.known_as), **mark_of(giver)}
        return PostTurn(self, address, data, sender, key, digest)

    def _must_wait(self, address: str) -> bool:
        return address in self._lines or self._sent.get(address, self._begin_at) >= self._trust

    def _get_in_line(self, turn: PostTurn) -> None:
        line = self._lines.setdefault(turn.to, deque())
        if len(line) >= WAITING_SENDERS_MAX:
            raise Overloaded(f"{len(line)} messages wait for room at {turn.to} already", pid=turn.to)
        line.append(turn)

    def _post(self, turn: PostTurn, *, refusable: bool = True) -> int:
        sender, address = turn.sender, turn.to
        pid = "" if sender is None else sender.pid
        turn.seq = self._remote.post(turn.shard, "message", turn.data, pid=pid, refusable=refusable)
        turn.taken = True
        if sender is not None and turn.key is not None and sender.exit is None:
            note_done(sender, turn.key, "send", address, turn.digest)
        sent = self._sent.pop(address, self._begin_at) + 1
        self._sent[address] = sent
        if sent >= self._trust // 2 and address not in self.asked:
            self._remote.post(turn.shard, "waits", {"to": turn.data["to"]}, refusable=False)
        elif len(self._sent) > _COUNTED_MAX:
            del self._sent[next(iter(self._sent))]
        return turn.seq

    def leave_line(self, turn: PostTurn) -> None:
        """Take out a message whose sender has given up."""
        line = self._lines.get(turn.to)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._lines[turn.to]

    def _take_room(self, address: str) -> None:
        self._sent[address] = 0
        line = self._lines.get(address)
        while line and self._sent[address] < self._trust:
            turn = line.popleft()
            if not line:
                del self._lines[address]
            self._post(turn, refusable=False)
            if turn.waker is not None:
                resume(turn.waker)

    def _let_go(self, error: LyraError) -> None:
        """Tell callers outside that their messages find no room in this life of the kernel."""
        for line in self._lines.values():
            for turn in line:
                if isinstance(turn.waker, asyncio.Future):
                    resume(turn.waker, error)

    def _stop(self) -> None:
        self._let_go(ProcessError("the kernel is closed, and the message found no room", hint="open the store again"))

    # ------------------------------------------------------------------ what arrives

    def check_room(self, word: str) -> None:
        """Refuse the message of a client where its receiver has no room."""
        process = self._core.lookup(word)
        if process is not None and self._mailboxes.must_wait(process):
            raise Overloaded(f"the mailbox of {word} is full", hint="send it again later", pid=word)

    def find_receiver(self, what: str, data: dict[str, Any]) -> str:
        return str(data["to"]) if what == "message" else ""

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002 (one signature)
        if what == "message":
            self._take_message(sender, data)
        elif what == "waits":
            self._stand_in_line(sender, data["to"])
        else:
            self._take_room(f"{sender}/{data['of']}")

    def _take_message(self, sender: str, data: dict[str, Any]) -> None:
        process = self._core.lookup(data["to"])
        if process is None:
            self._core.publish(data["to"], "message.dropped", {"count": 1, "reason": "no such process"})
            return
        take_mark(process, data, "a message from", data.get("from", sender))
        self._mailboxes.deliver(process, read_signal(data["form"], data["message"]))

    def _stand_in_line(self, shard: str, word: str) -> None:
        process = self._core.lookup(word)
        if process is None or not self._mailboxes.must_wait(process):
            self._give_room(shard, word)
            return
        if process.senders is None:
            process.senders = deque()
        process.senders.append(RoomTurn(lambda: self._give_room(shard, word)))

    def _give_room(self, shard: str, word: str) -> None:
        if not self._core.stopping:
            self._remote.post(shard, "room", {"of": word}, refusable=False)


class PostTurn(SenderTurn):
    """A message on its way abroad; awaiting it waits until there was room for it, and gives the row of its post."""

    __slots__ = ("_messages", "shard")

    def __init__(
        self,
        messages: Messages,
        to: str,
        data: dict[str, Any],
        sender: Process | None,
        key: rows.Key | None,
        digest: bytes,
    ) -> None:
        super().__init__(to, data, sender, key, digest)
        self._messages = messages
        self.shard = split_address(to)[0]

    def leave_line(self) -> None:
        self._messages.leave_line(self)


def mark_of(process: Process) -> dict[str, Any]:
    """Return what a post says of the mark of the process whose text it carries."""
    labels = process.core.taint.state
    return {"mark": {"own": process.pid in labels.own}} if process.pid in labels.pids else {}


def take_mark(process: Process, data: Mapping[str, Any], how: str, address: str) -> None:
    """Mark a process that gets text of a marked one abroad."""
    mark = data.get("mark")
    if mark is not None:
        process.core.taint.mark(process.pid, f"{how} {address}", own=mark.get("own") is True)


def note_done(process: Process, key: rows.Key, form: str, name: str, digest: bytes, value: Any = None) -> None:
    """Write the answer of a call that posted something, in the batch of the post."""
    journal = process.core.journal
    assert journal is not None
    row = rows.Finished(key, rows.Raw(codec.encode(value)), name=name, hash=digest, form=form)
    journal.write(process.pid, "effect.finished", rows.encode(row))
