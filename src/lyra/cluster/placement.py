"""Placement: which host each shard belongs on, and on which shard a new process begins.

Pure functions of a `View`. Every host works the same plan out by itself, so that without asking one another each takes
only the shards that the plan gives it; where views differ for a moment, compare-and-set in the directory lets one win.

A host's share is the number of shards by the number of hosts that take some, rounded down or up by the order of their
names. Shards without a living host go to hosts below their share first. A host below its share asks one above its own
for a shard when it has none to open: the shard is closed only when its new host is ready to open it.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from lyra.cluster.directory import UP, HostRow, View
from lyra.errors import ConfigError, Overloaded


class HostPlan(NamedTuple):
    """What one host does about a view: shards to take, and the host to ask for one."""

    take: tuple[str, ...] = ()
    ask: str = ""


def shares(view: View) -> dict[str, int]:
    """Return how many shards each living host should have."""
    takers = [row.name for row in view.alive() if row.state == UP]
    if not takers:
        return {}
    least, more = divmod(len(view.shards), len(takers))
    return {name: least + (place < more) for place, name in enumerate(takers)}


def plan(view: View, me: str) -> HostPlan:
    """Return what a host does about a view of the directory."""
    wanted = shares(view)
    held: dict[str, list[str]] = {row.name: [] for row in view.alive()}
    orphans = []
    for name, shard in view.shards.items():
        if shard.host in held:
            held[shard.host].append(name)
        else:
            orphans.append(name)
    if orphans:
        takers = _Takers(view, [(len(held[name]) - share, name) for name, share in wanted.items()])
        chosen = [(name, takers.next(view.shards[name].format)) for name in orphans]
        if any(taker is not None for _, taker in chosen):  # those that no host can open keep the others from nothing
            return HostPlan(take=tuple(name for name, taker in chosen if taker == me))
    if len(held.get(me, ())) >= wanted.get(me, 0):
        return HostPlan()
    # Hosts below their share and those above it, as often as they are: each asks another one.
    below = [name for name in sorted(wanted) for _ in range(wanted[name] - len(held[name]))]
    above = [name for name in sorted(held) for _ in range(len(held[name]) - wanted.get(name, 0))]
    place = below.index(me)
    return HostPlan(ask=above[place]) if place < len(above) else HostPlan()


def surplus(view: View, me: str) -> int:
    """Return how many shards a host has above its share; all of them where it takes none and others do."""
    wanted = shares(view)
    held = sum(shard.host == me for shard in view.shards.values())
    return max(0, held - wanted.get(me, 0)) if wanted else 0


class _Takers:
    """The hosts that take shards, the one that is furthest below its share first."""

    def __init__(self, view: View, shortfalls: list[tuple[int, str]]) -> None:
        self._view = view
        self._heap = shortfalls
        heapify(self._heap)

    def next(self, needs: int) -> str | None:
        """Return the next host that can open a store of this form, and count one more shard as its own; None where
        none can."""
        unable = []
        taker = None
        while self._heap:
            shortfall, name = heappop(self._heap)
            if self._view.hosts[name].format >= needs:
                heappush(self._heap, (shortfall + 1, name))
                taker = name
                break
            unable.append((shortfall, name))
        for entry in unable:
            heappush(self._heap, entry)
        return taker


def place(view: View, needs: Mapping[str, Any], here: str = "") -> str:
    """Return the shard that a new process begins on: the one asked for, the one of the process that it is to be near,
    or the least loaded one of a host that has the resources."""
    if needs.get("shard"):
        return str(needs["shard"])
    near = needs.get("near")
    if near:
        shard, slash, _ = str(near).partition("/")
        if not (slash or here):
            raise ConfigError(f"near is {near!r}", hint="name a process by its address, such as s2/p17", key="near")
        return shard if slash else here
    wanted = needs.get("resources") or {}
    able = [row for row in view.alive() if row.state == UP and _has(row, wanted)]
    open_shards = {row.name: [name for name, shard in view.shards.items() if shard.host == row.name] for row in able}
    able = [row for row in able if open_shards[row.name]]
    if not able:
        if wanted:
            told = ", ".join(f"{amount:g} {name}" for name, amount in wanted.items())
            raise Overloaded(f"no host has {told}", hint="lyra cluster status lists what each has")
        raise Overloaded("no host of the cluster has a shard", hint="is one running? lyra cluster start --store URL")
    row = min(
        able, key=lambda row: (row.load.get("processes", 0.0) / max(row.resources.get("cpu", 1.0), 0.1), row.name)
    )
    return min(open_shards[row.name], key=lambda name: row.load.get(f"processes.{name}", 0.0))


def spread(view: View, placed: Mapping[str, int], me: str) -> list[str]:
    """Return the shards in the order in which new work goes to them: first the least loaded one of the least loaded
    host, this one among equals. `placed` counts what was given to each since the loads were told."""
    held: dict[str, list[str]] = {row.name: [] for row in view.alive() if row.state == UP}
    for name, shard in view.shards.items():
        if shard.host in held:
            held[shard.host].append(name)

    def rank(name: str) -> tuple[float, bool, str, float]:
        row = view.hosts[view.shards[name].host]
        count = row.load.get("processes", 0.0) + sum(placed.get(shard, 0) for shard in held[row.name])
        busy = count / max(row.resources.get("cpu", 1.0), 0.1)
        return busy, row.name != me, row.name, row.load.get(f"processes.{name}", 0.0) + placed.get(name, 0)

    return sorted((name for names in held.values() for name in names), key=rank)


def _has(host: HostRow, wanted: Mapping[str, Any]) -> bool:
    for name, amount in wanted.items():
        if not isinstance(amount, (int, float)) or isinstance(amount, bool) or amount < 0:
            raise ConfigError(f"resources are numbers by name, and {name} is {amount!r}", key="resources")
        if host.resources.get(name, 0.0) < amount:
            return False
    return True
