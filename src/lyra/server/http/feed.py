"""The feed of all events of the kernel, for any number of readers: one log that they share.

It listens to the kernel only while it has readers, and for a while after the last one has left, so that a reader that
lost its connection misses nothing. A reader sees the events of its user; the operator sees all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from typing import TYPE_CHECKING, Final

from lyra.core.limits import SERVER_FEED_BYTES_MAX, SERVER_FEED_EVENTS_MAX
from lyra.server.http.sse import LoggedEvent, SseLog
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.core.event import Event
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


_LINGER_S: Final = 60.0


class KernelFeed:
    """See the module."""

    __slots__ = ("_kernel", "_readers", "_stop", "_timer", "log")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.log = SseLog(kernel.entropy.text(8), events_max=SERVER_FEED_EVENTS_MAX, bytes_max=SERVER_FEED_BYTES_MAX)
        self._readers = 0
        self._stop: Callable[[], None] | None = None
        self._timer: Timer | None = None

    async def read(
        self, caller: Caller, event_id: str, kinds: Collection[str], pid: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """The events of the caller from now on, or after the one of that id; of some kinds, or of one process."""

        def wanted(logged: LoggedEvent) -> bool:
            of_kind = not kinds or logged.word in kinds
            return of_kind and (not pid or logged.pid == pid) and caller.owns(logged.owner)

        name, _, number = event_id.rpartition(".")
        known = name == self.log.name and number.isdigit() and len(number) < 16 and int(number) <= self.log.last
        after = int(number) if known else self.log.last
        self._enter()
        try:
            yield b": open\n\n"
            async for piece in self.log.read(after, wanted=wanted):
                yield piece
        finally:
            self._leave()

    def _enter(self) -> None:
        self._readers += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stop is None:
            self._stop = self._kernel.on_event(self._hear)

    def _leave(self) -> None:
        self._readers -= 1
        if self._readers == 0 and self._timer is None:
            clock = self._kernel.clock
            self._timer = clock.call_at(clock.monotonic() + _LINGER_S, self._stop_listening)

    def _stop_listening(self) -> None:
        self._timer = None
        if self._stop is not None and not self._readers:
            self._stop()
            self._stop = None

    def _hear(self, event: Event) -> None:
        data = {"seq": event.seq, "time": event.time, "pid": event.pid, "kind": event.kind, "data": event.data}
        user = event.data.get("user_id")
        owner = user if isinstance(user, str) and user else owner_if_known(self._kernel, event.pid) if event.pid else ""
        self.log.append(event.kind, data, owner=owner, pid=event.pid)

    def close(self) -> None:
        """End all readers."""
        self.log.end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stop is not None:
            self._stop()
            self._stop = None
