"""Mailboxes: bounded, first in first out, and slow receivers slow their senders down.

A message goes straight to a process that is waiting for one, else into its inbox, else (inbox full) its sender
waits for room. The journal has one row for a message sent and one for a message received; between the two it is in
the inbox, also after a restart. A message for a process that has ended is dropped, and an Event says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from lyra.core import codec, faultpoint
from lyra.core.faultpoint import point
from lyra.core.limits import BLOB_INLINE_BYTES_MAX, MESSAGE_BYTES_MAX, WAITING_SENDERS_MAX
from lyra.errors import LimitExceeded, Overloaded, ProcessError
from lyra.kernel.base.waiting import resume, suspend
from lyra.kernel.journal import rows
from lyra.kernel.process.cut_short import cut_short
from lyra.kernel.process.links import form_of, read_signal
from lyra.kernel.process.process import Process

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core


class _Nothing:
    __slots__ = ()


NOTHING = _Nothing()  # no message came in time


class Mailboxes:
    def __init__(self, core: Core[Process], *, limit: int) -> None:
        self._core = core
        core.mailboxes = self
        self.limit = limit

    def full(self, process: Process) -> bool:
        return process.inbox is not None and len(process.inbox) >= self.limit

    def must_wait(self, process: Process) -> bool:
        """No room, or others were here first."""
        return bool(process.senders) or self.full(process)

    def deliver(
        self,
        process: Process,
        message: Any,
        *,
        sender: Process | None = None,
        key: rows.Key | None = None,
        digest: bytes = b"",
    ) -> int:
        """Hand over a message for which there is room; gives the journal seq of its row."""
        data = b"" if self._core.journal is None else self.encode(message)
        return self._hand_over(process, message, data, sender, key, digest)

    def encode(self, message: Any) -> bytes:
        """Return the message as its row holds it, so that one which has no such form fails in its sender's hands."""
        if self._core.journal is None:
            return b""
        data = codec.encode(message)
        if len(data) > MESSAGE_BYTES_MAX:
            raise LimitExceeded(f"a message of {len(data)} bytes; at most {MESSAGE_BYTES_MAX} fit")
        return data

    def _hand_over(
        self,
        process: Process,
        message: Any,
        data: bytes,
        sender: Process | None,
        key: rows.Key | None,
        digest: bytes,
    ) -> int:
        seq = 0
        taint = self._core.taint
        if taint.state.pids and sender is not None:
            taint.pass_on(sender.pid, process.pid, "a message from")
        journal = self._core.journal
        if journal is not None:
            form = "" if type(message) is dict else form_of(message)
            seq, message = self._write(process, form, data, sender, key, digest)
        elif self._core.listening:
            self._core.publish(process.pid, "message.sent", {"to": process.pid})
        if process.exit is not None:
            self.publish_dropped(process, 1, "process has ended")
            return seq
        if faultpoint.hook is not None:
            point("mailbox.delivered")
        receiver = process.receiver
        if process.inbox is None:
            process.inbox = deque()
        process.inbox.append((seq, message))
        if receiver is not None:
            process.receiver = None
            if receiver is process:
                process.wake()
            else:
                resume(receiver)
        return seq

    def _write(
        self,
        process: Process,
        form: str,
        data: bytes,
        sender: Process | None,
        key: rows.Key | None,
        digest: bytes,
    ) -> tuple[int, Any]:
        journal = self._core.journal
        assert journal is not None
        blob = self._core.put_blob_now(data) if len(data) > BLOB_INLINE_BYTES_MAX else ""
        row = rows.Sent(
            process.pid,
            rows.NIL if blob else rows.Raw(data),
            sender.pid if sender is not None else "",
            key,
            digest,
            # One that diverged may come back with the right program, and reads it then.
            process.exit is not None and process.exit.reason != "divergence",
            blob,
            form,
        )
        seq = journal.write(process.pid, "message.sent", rows.encode(row))
        # The receiver sees what the journal holds, now and after a restart.
        return seq, read_signal(form, data) if form else codec.decode(data)

    def publish_dropped(self, process: Process, count: int, why: str) -> None:
        self._core.publish(process.pid, "message.dropped", {"count": count, "reason": why})

    def take(self, process: Process, key: rows.Key) -> Any:
        """Return the first message in the inbox, and the row that says it was read."""
        assert process.inbox is not None
        seq, message = process.inbox.popleft()
        core = self._core
        if core.journal is not None:
            core.journal.write(process.pid, "message.received", rows.encode(rows.Received(key, seq)))
        elif core.listening:
            core.publish(process.pid, "message.received", {"key": key})
        if process.senders and len(process.inbox) < self.limit:  # room again: who waited longest continues
            self._next_sender(process)
        return message

    async def receive(self, process: Process, key: rows.Key | None) -> Any:
        """`ctx.receive()` handed to another task; the second of two has no key left."""
        if key is None or process.receiver is not None:
            raise ProcessError(f"process {process.pid} is receiving already", pid=process.pid)
        return await receive_within(process, key, None)

    def send_in_turn(
        self,
        process: Process,
        message: Any,
        *,
        sender: Process | None = None,
        key: rows.Key | None = None,
        digest: bytes = b"",
    ) -> WaitTurn:
        """Get in line for room. The mailbox itself takes the message when there is some, awaited or not."""
        if process.senders is None:
            process.senders = deque()
        if len(process.senders) >= WAITING_SENDERS_MAX:
            raise Overloaded(f"{len(process.senders)} messages wait for room in the mailbox already", pid=process.pid)
        turn = WaitTurn(process, message, self.encode(message), sender, key, digest)
        process.senders.append(turn)
        return turn

    def _next_sender(self, process: Process) -> None:
        assert process.senders is not None
        turn = process.senders.popleft()
        while type(turn) is RoomTurn:
            turn.give_room()
            if not process.senders:
                return
            turn = process.senders.popleft()
        turn.seq = self._hand_over(process, turn.message, turn.data, turn.sender, turn.key, turn.digest)
        turn.taken = True
        if turn.waker is not None:
            resume(turn.waker)

    def send(self, receiver: Process, message: Any) -> int | WaitTurn:
        """Deliver a message from outside any process, or put it in line for room: the seq of its row, or what gives
        it after a wait. Called in a process, it carries the mark of that one (`Taint`)."""
        core = self._core
        if core.taint.state.pids:
            core.taint.pass_on_from_here(receiver.pid, "a message from")
        if receiver.senders or (receiver.inbox and self.full(receiver)):  # no room, or other messages were here first
            return self.send_in_turn(receiver, message)
        data = b"" if core.journal is None else self.encode(message)
        return self._hand_over(receiver, message, data, None, None, b"")

    def close(self, process: Process) -> None:
        """Close the mailbox of a process that ended: say what was not read, and let waiting senders continue."""
        if process.inbox:
            self.publish_dropped(process, len(process.inbox), "process ended before it was read")
        process.inbox = None
        while process.senders:
            self._next_sender(process)
        process.senders = None


