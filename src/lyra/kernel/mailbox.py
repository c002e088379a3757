"""Mailboxes: bounded, first in first out, and slow receivers slow their senders down.

A message goes straight to a process that is waiting for one, else into its inbox, else (inbox full) its sender waits for
room. The journal has one row for a message sent and one for a message received; between the two it is in the inbox, also after a
restart. A message for a process that has ended is dropped, and an Event says so.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from lyra.core import codec
from lyra.core.faultpoint import point
from lyra.core.limits import BLOB_INLINE_BYTES_MAX, MESSAGE_BYTES_MAX
from lyra.errors import LimitExceeded
from lyra.kernel import rows
from lyra.kernel.process import Process, resume, suspend

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

__all__ = ["NOTHING", "Mailboxes", "receive_within"]


class _Nothing:
    __slots__ = ()


NOTHING = _Nothing()  # no message came in time


class Mailboxes:
    __slots__ = ("_kernel", "limit")

    def __init__(self, kernel: Kernel, *, limit: int) -> None:
        self._kernel = kernel
        self.limit = limit

    def full(self, process: Process) -> bool:
        return process.receiver is None and process.inbox is not None and len(process.inbox) >= self.limit

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
        seq = 0
        journal = self._kernel.journal
        if journal is not None:
            seq, message = self._write(process, message, sender, key, digest)
        elif self._kernel.listening:
            self._kernel.publish(process.pid, "message.sent", {"to": process.pid})
        if process.exit is not None:
            self.dropped(process, 1, "process has ended")
            return seq
        point("mailbox.delivered")
        receiver = process.receiver
        if process.inbox is None:
            process.inbox = deque()
        process.inbox.append((seq, message))
        if receiver is not None:
            process.receiver = None
            resume(receiver)
        return seq

    def _write(
        self, process: Process, message: Any, sender: Process | None, key: rows.Key | None, digest: bytes
    ) -> tuple[int, Any]:
        journal = self._kernel.journal
        assert journal is not None
        data = codec.encode(message)
        if len(data) > MESSAGE_BYTES_MAX:
            raise LimitExceeded(f"a message of {len(data)} bytes; at most {MESSAGE_BYTES_MAX} fit")
        blob = journal.store.put_blob(data) if len(data) > BLOB_INLINE_BYTES_MAX and journal.store.inline else ""
        row = rows.Sent(
            process.pid,
            rows.NIL if blob else rows.Raw(data),
            sender.pid if sender is not None else "",
            key,
            digest,
            process.exit is not None,
            blob,
        )
        seq = journal.write(process.pid, "message.sent", rows.encode(row))
        # The receiver sees what the journal holds, now and after a restart.
        return seq, codec.decode(data)

    def dropped(self, process: Process, count: int, why: str) -> None:
        self._kernel.publish(process.pid, "message.dropped", {"count": count, "reason": why})

    def take(self, process: Process, key: rows.Key) -> Any:
        """The first message in the inbox, and the row that says it was read."""
        assert process.inbox is not None
        seq, message = process.inbox.popleft()
        kernel = self._kernel
        if kernel.journal is not None:
            kernel.journal.write(process.pid, "message.received", rows.encode(rows.Received(key, seq)))
        elif kernel.listening:
            kernel.publish(process.pid, "message.received", {"key": key})
        if process.senders:  # there is room again: the sender that waited longest goes on
            resume(process.senders.popleft())
        return message

    async def room(self, process: Process, sender: Process | None) -> None:
        """Wait until the receiver has room (or has ended, where everything fits and nothing arrives)."""
        while self.full(process) and process.exit is None:
            if process.senders is None:
                process.senders = deque()
            if sender is not None:
                await suspend(sender, process.senders)
            else:
                future = self._kernel.loop.create_future()
                process.senders.append(future)
                await future

    def close(self, process: Process) -> None:
        """The process ended: say what was not read, and let waiting senders go on."""
        if process.inbox:
            self.dropped(process, len(process.inbox), "process ended before it was read")
        process.inbox = None
        senders, process.senders = process.senders, None
        for waker in senders or ():
            resume(waker)


class Slot:
    """Makes `process.receiver` look like the list of waiters that `suspend` wants."""

    __slots__ = ("_process",)

    def __init__(self, process: Process) -> None:
        self._process = process

    def append(self, waker: Any) -> None:
        self._process.receiver = waker

    def __contains__(self, waker: Any) -> bool:
        return self._process.receiver is waker

    def remove(self, waker: Any) -> None:
        self._process.receiver = None


async def receive_within(process: Process, key: rows.Key, timeout_s: float | None) -> Any:
    """The next message, or NOTHING when time runs out first."""
    kernel = process.kernel
    if process.inbox:
        return kernel.mailboxes.take(process, key)
    timer = None
    if timeout_s is not None:
        clock = kernel.clock

        def ring() -> None:
            waker, process.receiver = process.receiver, None
            if waker is not None:
                resume(waker)

        timer = clock.call_at(clock.monotonic() + timeout_s, ring)
    try:
        await suspend(process, Slot(process))
    finally:
        if timer is not None:
            timer.cancel()
    if process.inbox:
        return kernel.mailboxes.take(process, key)
    if kernel.journal is not None:
        kernel.journal.write(process.pid, "message.received", rows.encode(rows.Received(key, 0)))
    return NOTHING
