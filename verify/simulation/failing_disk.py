"""A disk that fails on purpose: full for a while, slow now and then, dead with its kernel.

`FaultStore` stands between one life of a kernel and the world's MemoryStore. It tells the world which rows became
durable, raises StoreFull while the world's disk is full, holds the clock up on slow writes, and refuses a kernel
that is dead. It changes no row and no order. Faults of the outside world are in `provider`, the ends of kernels in
`world`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lyra.core.faultpoint import SimulatedCrash
from lyra.errors import StoreFull
from lyra.store.protocol import Identity, Lease, Record, Snapshot

if TYPE_CHECKING:
    from verify.simulation.world import Life, World

__all__ = ["FaultStore"]


class FaultStore:
    """The world's disk as one life sees it."""

    inline: bool = True
    has_clock: bool = False
    location: str = "simulated disk"

    def __init__(self, world: World, life: Life) -> None:
        self._world = world
        self._life = life
        self._disk = world.disk
        self.dead = False

    def _write(self) -> None:
        """Every write passes here first."""
        world = self._world
        if self.dead:
            world.violate("fenced", "a kernel wrote after its end")
            raise SimulatedCrash("the kernel of this store is dead")
        if world.clock.monotonic() < world.full_until:
            raise StoreFull("the simulated disk is full")
        if self._life.rng.random() < 0.02:
            world.clock.stall(self._life.rng.uniform(0.01, 3.0))

    # journal
    def append(self, records: Sequence[tuple[int, float, str, str, bytes]], epoch: int) -> None:
        self._write()
        self._disk.append(records, epoch)
        if self._life.fenced and records:
            self._world.violate("fenced", f"row {records[0][0]} was written by a kernel that had lost the store")
        self._life.committed([Record._make(record) for record in records])

    def read(
        self, *, after: int = 0, upto: int | None = None, pid: str | None = None, kind: str | None = None
    ) -> Iterator[Record]:
        return self._disk.read(after=after, upto=upto, pid=pid, kind=kind)

    def first_seq(self) -> int:
        return self._disk.first_seq()

    def last_seq(self) -> int:
        return self._disk.last_seq()

    # snapshots
    def save_snapshots(
        self, seq: int, states: Mapping[str, bytes | None], epoch: int, *, unneeded_blobs: Sequence[str] = ()
    ) -> None:
        self._write()
        self._disk.save_snapshots(seq, states, epoch, unneeded_blobs=unneeded_blobs)

    def load_snapshots(self) -> Snapshot:
        return self._disk.load_snapshots()

    # blobs
    def put_blob(self, data: bytes) -> str:
        self._write()
        return self._disk.put_blob(data)

    def get_blob(self, digest: str) -> bytes:
        return self._disk.get_blob(digest)

    # lease
    def acquire(self, owner: str, *, now: float | None, ttl_s: float) -> Lease:
        return self._disk.acquire(owner, now=now, ttl_s=ttl_s)

    def renew(self, lease: Lease, *, now: float | None, ttl_s: float) -> Lease:
        self._write()
        return self._disk.renew(lease, now=now, ttl_s=ttl_s)

    def release(self, lease: Lease) -> None:
        if self.dead:
            return  # a kernel that was killed while it opened gives nothing back
        self._write()
        self._disk.release(lease)

    def holder(self) -> Lease | None:
        return self._disk.holder()

    def clock_s(self) -> float:
        return self._disk.clock_s()

    def identity(self) -> Identity:
        return self._disk.identity()

    # care
    def check(self) -> list[str]:
        return self._disk.check()

    def compact(self, *, before: float, epoch: int, most: int | None = None) -> int:
        self._write()
        return self._disk.compact(before=before, epoch=epoch, most=most)

    def close(self) -> None:
        """Nothing: the world's disk outlives its kernels."""
