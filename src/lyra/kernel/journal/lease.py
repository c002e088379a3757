"""One kernel a store: taking the lease, keeping it, and noticing that it is gone.

The lease runs for a few seconds and is renewed while the kernel lives. A second kernel is refused. When the owner
was killed, its lease runs out; on the same machine the operating system already knows that it is dead, so the store
opens at once. A paused owner whose lease ran out is fenced: its next commit carries an old epoch and is refused.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lyra.core.faultpoint import point
from lyra.errors import Conflict, LyraError, StoreError, StoreFull
from lyra.store.protocol import Lease, Store

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.base.core import Core

__all__ = ["Ownership", "owner_is_dead", "owner_name"]

_POLL_S = 0.1


class Ownership:
    """This kernel's lease on its store."""

    __slots__ = ("_core", "_lease_s", "_timer", "lease", "store")

    def __init__(self, core: Core[Any], store: Store, *, lease_s: float) -> None:
        self._core = core
        self._lease_s = lease_s
        self._timer: Timer | None = None
        self.store = store
        self.lease: Lease | None = None

    async def take(self, owner: str) -> Lease:
        """Become the owner, or say who is. Waits only for a lease that may be nobody's any more."""
        clock = self._core.clock
        first_seen: float | None = None
        while True:
            try:
                self.lease = self.store.acquire(owner, now=clock.now(), ttl_s=self._lease_s)
                break
            except Conflict as held:
                holder, expires_at = str(held.fields.get("owner", "")), float(held.fields.get("expires_at", 0.0))
                if owner_is_dead(holder):
                    self.lease = self.store.acquire(owner, now=max(clock.now(), expires_at), ttl_s=self._lease_s)
                    break
                if lives_here(holder) or (first_seen is not None and expires_at != first_seen):
                    raise Conflict(
                        f"another kernel owns {self.store.location}",
                        hint="stop it, or wait until its lease ends",
                        owner=holder,
                        expires_at=expires_at,
                    ) from held
                first_seen = expires_at
                await self._core.outside_pause(_POLL_S)
        point("lease.acquired")
        return self.lease

    def keep(self) -> None:
        """Renew, and arrange to renew again."""
        clock = self._core.clock
        self._timer = clock.call_at(clock.monotonic() + self._lease_s / 3, self._renew)

    def _renew(self) -> None:
        if self._core.stopping or self.lease is None:
            return
        if self.store.inline:
            try:
                self.lease = self.store.renew(self.lease, now=self._core.clock.now(), ttl_s=self._lease_s)
            except StoreFull:
                pass  # the lease may outlast it; if not, whoever took over fences us
            except LyraError as error:
                self._core.abort(error)
                return
        else:
            done = self._core.writer.submit(
                self.store.renew, self.lease, now=self._core.clock.now(), ttl_s=self._lease_s
            )
            done.add_done_callback(self._core.abort_on_error)
        self.keep()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def give_up(self) -> None:
        if self.lease is not None:
            with suppress(StoreError):  # a full disk: it runs out by itself
                self.store.release(self.lease)
            self.lease = None


# ---------------------------------------------------------------------- who is who


def owner_name(nonce: str) -> str:
    """Names this OS process so that another one on the same machine can tell whether it still runs."""
    return "|".join((_machine(), str(os.getpid()), _started(os.getpid()), nonce))


def owner_is_dead(owner: str) -> bool:
    """True only when it certainly ran on this machine and certainly runs no more."""
    machine, pid, started = _parts(owner)
    return machine == _machine() and _started(pid) != started


def lives_here(owner: str) -> bool:
    machine, pid, started = _parts(owner)
    return machine == _machine() and _started(pid) == started


def _parts(owner: str) -> tuple[str, int, str]:
    machine, _, rest = owner.partition("|")
    pid, _, rest = rest.partition("|")
    return machine, int(pid) if pid.isdigit() else -1, rest.partition("|")[0]


def _machine() -> str:
    """This boot of this machine, and the pid namespace: a pid means something only inside both."""
    return f"{socket.gethostname()}/{_read('/proc/sys/kernel/random/boot_id')}/{_link('/proc/self/ns/pid')}"


def _started(pid: int) -> str:
    """When that process began, as the system counts; empty when there is none. Pids are reused, this pair is not."""
    if pid <= 0:
        return ""
    stat = _read(f"/proc/{pid}/stat")
    if stat:
        fields = stat.rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]  # killed and not yet collected by its parent is dead too
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return ""
    except PermissionError:
        return "running"
    return "running"


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
