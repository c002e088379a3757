"""What shards share, used and judged in simulated clusters: rate limits, services, groups, trees, questions to people.

A world has some of them, drawn from its seed apart from all else. Their programs are roots like any other (`roots`);
hosts use services and groups from outside (`use`), and a client answers questions and stops what has no end of its own
(`answer`, `finish`). What rows tell is judged by `Trees` and `Questions`, which `Books` asks; the rest is judged here.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lyra.cluster.client import Cluster
from lyra.core import codec
from lyra.core.ids import ProcessRandom, make_random
from lyra.errors import LyraError, Overloaded
from lyra.kernel import Kernel, ServiceRequest
from lyra.kernel.journal import rows
from lyra.kernel.remote.shares import SHARE_S
from lyra.kernel.services.service import STATUSES
from verify.histories import Op
from verify.simulation.cluster import programs
from verify.simulation.ledger import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from verify.simulation.cluster.world import ClusterWorld, SimHost

GROUP = "team"
SERVICE = "work"
_AT_ONCE = 2  # requests that one handler takes
_BACK_S = 60.0  # until a service is found again from every shard, once all is well
_MEASURED_S = 8.0  # least time over which the use of a rate limit says something


class Shared:
    """See the module."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        rng = self.rng = make_random(world.seed * 7 + 3)
        names = list(world.shards)
        chance: Callable[[], bool] = lambda: rng.random() < 0.3  # noqa: E731
        self.roots: dict[str, tuple[Any, tuple[Any, ...]]] = {}
        if chance():
            count = int((world.horizon_s + 35.0) * programs.CALLS_A_MINUTE / 60) // 3
            self.roots |= {f"{rng.choice(names)}/caller{n}": (programs.caller, (count,)) for n in range(3)}
        self.serving = set(rng.sample(names, rng.randint(1, len(names)))) if chance() else set()
        self.has_group = chance()
        if self.has_group:
            self.roots |= {f"{rng.choice(names)}/member{n}": (programs.member, ()) for n in range(3)}
        for number in range(rng.choice([1, 2]) if chance() else 0):
            strategy = rng.choice(["one_for_one", "one_for_all", "rest_for_one"])
            places = [rng.choice([None, *names]) for _ in range(rng.randint(2, 4))]
            self.roots[f"{rng.choice(names)}/tree{number}"] = (programs.tree, (strategy, places))
        self.asks = [f"{rng.choice(names)}/person{n}" for n in range(2)] if chance() else []
        self.roots |= {address: (programs.person, (rng.randint(1, 4),)) for address in self.asks}
        self.calls: list[float] = []  # when a call that is limited was made
        self.opened_s = 0.0  # when a kernel was opened last
        self._handled: dict[str, int] = {}  # request → how often a handler got it
        self._has_repeats = world.network.repeats > 0  # a request may be carried twice, and is not told apart
        self._found: set[str] = set()  # shards that have found the service again
        self._given: dict[str, set[str]] = {}  # question → answers that were given
        self._answers = 0
        self._measured = 0

    def count(self) -> dict[str, int]:
        """Return how often what was used, so that a simulation in which nothing is can be told."""
        books = self._world.books
        return {
            "limited call": len(self.calls),
            "measured limit": self._measured,
            "request": len(self._handled),
            "broadcast": len(books.casts),
            "life of a child": books.trees.count_lives(),
            "answer": len(books.questions.answers),
        }

    @property
    def is_over(self) -> bool:
        return not self.serving or self._found == set(self._world.shards)

    # ------------------------------------------------------------------ on a host

    def set_up(self, kernel: Kernel) -> None:
        """Offer the service on a kernel that has opened."""
        self.opened_s = self._world.clock.monotonic()
        if kernel.core.remote.shard not in self.serving:
            return
        with suppress(LyraError):
            kernel.register_service({"name": SERVICE, "max_concurrent": _AT_ONCE})
        kernel.register_handler(SERVICE, Handler(self, kernel, self._world).take)

    def note_handled(self, request: str) -> None:
        count = self._handled[request] = self._handled.get(request, 0) + 1
        if count > 1 and not self._has_repeats:
            self._world.violate("service_once", f"request {request} was handled {count} times")

    async def use(self, host: SimHost) -> None:
        """Use services and groups on whichever shards are open on a host."""
        rng = make_random(host.rng.getrandbits(32))
        work = [self._dispatch(host, rng)] if self.serving else []
        work += [self._broadcast(host, rng)] if self.has_group else []
        await asyncio.gather(*work, *([self._compare(host)] if self._world.has_board else []))

    def _pick(self, host: SimHost, rng: ProcessRandom) -> Kernel | None:
        kernels = list(host.host.kernels.values()) if host.host is not None else []
        return rng.choice(kernels) if kernels and not self._world.is_well else None

    async def _dispatch(self, host: SimHost, rng: ProcessRandom) -> None:
        for number in range(1, 30):
            await asyncio.sleep(rng.uniform(0.05, 2.5))
            kernel = self._pick(host, rng)
            if kernel is None:
                continue
            if rng.random() < 0.15:
                with suppress(LyraError):
                    kernel.services.update_health(SERVICE, rng.choice(["healthy", "degraded", "unhealthy"]))
            request = f"{host.machine}.{number}"
            await asyncio.gather(*[self._ask(kernel, f"{request}.{n}") for n in range(rng.choice([1, 1, 4]))])
        while not self._world.is_well:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(1.0)
        await self._find_again(host)

    async def _ask(self, kernel: Kernel, request: str) -> bool:
        try:
            answer = await kernel.dispatch(SERVICE, ServiceRequest(metadata={"id": request}), timeout_s=20.0)
        except LyraError:
            return False
        told = answer.metadata.get("id")
        if told != request or not self._handled.get(request):
            self._world.violate("service_answer", f"request {request} got the answer of {told}")
        return True

    async def _find_again(self, host: SimHost) -> None:
        """Ask for the service from every shard that is open here; all is well."""
        world, tries = self._world, 0
        until_s = world.clock.monotonic() + _BACK_S
        while self._found != set(world.shards):
            await asyncio.sleep(1.0)
            for shard, kernel in dict(host.host.kernels if host.host is not None else {}).items():
                if shard in self.serving:
                    with suppress(LyraError):
                        kernel.services.update_health(SERVICE, "healthy")
                tries += 1
                if shard not in self._found and await self._ask(kernel, f"{host.machine}.back{tries}"):
                    self._found.add(shard)
                elif shard not in self._found and world.clock.monotonic() > until_s:
                    world.violate("service_found", f"{shard} finds no service after {_BACK_S:g} s of peace")
                    self._found.add(shard)

    async def _broadcast(self, host: SimHost, rng: ProcessRandom) -> None:
        for number in range(1, 16):
            await asyncio.sleep(rng.uniform(0.1, 4.0))
            kernel = self._pick(host, rng)
            if kernel is None:
                continue
            shard = kernel.core.remote.shard
            try:
                async with asyncio.timeout(15.0):
                    await kernel.groups.create(GROUP, exist_ok=True)
                if kernel.failure is not None or not kernel.open:
                    continue
                for address in self.roots:
                    place, _, pid = address.partition("/")
                    process = kernel.core.lookup(pid) if pid.startswith("member") and place == shard else None
                    if process is not None and process.exit is None:
                        kernel.groups.join(GROUP, pid)
                kernel.groups.bb_set(GROUP, "last", f"{host.machine}.{number}")
                kernel.groups.broadcast(GROUP, {"cast": number, "from": f"{host.machine}/{shard}"})
            except (LyraError, TimeoutError):
                continue

    async def _compare(self, host: SimHost) -> None:
        """Compare and write a value of a blackboard, until all is well."""
        world, rng, known = self._world, host.rng, None
        for number in range(1, 40):
            await asyncio.sleep(rng.uniform(0.1, 4.0))
            kernel, new = self._pick(host, rng), f"{host.machine}.{number}"
            if kernel is None:
                continue
            groups, old = kernel.groups, known if rng.random() < 0.7 else rng.choice([None, known])
            at, began = len(world.books.compared), world.clock.monotonic()
            world.books.compared.append(Op("board", "compare", (old, new), None, began, None, host.machine))
            try:
                async with asyncio.timeout(15.0):
                    await groups.create("board", exist_ok=True)
                    matched = await groups.bb_compare("board", "value", old, new)
            except (LyraError, TimeoutError):
                continue  # whether it was written is not known
            ended = world.clock.monotonic()
            world.books.compared[at] = Op("board", "compare", (old, new), matched, began, ended, host.machine)
            known = new if matched else groups.bb_get("board", "value")

    # ------------------------------------------------------------------ a client

    async def answer(self, cluster: Cluster) -> None:
        """Answer questions of programs until these have ended; another client does the same."""
        world, rng = self._world, make_random(self.rng.getrandbits(32))
        while any(not world.books.has_ended(address) for address in self.asks):
            await asyncio.sleep(rng.uniform(0.2, 3.0))
            try:
                questions = await cluster.interrupts()
            except LyraError:
                continue
            for question in questions:
                if question["kind"] != "clarification" or rng.random() < 0.5:
                    continue
                self._answers += 1
                text = f"answer {self._answers}"
                self._given.setdefault(question["id"], set()).add(text)
                try:
                    await cluster.resolve_interrupt(question["id"], {"text": text})
                except LyraError:
                    continue
                kept = world.books.questions.answers.get(question["id"])
                if kept != text:
                    world.violate("person_once", f"{question['id']} was answered by {text!r}, the journal has {kept!r}")

    async def finish(self, cluster: Cluster) -> None:
        """Stop what has no end of its own; trees once they are whole."""
        books = self._world.books
        for address, (program, _) in self.roots.items():
            if program is programs.tree:
                while not books.trees.is_whole(address):  # noqa: ASYNC110 - virtual time costs nothing
                    await asyncio.sleep(1.0)
            if program in (programs.tree, programs.member):
                while not books.has_ended(address):
                    with suppress(Overloaded):  # its mailbox is full
                        await cluster.send(address, programs.STOP)
                    await asyncio.sleep(3.0)

    # ------------------------------------------------------------------ at rest

    def at_rest(self) -> Iterator[Violation]:
        yield from self._judge_rate()
        yield from self._compare_groups()
        for question, given in self._given.items():
            kept = self._world.books.questions.answers.get(question)
            if kept is not None and kept not in given:
                yield Violation("person_once", f"{question} has the answer {kept!r}, which nobody gave to it")

    def _judge_rate(self) -> Iterator[Violation]:
        world, per_s, most = self._world, programs.CALLS_A_MINUTE / 60, programs.CALLS_AT_ONCE
        lowest = above = 0.0
        for number, at in enumerate(self.calls):
            lowest = min(lowest, number - at * per_s)
            above = max(above, number + 1 - at * per_s - lowest)
        if above > most + 1e-3:
            yield Violation("within_rate", f"some time had {above - most:.2f} calls more than the limit of {most}")
        settled_s = max(self.opened_s, world.well_s) + 2 * SHARE_S + 3.0
        # From the first call on: one that asks for a share of a host that is gone waits until it gives that up.
        calls = [at for at in self.calls if at >= settled_s]
        if calls and calls[-1] - calls[0] > _MEASURED_S:
            self._measured = 1
            least = 0.99 * per_s * (calls[-1] - calls[0]) - 1
            if len(calls) < least:
                yield Violation(
                    "rate_usable", f"{len(calls)} calls from {calls[0]:.1f} to {calls[-1]:.1f} s: {least:.1f}"
                )

    def _compare_groups(self) -> Iterator[Violation]:
        hosts = [host.host for host in self._world.hosts if host.host is not None and not host.loop.is_dead]
        kernels = {shard: kernel for host in hosts for shard, kernel in host.kernels.items()}
        for name in (GROUP, "board"):
            known = {shard: self._read_group(kernel, name) for shard, kernel in kernels.items()}
            home = next((known[k.core.remote.home_of(name)] for k in kernels.values()), None)
            for shard, kept in known.items():
                if kept != home and kernels[shard].core.remote.groups.has_copy(name):
                    yield Violation("group_agrees", f"{shard} has {kept} of group {name}, its home has {home}")

    def _read_group(self, kernel: Kernel, name: str) -> Any:
        kept = kernel.groups.state.groups.get(name)
        remote = kernel.core.remote
        if kept is None:
            return None
        return sorted(pid if remote.knows(pid) else remote.address_of(pid) for pid in kept.members), dict(kept.board)