class RoomTurn:
    """A shard that waits for room in the line of local senders; it is told, and has its messages come then."""

    __slots__ = ("give_room", "waker")

    def __init__(self, give_room: Callable[[], None]) -> None:
        self.give_room = give_room
        self.waker: Any = None  # no task of this shard waits for it


class SenderTurn:
    """A message that waits for room; awaiting it waits until it was taken, and gives its row's seq."""

    __slots__ = ("data", "digest", "key", "sender", "seq", "taken", "to", "waker")

    def __init__(self, to: str, data: Any, sender: Process | None, key: rows.Key | None, digest: bytes) -> None:
        self.to = to
        self.data = data
        self.sender = sender
        self.key = key
        self.digest = digest
        self.seq = 0
        self.taken = False
        self.waker: Any = None

    def leave_line(self) -> None:
        """Take the message out of the line: its sender has given up."""
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, int]:
        return self._wait().__await__()

    async def _wait(self) -> int:
        if self.taken:
            return self.seq
        try:
            if self.sender is not None:
                await suspend(self.sender, self)
            else:
                self.waker = asyncio.get_running_loop().create_future()
                await self.waker
        except BaseException as error:
            self.leave_line()
            if self.sender is not None and self.key is not None:  # also where it was taken in the same moment
                cut_short(self.sender, self.key, error, form="send", name=self.to, digest=self.digest)
            raise
        return self.seq

    # As the list of waiters that `suspend` wants:

    def append(self, waker: Any) -> None:
        self.waker = waker

    def __contains__(self, waker: Any) -> bool:
        return self.waker is waker

    def remove(self, _waker: Any) -> None:
        self.waker = None


class WaitTurn(SenderTurn):
    """A message to a process of this kernel whose mailbox is full."""

    __slots__ = ("message", "receiver")

    def __init__(
        self,
        receiver: Process,
        message: Any,
        data: bytes,
        sender: Process | None,
        key: rows.Key | None,
        digest: bytes,
    ) -> None:
        super().__init__(receiver.pid, data, sender, key, digest)
        self.receiver = receiver
        self.message = message

    def leave_line(self) -> None:
        senders = self.receiver.senders
        if senders is not None and self in senders:
            senders.remove(self)


class Slot:
    """Makes `process.receiver` look like the list of waiters that `suspend` wants."""

    __slots__ = ("_process",)

    def __init__(self, process: Process) -> None:
        self._process = process

    def append(self, waker: Any) -> None:
        self._process.receiver = waker

    def __contains__(self, waker: Any) -> bool:
        return self._process.receiver is waker

    def remove(self, _waker: Any) -> None:
        self._process.receiver = None


async def receive_within(process: Process, key: rows.Key, timeout_s: float | None) -> Any:
    """Return the next message, or NOTHING when time runs out first."""
    core = process.core
    if process.inbox:
        return core.mailboxes.take(process, key)
    timer = None
    if timeout_s is not None:
        clock = core.clock

        def ring() -> None:
            waker, process.receiver = process.receiver, None
            if waker is not None:
                resume(waker)

        timer = clock.call_at(clock.monotonic() + timeout_s, ring)
    try:
        await suspend(process, Slot(process))
    except BaseException as error:
        cut_short(process, key, error, form="receive")
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if process.inbox:
        return core.mailboxes.take(process, key)
    if core.journal is not None:
        core.journal.write(process.pid, "message.received", rows.encode(rows.Received(key, 0)))
    return NOTHING
