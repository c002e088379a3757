"""One kernel a store: taking the lease, keeping it, and noticing that it is gone.

The lease runs for a few seconds and is renewed while the kernel lives. A second kernel is refused. When the owner
was killed, its lease runs out; on the same machine the operating system already knows that it is dead, so the store
opens at once. A paused owner whose lease ran out is fenced: its next commit carries an old epoch and is refused, and
the door lets no effect begin before a renewal has shown that the store is still this kernel's (`Core.lease_until`).

Clocks. A store with its own clock (PostgreSQL) judges leases by it, any other by the kernel's wall clock. Either
may be wrong, so a lease is over, too, once it was watched for as long as its owner may go without renewing it; how long
that is stands in the owner's name.
"""

from __future__ import annotations

import logging
import math
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from lyra.core.clock import SystemClock, Timer
from lyra.core.faultpoint import point
from lyra.core.ids import unique_id
from lyra.errors import Conflict, LyraError, StoreError, StoreFull
from lyra.kernel.base.waiting import resume, suspend
from lyra.store.protocol import Lease, Store, refuse_moved

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from lyra.kernel.base.core import Core
    from lyra.store.signing import SigningStore


_POLL_S: Final = 0.1
_log: Final = logging.getLogger("lyra.kernel")


class Ownership:
    """This kernel's lease on its store."""

    def __init__(self, core: Core[Any], store: Store, *, lease_s: float, wait_s: float) -> None:
        self._core = core
        self._lease_s = lease_s
        self._wait_s = wait_s
        self._timer: Timer | None = None
        self._is_renewing = False  # in the writer's thread
        self._unconfirmed: list[Any] = []  # processes at the door that wait for a renewal
        self.store = store
        self.lease: Lease | None = None
        self.standing = ""  # one of `lyra.store.standing.STANDINGS`, once the store is owned
        core.confirm_lease = self.confirm

    # ------------------------------------------------------------------ taking it

    async def take(self, owner: str) -> Lease:
        """Become the owner, or raise Conflict with the owner's name. Waits only for a lease whose owner may be gone."""
        core = self._core
        first: Conflict | None = None
        began_s = core.elapsed()
        while self.lease is None:
            waited_s = core.elapsed() - began_s
            try:
                self.lease = await self._acquire(owner, None)
            except Conflict as held:
                first = first or held
                holder, expires_at = _holder(held)
                refuse_moved(self.store.location, holder)
                if owner_is_dead(holder) or (expires_at == _holder(first)[1] and waited_s >= _lease_s_of(holder)):
                    self.lease = await self._acquire(owner, expires_at)
                    break
                if lives_here(holder) or expires_at != _holder(first)[1]:
                    raise self._refusal(holder, expires_at, "stop it, or wait until its lease ends") from held
                if waited_s >= self._wait_s:
                    raise self._refusal(
                        holder,
                        expires_at,
                        f"it may be dead; its lease did not end within {self._wait_s:g} s: open the store again later,"
                        " or raise kernel.lease_wait_s",
                    ) from held
                if held is first:
                    self._tell_waiting(holder, expires_at)
                await core.outside_pause(_POLL_S)
        point("lease.acquired")
        return self.lease

    async def generation(self, nonce: str) -> str:
        """Choose the generation of the store that the next owner writes in, before it is owned.

        Idempotency keys begin with it. A store whose last owner was killed continues in the generation of that one: a
        call that had reached the outside before its row was written is made again under the same key. Any other opening
        begins a new one, which costs nothing, because calls under way have their generation in their rows: the file may
        be a backup, and a call after it under an old key would be taken for one of the lost future. A store that does
        not last takes the kernel's `nonce`, so that a seeded run is a function of its seed.
        """
        from lyra.store.sql import SqlStore  # at first use: most kernels have no store

        held = await self._call(self.store.holder)
        if held is not None and getattr(self.store, "has_log", True) and (last := _generation_of(held.owner)):
            return last
        return unique_id()[:8] if isinstance(self.store, SqlStore) else nonce

    def open_signed(self) -> None:
        """Check the signatures of what is read from here on, and sign what is written; tell where the store is not
        signed with this user's key. Raises Tampered where it was, and is not any more, or where another key has signed
        it."""
        from lyra.store.standing import open_signed  # at first use: most kernels have no store

        assert self.lease is not None
        standing = open_signed(self.store, self.lease.epoch)
        self.standing = standing.name
        if not standing.is_signed and standing.name != "out_of_reach":
            location = self.store.location
            self._core.publish("", "store.unsigned", {"location": location, "standing": standing.name})
            _log.warning(
                "%s is %s; the rights of its processes are taken as they stand there. To list and sign them: "
                "lyra store adopt %s",
                location,
                standing.words,
                location,
            )

    async def _acquire(self, owner: str, over_at: float | None) -> Lease:
        """`over_at` is given where the lease in force is known to be over, whatever a clock says."""
        core = self._core
        asked_s, now = core.elapsed(), self._now()
        if over_at is not None:
            now = over_at if now is None else max(now, over_at)
        lease: Lease = await self._call(self.store.acquire, owner, now=now, ttl_s=self._lease_s)
        core.lease_until = asked_s + self._lease_s
        return lease

    async def _call(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the store before there is a journal: in the writer's thread where it may wait for a server, which other
        kernels of the loop must not."""
        if self.store.inline:
            return fn(*args, **kwargs)
        return await self._core.writer.submit(fn, *args, **kwargs)

    def _now(self) -> float | None:
        """None where the store has its own clock."""
        return None if self.store.has_clock else self._core.clock.now()

    def _refusal(self, holder: str, expires_at: float, hint: str) -> Conflict:
        return Conflict(
            f"another kernel owns {self.store.location}: {owner_words(holder)}",
            hint=hint,
            owner=holder,
            expires_at=expires_at,
        )

    def _tell_waiting(self, holder: str, expires_at: float) -> None:
        words, until = owner_words(holder), _time_words(expires_at)
        facts = {"owner": holder, "expires_at": expires_at, "wait_s": self._wait_s, "location": self.store.location}
        self._core.publish("", "store.waiting", facts)
        _log.warning(
            "waiting for the lease of %s on %s, which ends at %s; giving up after %g s",
            words,
            self.store.location,
            until,
            self._wait_s,
        )

    # ------------------------------------------------------------------ keeping it

    def keep(self) -> None:
        """Arrange to renew, and again after that."""
        clock = self._core.clock
        self._timer = clock.call_at(clock.monotonic() + self._lease_s / 3, self._keep_on)

    def _keep_on(self) -> None:
        if self._core.stopping or self.lease is None:
            return
        self._renew()
        if self._core.failure is None:
            self.keep()

    async def confirm(self, process: Any) -> None:
        """Wait until the lease is renewed. Where the store is another kernel's by now, that ends this one, and the wait
        with it."""
        core = self._core
        while core.elapsed() >= core.lease_until:
            self._renew()
            if core.elapsed() >= core.lease_until:
                await suspend(process, self._unconfirmed)

    def _renew(self) -> None:
        core, lease = self._core, self.lease
        if lease is None or core.failure is not None or self._is_renewing:
            return
        asked_s = core.elapsed()
        if self.store.inline:
            try:
                self.lease = self.store.renew(lease, now=self._now(), ttl_s=self._lease_s)
            except StoreFull:
                pass  # the lease may outlast it; if not, the kernel that takes over fences this one
            except LyraError as error:
                core.abort(error)
            else:
                self._confirm_renewal(asked_s)
            return
        self._is_renewing = True
        done = core.writer.submit(self.store.renew, lease, now=self._now(), ttl_s=self._lease_s)
        done.add_done_callback(lambda renewal: self._on_renewal(renewal, asked_s))

    def _on_renewal(self, renewal: asyncio.Future[Lease], asked_s: float) -> None:
        self._is_renewing = False
        self._core.abort_on_error(renewal)
        if not renewal.cancelled() and renewal.exception() is None:
            self._confirm_renewal(asked_s)

    def _confirm_renewal(self, asked_s: float) -> None:
        if self._core.failure is not None:
            return
        self._core.lease_until = asked_s + self._lease_s
        waiting, self._unconfirmed = self._unconfirmed, []
        for waker in waiting:
            resume(waker)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def give_up(self) -> None:
        """Release the lease. A store that cannot be reached (a full disk, a server that is gone) or that is another
        kernel's by now is left as it is: the lease runs out by itself."""
        lease, self.lease = self.lease, None
        if lease is not None:
            with suppress(StoreError):
                await self._call(self.store.release, lease)


def acquire_at_once(store: Store | SigningStore, command: str, lease_s: float) -> Lease:
    """Become the owner of a store for a short command, at once where the last owner was killed on this machine; raise
    Conflict while another one lives."""
    return _acquire_at_once(store, f"{command}, pid {os.getpid()}", lease_s)


def acquire_to_move(store: Store | SigningStore, lease_s: float) -> Lease:
    """Become the owner of a store that is moved. Where the last owner was killed, its generation is kept, also when the
    mover is killed in turn."""
    held = store.holder()
    generation = _generation_of(held.owner) if held is not None else ""
    return _acquire_at_once(store, owner_name("move", lease_s, generation or unique_id()[:8]), lease_s)


def _acquire_at_once(store: Store | SigningStore, owner: str, lease_s: float) -> Lease:
    try:
        return store.acquire(owner, now=None if store.has_clock else SystemClock().now(), ttl_s=lease_s)
    except Conflict as held:
        holder, expires_at = _holder(held)
        refuse_moved(store.location, holder)
        if not owner_is_dead(holder):
            raise
        return store.acquire(owner, now=expires_at, ttl_s=lease_s)


# ---------------------------------------------------------------------- names of owners


def owner_name(nonce: str, lease_s: float | None = None, generation: str = "") -> str:
    """Names this OS process so that another one on the same machine can tell whether it still runs, and says how long
    it may go without renewing its lease, and which generation of the store it writes in."""
    parts = (_machine(), str(os.getpid()), _read_start_time(os.getpid()), nonce)
    return "|".join(parts if lease_s is None else (*parts, f"{lease_s:g}", generation))


def _generation_of(owner: str) -> str:
    """Return the generation that an owner wrote in; that of an owner of an earlier version is its nonce."""
    parts = owner.split("|")
    return parts[5] if len(parts) > 5 and parts[5] else "".join(parts[3:4])


def owner_words(owner: str) -> str:
    """Return an owner as people would call it: `process 4711 on host-7`."""
    if not owner:
        return "another process"
    machine, pid, _ = _parts(owner)
    return f"process {pid} on {machine.partition('/')[0]}" if pid > 0 else owner


def _lease_s_of(owner: str) -> float:
    """Return how long an owner may go without renewing; for ever where its name does not say, as in earlier
    versions."""
    try:
        lease_s = float(owner.split("|")[4])
    except (IndexError, ValueError):
        return math.inf
    return lease_s if lease_s > 0 else math.inf


def _holder(held: Conflict) -> tuple[str, float]:
    return str(held.fields.get("owner", "")), float(held.fields.get("expires_at", 0.0))


def _time_words(time: float) -> str:
    try:
        return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):
        return f"{time:g}"


def owner_is_dead(owner: str) -> bool:
    """True only when it certainly ran on this machine and certainly runs no more."""
    machine, pid, started = _parts(owner)
    return machine == _machine() and _read_start_time(pid) != started


def lives_here(owner: str) -> bool:
    machine, pid, started = _parts(owner)
    return machine == _machine() and _read_start_time(pid) == started


def _parts(owner: str) -> tuple[str, int, str]:
    machine, _, rest = owner.partition("|")
    pid, _, rest = rest.partition("|")
    return machine, int(pid) if pid.isdigit() else -1, rest.partition("|")[0]


def _machine() -> str:
    """This boot of this machine, and the pid namespace: a pid means something only inside both."""
    return f"{socket.gethostname()}/{_read('/proc/sys/kernel/random/boot_id')}/{_link('/proc/self/ns/pid')}"


def _read_start_time(pid: int) -> str:
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