class Handler:
    """The handler of the service on one kernel; counts what it is at."""

    def __init__(self, shared: Shared, kernel: Kernel, world: ClusterWorld) -> None:
        self._shared = shared
        self._kernel = kernel
        self._world = world
        self._active = 0

    async def take(self, request: ServiceRequest) -> dict[str, Any]:
        status = str(self._kernel.services.state.services[SERVICE]["status"])
        if self._active >= STATUSES[status](_AT_ONCE):
            self._world.violate("service_room", f"a {status} service gets a request while it is at {self._active}")
        self._shared.note_handled(request.metadata["id"])
        self._active += 1
        try:
            await asyncio.sleep(self._shared.rng.choice([0.0, 0.3, 4.0]) * self._shared.rng.random())
        finally:
            self._active -= 1
        return {"id": request.metadata["id"]}


# ---------------------------------------------------------------------- by the rows


class Trees:
    """Supervised children of programs.tree, by address and place in their list."""

    def __init__(self) -> None:
        self._kids: dict[tuple[str, str], tuple[str, int]] = {}  # (shard, pid) → tree and index
        self._alive: dict[str, dict[int, tuple[str, str]]] = {}
        self._lives: dict[str, dict[int, int]] = {}
        self._sizes: dict[str, int] = {}

    def begin(self, shard: str, pid: str, row: rows.Created) -> Iterator[Violation]:
        program = row.program.rpartition(":")[2]
        if program == "tree":
            _, places = codec.decode(bytes(row.args))
            self._sizes[f"{shard}/{pid}"] = len(places)
        if program != "kid":
            return
        tree, index, strategy = codec.decode(bytes(row.args))
        alive, lives = self._alive.setdefault(tree, {}), self._lives.setdefault(tree, {})
        if index in alive:
            yield Violation("tree_order", f"child {index} of {tree} begins while {alive[index]} lives")
        if any(not lives.get(before) for before in range(index)):
            yield Violation("tree_order", f"child {index} of {tree} begins before those in front of it: {lives}")
        if strategy != "one_for_one" and any(other > index for other in alive):
            yield Violation("tree_order", f"child {index} of {tree} ({strategy}) begins beside later ones: {alive}")
        self._kids[shard, pid] = tree, index
        alive[index] = shard, pid
        lives[index] = lives.get(index, 0) + 1

    def end(self, shard: str, pid: str, row: rows.Terminated) -> Iterator[Violation]:
        if (shard, pid) not in self._kids:
            return
        tree, index = self._kids[shard, pid]
        alive = self._alive[tree]
        if alive.get(index) == (shard, pid):
            del alive[index]
        if row.stopped and any(other > index for other in alive):
            yield Violation("tree_order", f"child {index} of {tree} is stopped before later ones: {alive}")

    def count_lives(self) -> int:
        return sum(sum(lives.values()) for lives in self._lives.values())

    def is_whole(self, tree: str) -> bool:
        return tree in self._sizes and len(self._alive.get(tree, {})) == self._sizes[tree]


class Questions:
    """Questions to people, and their answers."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self._by_pid: dict[tuple[str, str], list[str]] = {}

    def answer(self, shard: str, pid: str, row: rows.InterruptEnded) -> Iterator[Violation]:
        response = codec.decode(bytes(row.response))
        if not isinstance(response, dict) or not str(response.get("text", "")).startswith("answer "):
            return
        text = response["text"]
        if row.id in self.answers:
            yield Violation("person_once", f"{row.id} is answered by {text!r} after {self.answers[row.id]!r}")
        self.answers[row.id] = text
        self._by_pid.setdefault((shard, pid), []).append(text)

    def end(self, shard: str, pid: str, row: rows.Terminated) -> Iterator[Violation]:
        if pid.startswith("person") and row.reason == "normal":
            told = codec.decode(bytes(row.value))
            if told != self._by_pid.get((shard, pid), []):
                kept = self._by_pid.get((shard, pid))
                yield Violation("person_once", f"{shard}/{pid} was told {told}, the journal has {kept}")
