"""A cluster of a thousand hosts and ten million processes, in numbers: what its size does to take-over and balance.

Hosts, shards and the directory are as in a real cluster (`MemoryDirectory`, `placement.plan`); time is virtual, and in
place of kernels there are the times that opening and closing one takes, measured on a real one and given by processes.
Each host beats, reads the directory, works its plan out and acts on it, one shard after another.

Three things happen: a tenth of the hosts dies at once, as many join, and a tenth is drained. `run` says how long each
took, how often shards moved, and how many rows the directory gave out; `faults` are bounds that did not hold.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import Final

import msgspec

from lyra.cluster import placement
from lyra.cluster.directory import DRAINING, LOADS, HostRow, MemoryDirectory, View
from lyra.cluster.host import BEATS_A_LEASE
from lyra.core.ids import ProcessRandom, make_random

# Of one kernel on PostgreSQL, measured (docs/explanation/scale.md): to open a store, and for each live process in it.
OPEN_S: Final = 0.10
OPEN_A_PROCESS_S: Final = 0.001
CLOSE_S: Final = 0.05
_LEASE_S: Final = 3.0


class Figures(msgspec.Struct):
    """What one of the three events took."""

    event: str
    shards_moved: int = 0
    most_moves_of_a_shard: int = 0
    seconds: float = 0.0  # until every shard was open again on a host that may keep it
    most_without_owner_s: float = 0.0  # that one shard was closed
    rows_read_a_second: float = 0.0  # of the directory, by all hosts together
    plans_a_host: float = 0.0


class Result(msgspec.Struct):
    hosts: int
    shards: int
    processes: int
    figures: list[Figures] = []
    faults: list[str] = []


class _World:
    """The virtual cluster: `run_until_settled` lets hosts beat until nothing is left to do."""

    def __init__(self, hosts: int, shards: int, processes: int, rng: ProcessRandom) -> None:
        self.now = 0.0
        self.rng = rng
        self._shards = shards
        self.open_s = OPEN_S + OPEN_A_PROCESS_S * processes / shards
        self.directory = MemoryDirectory([f"s{n}" for n in range(1, shards + 1)], lambda: self.now, lease_s=_LEASE_S)
        self.rows: dict[str, HostRow] = {}
        self._views: dict[str, View] = {}  # what each host knows of the directory
        self._asking: set[str] = set()  # hosts that wait for a shard that they asked for
        self._giving: Counter[str] = Counter()  # host → shards that it gives away at the moment
        self._eager: set[str] = set()  # hosts that plan at their next beat also where nothing has changed
        self._busy_until: dict[str, float] = {}  # host → when it has opened or closed all that it is at
        self._queue: list[tuple[float, int, str, str]] = []
        self._count = 0
        self.open: dict[str, str] = {}  # shard → host
        self.closed_since: dict[str, float] = {}
        self.moves: Counter[str] = Counter()
        self.longest_s = 0.0
        self.plans = self.read_rows = 0
        self.dead: set[str] = set()
        for number in range(hosts):
            self.join(f"h{number:04}")

    def join(self, name: str) -> None:
        row = HostRow(name, name, "", "1", 1)
        self._views[name] = self.directory.join(row)
        self.rows[name] = row
        self._push(self.now + self.rng.random() * _LEASE_S / BEATS_A_LEASE, "beat", name)

    def kill(self, name: str) -> None:
        self.dead.add(name)
        for shard, host in list(self.open.items()):
            if host == name:
                del self.open[shard]
                self.closed_since[shard] = self.now

    def drain(self, name: str) -> None:
        self.directory.set_state(name, DRAINING)

    def _push(self, at: float, what: str, name: str) -> None:
        self._count += 1
        heappush(self._queue, (at, self._count, what, name))

    def run_until_settled(self, within_s: float) -> float:
        """Let the hosts beat until every shard is open where it belongs; gives how long that took."""
        began, settled = self.now, None
        self.moves.clear()
        self.longest_s, self.plans, self.read_rows = 0.0, 0, 0
        while self._queue and self.now - began < within_s:
            self.now, _, what, name = heappop(self._queue)
            if what == "beat":
                self._beat(name)
            elif what != "look":
                self._finish(what, name)
            if what == "look" and self._is_settled():
                settled = self.now - began
                break
        return within_s if settled is None else settled

    def _is_settled(self) -> bool:
        if len(self.open) < self._shards:
            return False
        wanted = placement.shares(self.directory.view())
        return Counter(self.open.values()) == Counter({name: share for name, share in wanted.items() if share})

    def _beat(self, name: str) -> None:
        if name in self.dead:
            return
        known = self._views[name]
        view = self._views[name] = self.directory.renew(self.rows[name], known)
        changed = (
            len(view.hosts.keys() ^ known.hosts.keys())
            + sum(view.shards[shard] is not row for shard, row in known.shards.items())
            if view.changes != known.changes
            else 0
        )
        self.read_rows += 1 + changed + len(view.expired) + LOADS
        if (view.changes, view.expired) != (known.changes, known.expired) or name in self._eager:
            self._eager.discard(name)
            self.plans += 1
            self._act(name, view)
        self._push(self.now + _LEASE_S / BEATS_A_LEASE, "beat", name)

    def _act(self, name: str, view: View) -> None:
        is_busy = self._busy_until.get(name, 0.0) > self.now or name in self._asking
        what = placement.plan(view, name)
        for shard in what.take:
            if self.directory.assign(shard, name, view.shards[shard].moves):
                self._open(shard, name, self.now)
        if what.ask and not what.take:
            self._eager.add(name)  # it looks again at the next beat, whatever becomes of this
            if not is_busy and what.ask not in self.dead:
                self._give(what.ask, name)

    def _give(self, giver: str, taker: str) -> None:
        """Have one host close a shard for another, which opens it then."""
        view = self.directory.view()
        if placement.surplus(view, giver) <= self._giving[giver]:
            return
        shard = next(shard for shard, host in self.open.items() if host == giver)
        del self.open[shard]
        self.closed_since[shard] = self.now
        self._giving[giver] += 1
        self._asking.add(taker)
        self._push(self.now + CLOSE_S, f"given {shard} {giver}", taker)

    def _open(self, shard: str, name: str, at: float) -> float:
        self.moves[shard] += 1
        at = max(at, self._busy_until.get(name, 0.0)) + self.open_s
        self._busy_until[name] = at
        self._push(at, f"opened {shard}", name)
        return at

    def _finish(self, what: str, name: str) -> None:
        verb, shard, *giver = what.split()
        if verb == "given":
            self._giving[giver[0]] -= 1
            self._asking.discard(name)
            if self.directory.assign(shard, name, self.directory.view().shards[shard].moves) and name not in self.dead:
                self._open(shard, name, self.now)
        elif name not in self.dead:
            self.open[shard] = name
            since = self.closed_since.pop(shard, None)
            if since is not None:
                self.longest_s = max(self.longest_s, self.now - since)
            self._push(self.now, "look", name)

    def figures(self, event: str, seconds: float) -> Figures:
        hosts = max(1, len(self.rows) - len(self.dead))
        moved = len(self.moves)
        return Figures(
            event,
            moved,
            max(self.moves.values(), default=0),
            round(seconds, 2),
            round(self.longest_s, 2),
            round(self.read_rows / max(seconds, 0.5)),
            round(self.plans / hosts, 1),
        )


def run(
    hosts: int = 1_000, processes: int = 10_000_000, *, shards_a_host: int = 4, seed: int = 1, within_s: float = 600.0
) -> Result:
    """Run the three events on a cluster of this size; gives what they took and which bounds did not hold."""
    shards, tenth = hosts * shards_a_host, max(1, hosts // 10)
    world = _World(hosts, shards, processes, make_random(seed))
    result = Result(hosts, shards, processes)
    result.figures.append(world.figures("start", world.run_until_settled(within_s)))
    names = sorted(world.rows)
    for name in world.rng.sample(names, tenth):
        world.kill(name)
    result.figures.append(world.figures(f"{tenth} hosts die", world.run_until_settled(within_s)))
    for number in range(tenth):
        world.join(f"n{number:04}")
    result.figures.append(world.figures(f"{tenth} hosts join", world.run_until_settled(within_s)))
    for name in world.rng.sample(sorted(world.rows.keys() - world.dead), tenth):
        world.drain(name)
    result.figures.append(world.figures(f"{tenth} hosts are drained", world.run_until_settled(within_s)))
    _judge(result, world, within_s)
    return result


def _judge(result: Result, world: _World, within_s: float) -> None:
    """Note every bound that did not hold."""
    _, died, joined, drained = result.figures
    beat_s = _LEASE_S / BEATS_A_LEASE
    a_host = -(-result.shards // len(world.rows)) + 1  # shards that one host opens at most in one event
    bounds = {
        died.event: _LEASE_S + 2 * beat_s + a_host * world.open_s,
        joined.event: (a_host + 2) * (beat_s + CLOSE_S + world.open_s) * 2,
        drained.event: (a_host + 2) * (beat_s + CLOSE_S + world.open_s) * 2,
    }
    for figures in (died, joined, drained):
        if figures.seconds >= within_s:
            result.faults.append(f"{figures.event}: not settled within {within_s:g} s")
        elif figures.seconds > bounds[figures.event]:
            result.faults.append(f"{figures.event}: {figures.seconds} s, more than {bounds[figures.event]:.1f}")
        if figures.most_moves_of_a_shard > 1:
            result.faults.append(f"{figures.event}: a shard moved {figures.most_moves_of_a_shard} times")
    least = result.shards * (result.hosts // 10) // (result.hosts + result.hosts // 10)
    for figures in (died, drained):
        if figures.shards_moved > 2 * least + a_host:
            result.faults.append(f"{figures.event}: {figures.shards_moved} shards moved")
