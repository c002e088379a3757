"""Placement: which host each shard belongs on, and on which shard a new process begins.

Pure functions of a `View`. Every host works the same plan out by itself, so that without asking one another each takes
only the shards that the plan gives it; where views differ for a moment, compare-and-set in the directory lets one win.

A host's share is the number of shards by the number of hosts that take some, rounded down or up by the order of their
names. Shards without a living host go to hosts below their share first. A host above its share gives one away at a
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lyra.cluster.directory import UP, HostRow, View
from lyra.errors import ConfigError, Overloaded


class Plan(NamedTuple):
    """What one host does about a view: shards to take, and the shard to give to whom."""

    take: tuple[str, ...] = ()
    give: tuple[tuple[str, str], ...] = ()


def shares(view: View) -> dict[str, int]:
    """Return how many shards each living host should have."""
    takers = [row.name for row in view.alive() if row.state == UP]
    if not takers:
        return {}
    least, more = divmod(len(view.shards), len(takers))
    return {name: least + (place < more) for place, name in enumerate(takers)}


def plan(view: View, me: str) -> Plan:
    """Return what a host does about a view of the directory."""
    wanted = shares(view)
    held: dict[str, list[str]] = {row.name: [] for row in view.alive()}
    orphans = []
    for name, shard in view.shards.items():
        if shard.host in held:
            held[shard.host].append(name)
        else:
            orphans.append(name)
    take = []
    for name in orphans:
        taker = _neediest(view, wanted, held, view.shards[name].format)
        if taker is None:
            continue
        held[taker].append(name)
        if taker == me:
            take.append(name)
    give = []
    if not orphans and me in held:
        surplus = len(held[me]) - wanted.get(me, 0)
        leaving = me not in wanted
        for name in held[me][: surplus if leaving else min(surplus, 1)]:
            taker = _neediest(view, wanted, held, view.shards[name].format, but=me)
            if taker is None or not (leaving or len(held[taker]) < wanted[taker]):
                continue
            held[taker].append(name)
            give.append((name, taker))
    return Plan(tuple(take), tuple(give))


def _neediest(
    view: View, wanted: Mapping[str, int], held: Mapping[str, list[str]], needs: int, but: str = ""
) -> str | None:
    """Return the host that is furthest below its share and can open a store of this form; None where none can."""
    able = [name for name in wanted if name != but and view.hosts[name].format >= needs]
    return min(able, key=lambda name: (len(held[name]) - wanted[name], name), default=None)


def place(view: View, needs: Mapping[str, Any], here: str = "") -> str:
    """Return the shard that a new process begins on: the one asked for, the one of the process that it is to be near,
    or the least loaded one of a host that has the resources."""
    if needs.get("shard"):
        return str(needs["shard"])
    near = needs.get("near")
    if near:
        shard, slash, _ = str(near).partition("/")
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


def _has(host: HostRow, wanted: Mapping[str, Any]) -> bool:
    for name, amount in wanted.items():
        if not isinstance(amount, (int, float)) or isinstance(amount, bool) or amount < 0:
            raise ConfigError(f"resources are numbers by name, and {name} is {amount!r}", key="resources")
        if host.resources.get(name, 0.0) < amount:
            return False
    return True
