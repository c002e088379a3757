"""Many machines: hosts that share one PostgreSQL database and take each other's work over.

A cluster has a fixed set of shards. Each is a store of its own, a schema of the database, run by the kernel of one
host at a time; the store's lease and epoch say whose it is, and PostgreSQL refuses every other. `directory` is the
table of hosts and shards, `placement` decides which host has which shard, `host` opens and closes kernels accordingly,
`peers` carries calls between hosts, `client` is how a program outside the cluster uses it. What one shard tells another
is in `lyra.kernel.remote`, `vega_runs` executes Vega programs. Ray may start hosts and carry calls
(`ray_hosts`); nothing here needs it.

    lyra cluster start --store postgresql://… --load jobs.py     # on each machine
    async with lyra.cluster.connect("postgresql://…") as cluster:
        print((await (await cluster.spawn(review, "https://…")).wait()).result)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lyra.cluster.client import Cluster, RemoteHandle, connect
    from lyra.cluster.event_stream import ClusterEvent, EventStream
    from lyra.cluster.host import Host

__all__ = ["Cluster", "ClusterEvent", "EventStream", "Host", "RemoteHandle", "connect"]

_HOMES: Final = {
    "Cluster": "client",
    "RemoteHandle": "client",
    "connect": "client",
    "Host": "host",
    "ClusterEvent": "event_stream",
    "EventStream": "event_stream",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"lyra.cluster.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'lyra.cluster' has no attribute {name!r}")
