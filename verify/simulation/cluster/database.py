"""The database of a simulated cluster: one store a shard, with the server's clock, and the directory.

A `Shard` is the durable part, which outlives every host. A `ShardStore` is what one kernel opens: it adds the clock of
the server to leases, as PostgreSQL does, refuses while its host is cut off, and tells the world what became durable,
by whom and in which epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lyra.errors import StoreError
from lyra.store.memory import MemoryStore
from lyra.store.protocol import Identity, Lease, Record, Snapshot
from verify.simulation.cluster.network import DATABASE

if TYPE_CHECKING:
    from verify.simulation.cluster.world import ClusterWorld, SimHost


class Shard:
    """A store as it is in the database."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.disk = MemoryStore(store_id=name)


class ShardStore:
    """A connection of one kernel to its shard."""

    inline: bool = False
    has_clock: bool = True

    def __init__(self, world: ClusterWorld, host: SimHost, shard: Shard) -> None:
        self._world = world
        self._host = host
        self._shard = shard
        self.shard = shard.name
        self._disk = shard.disk
        self.epoch = 0  # that its kernel writes in
        self.location = f"shard {shard.name}"

    def _reach(self) -> None:
        """Refuse a call that the kernel makes on its loop while its host is cut off."""
        if asyncio._get_running_loop() is not None and self._world.network.parted(self._host.name, DATABASE):
            raise StoreError(f"{self.location} cannot be reached")

    # journal
    def append(self, records: Sequence[tuple[int, float, str, str, bytes]], epoch: int) -> None:
        self._reach()
        self._disk.append(records, epoch)
        self._world.on_append(self._shard, self._host, epoch, [Record._make(record) for record in records])

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
        self._reach()
        self._disk.save_snapshots(seq, states, epoch, unneeded_blobs=unneeded_blobs)

    def load_snapshots(self) -> Snapshot:
        return self._disk.load_snapshots()

    # blobs
    def put_blob(self, data: bytes) -> str:
        self._reach()
        return self._disk.put_blob(data)

    def get_blob(self, digest: str) -> bytes:
        return self._disk.get_blob(digest)

    # lease, by the clock of the server
    def acquire(self, owner: str, *, now: float | None, ttl_s: float) -> Lease:
        self._reach()
        lease = self._disk.acquire(owner, now=self.clock_s() if now is None else now, ttl_s=ttl_s)
        self.epoch = lease.epoch
        return lease

    def renew(self, lease: Lease, *, now: float | None, ttl_s: float) -> Lease:
        self._reach()
        return self._disk.renew(lease, now=self.clock_s() if now is None else now, ttl_s=ttl_s)

    def release(self, lease: Lease) -> None:
        self._reach()
        self._disk.release(lease)

    def holder(self) -> Lease | None:
        self._reach()
        return self._disk.holder()

    def clock_s(self) -> float:
        return self._world.clock.now()

    def identity(self) -> Identity:
        return self._disk.identity()

    # care
    def check(self) -> list[str]:
        return self._disk.check()

    def compact(self, *, before: float, epoch: int, most: int | None = None) -> int:
        return self._disk.compact(before=before, epoch=epoch, most=most)

    def close(self) -> None:
        """Do nothing: the shard outlives its kernels."""
