"""One simulated world: a store, a clock, an outside, and one kernel life after another.

A `Life` is the real Kernel on its own `SimLoop`. The world draws from its seed how each life ends (`ENDINGS`): by a
crash at a named point or at a moment, in good order, or by being paused until another kernel has taken the store.
While a life lasts, a driver starts programs, sends messages, answers questions, kills processes, jumps the wall
clock, fills the disk and tries to open the store a second time. `invariants` is asked after every step. Nothing
here decides what is right.
"""

from __future__ import annotations

import asyncio
import warnings
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final
from unittest.mock import patch

from lyra.core.event import Event
from lyra.core.faultpoint import POINTS, SimulatedCrash, intercept
from lyra.core.ids import ProcessRandom, make_random
from lyra.errors import Conflict
from lyra.kernel import Kernel
from lyra.kernel.journal import snapshots
from lyra.store.memory import MemoryStore
from lyra.store.protocol import Record
from lyra.testing.clock import SimClock
from lyra.testing.loop import Deadlock, LoopClock, SimLoop
from verify.crash.workload import call_of
from verify.simulation import driver, inspections, invariants
from verify.simulation import replay as replayed
from verify.simulation.failing_disk import FaultStore
from verify.simulation.invariants import Ledger, Violation
from verify.simulation.provider import EFFECTS, Provider, use
from verify.simulation.scenes import POINTS_OF_PARTS, POINTS_OF_SHARDS, cast_of, make_scenes, programs
from verify.simulation.workload import Generator, sink, worker

__all__ = ["ENDINGS", "Life", "World"]

# How a life may end before the last one, and how often.
ENDINGS: Final[dict[str, int]] = {
    "point": 5,  # at the n-th visit of a named point
    "moment": 3,  # at some time, between two callbacks
    "close": 2,  # in good order
    "paused": 2,  # held still until another kernel owns the store
}
_VIOLATIONS_MAX: Final = 10
_HORIZON_S: Final = 4 * 3600.0
_HORIZON_WITH_SCENES_S: Final = 1200.0  # supervisors and services go on for ever, and every second of it costs
# Complaints that are no findings: what the world does itself, and programs that fail while they are cut off.
_EXPECTED: Final = (
    "on purpose",
    "SimulatedCrash",
    "has errored out but its parent task",
    "failed while it was closed",
)


class Life:
    """One kernel from its opening to its end."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.rng: ProcessRandom = make_random(world.seed * 1_000 + number)
        self.loop = SimLoop(world.clock)
        self.store = FaultStore(world, self)
        self.crashed = False
        self.paused = False
        self.fenced = False
        self.closed = False
        self.next_seq = 0  # of the row that listeners have to get next
        self.dropped: dict[str, int] = {}
        self.unread: dict[str, int] = {}
        late_programs = self.rng.random() < 0.2
        self.kernel = Kernel(
            self.store,
            clock=LoopClock(world.clock, self.loop),
            programs=[worker, *programs()] if late_programs else [worker, sink, *programs()],
            seed=self.rng.getrandbits(32),
            budget={"usd": 2_000_000},
            grant=["net.http:*", "process.*", "human.ask", "events.*", "db.*", "fs.read:/sim/**", "fs.write:/sim/**"],
            lease_s=world.lease_s,
            snapshot_every_events=world.snapshot_every,
            mailbox_messages_max=world.mailbox_max,
        )
        self.kernel.scheduler.order = self._order
        self.loop.on_idle = self._idle
        self.suspects = inspections.Suspects()
        for scene in world.scenes:
            scene.furnish(self)

    # ------------------------------------------------------------------ looking

    def _order(self, batch: list[Any]) -> list[Any]:
        """Called at the start of each round: what the last one did is looked at, and the seed says who goes first."""
        self.world.report(invariants.inspect(self.kernel, overrun_usd=7 * self.world.provider.overruns))
        if self.world.scenes:
            self.world.report(inspections.inspect(self.kernel))
        if len(batch) > 1:
            self.rng.shuffle(batch)
            if self.rng.random() < 0.2:
                self.kernel.scheduler.push(batch.pop())
        return batch

    def _idle(self) -> None:
        self.world.report(invariants.inspect_idle(self.kernel))
        if self.world.scenes:
            loose = self.world.ledger.parts.supervised.loose
            self.world.report(inspections.inspect_idle(self.kernel, self.suspects, loose=loose))

    def heard(self, event: Event) -> None:
        world = self.world
        if event.seq:
            if self.next_seq and event.seq != self.next_seq:
                world.violate("events", f"row {event.seq} was told where {self.next_seq} was due")
            self.next_seq = event.seq + 1
        elif event.kind == "process.state_changed":
            world.report(invariants.move(event.pid, event.data["old_state"], event.data["new_state"]))
        elif event.kind == "message.dropped":
            self.dropped[event.pid] = self.dropped.get(event.pid, 0) + event.data["count"]
        elif event.kind == "process.diverged":
            world.violate("replay", f"{event.pid}: {event.data['message']}")
        if event.kind == "interrupt.created":
            self.asked(event.data["id"], event.data["kind"])
        if self.rng.random() < 0.01:
            raise RuntimeError("a listener that fails on purpose")

    def asked(self, interrupt_id: str, kind: str) -> None:
        driver.answer(self.world, self, interrupt_id, kind)

    def committed(self, records: list[Record]) -> None:
        """Rows of this life became durable."""
        ledger = self.world.ledger
        for record in records:
            pid = record[2]
            before = ledger.processes[pid].dropped if pid in ledger.processes else 0
            self.world.report(ledger.add(Record._make(record)))
            books = ledger.processes.get(pid)
            if books is not None and books.dropped > before:
                self.unread[pid] = self.unread.get(pid, 0) + books.dropped - before
                if self.unread[pid] > self.dropped.get(pid, 0):
                    self.world.violate("message_lost", f"{pid} lost {self.unread[pid]} messages without an Event")
        self.world.report(ledger.parts.ties.committed())

    # ------------------------------------------------------------------ the end

    def crash(self) -> None:
        """Nothing after this happens."""
        self.crashed = True
        self.store.dead = True
        self.loop.halt()

    def bury(self) -> None:
        """Let go of everything without letting any of it run on as if the kernel still lived."""
        kernel = self.kernel
        self.store.dead = True
        kernel.scheduler.stopped = True
        kernel.core.stopping = True
        kernel.listeners.clear()
        if kernel.journal is not None:
            kernel.journal.frozen = True
        for process in kernel.processes.values():
            if process.coroutine is not None:
                with suppress(BaseException):
                    process.coroutine.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of what a task held and had no time to await
            for task in asyncio.all_tasks(self.loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # the world ended; it is meant
                with suppress(BaseException):
                    task.get_coro().close()
        self.loop._ready.clear()
        self.loop._scheduled.clear()
        if not self.loop.is_running():
            self.loop.close()


class World:
    """Everything that follows from one seed."""

    def __init__(
        self,
        seed: int,
        *,
        lives_max: int = 4,
        rough: bool = True,
        verbose: bool = False,
        cast: tuple[str, ...] | None = None,
    ) -> None:
        self.seed = seed
        self.rng: ProcessRandom = make_random(seed)
        self.verbose = verbose
        self.clock = SimClock(1_700_000_000.0)
        self.disk = MemoryStore(store_id=f"world{seed}")
        self.ledger = Ledger()
        self.violations: list[Violation] = []
        rng = self.rng
        self.lives_wanted = rng.randint(1, lives_max)
        self.lease_s = rng.choice([300.0, 900.0])
        self.snapshot_every = rng.choice([30, 100, 100_000])
        self.mailbox_max = rng.choice([1, 2, 5, 50])
        self.rough = rough
        self.provider = Provider(make_random(rng.getrandbits(32)), rough=rough)
        self.provider.on_perform = self._judge
        generator = Generator(make_random(rng.getrandbits(32)))
        self.roots = {f"r{number}": generator.root() for number in range(rng.randint(2, 4))}
        self.may = generator.may
        self.cast = cast_of(seed) if cast is None else cast
        self.horizon_s = _HORIZON_S if not self.cast else _HORIZON_WITH_SCENES_S
        if self.cast:  # the programs are the background here
            self.roots = dict(list(self.roots.items())[:1])
        self.scenes = make_scenes(self, self.cast)
        self.lives: list[Life] = []
        self.acked: list[tuple[int, str]] = []  # (seq, what) that the kernel said is durable
        self.killed: set[str] = set()  # pids whose kill was acknowledged
        self.spawned: set[str] = set()
        self.full_until = 0.0
        self.points_visited: dict[str, int] = dict.fromkeys(
            (name for name in POINTS if name not in POINTS_OF_SHARDS), 0
        )
        self._point: tuple[str, int] | None = None

    # ------------------------------------------------------------------ findings

    def report(self, violations: Any) -> None:
        for violation in violations:
            self.violate(*violation)

    def violate(self, name: str, detail: str) -> None:
        if len(self.violations) < _VIOLATIONS_MAX:
            self.violations.append(Violation(name, detail))

    def _judge(self, key: str, request: dict[str, Any]) -> None:
        if any(life.fenced and life.loop is asyncio._get_running_loop() for life in self.lives):
            self.violate("fenced", f"{key} ({request['kind']}) was performed by a kernel that had lost the store")
            return
        if request["kind"] == "stage":
            self.report(self.ledger.parts.pipelines.judge(request["pid"], request, request["calls"]))
            return
        effect = EFFECTS[request["kind"]]
        tries = effect.retry.max_attempts if effect.retry is not None else 1
        call = call_of(key)
        count = self.provider.performed[key]
        self.report(self.ledger.judge_act(call, request, count, idempotent=effect.idempotent, tries=tries))
        for need in request["needs"]:
            if need not in self.may[request["label"]]:
                self.violate("grant", f"{key} needed {need}, which {request['label']} may not")
        if self.lives[-1].crashed:
            self.violate("fenced", f"{key} was performed by a kernel that had crashed")

    def hash(self) -> str:
        """Of every row that ever was, times included: equal seeds give equal runs."""
        digest = blake2b(digest_size=16)
        for row in self.ledger.rows:
            digest.update(repr(tuple(row)).encode())
        return digest.hexdigest()

    # ------------------------------------------------------------------ running

    def run(self) -> None:
        # Few worlds end as many processes as a snapshot keeps: in every other one it puts them away at once.
        ended_kept = snapshots._ENDED_KEPT if self.seed % 2 == 0 else 2
        with use(self.provider), intercept(self._visit), patch.object(snapshots, "_ENDED_KEPT", ended_kept):
            for number in range(self.lives_wanted):
                last = number == self.lives_wanted - 1
                ending = "end" if last else self._draw_ending()
                self._live(Life(self, number), ending)
            self._check_acknowledged()
            self.report(invariants.supervisor_window(self.rng))
            if not self.violations:
                self.report(replayed.fold_agrees(self))
                self.report(replayed.replay_ends(self))

    def _draw_ending(self) -> str:
        return self.rng.choices(list(ENDINGS), list(ENDINGS.values()))[0]

    def _visit(self, name: str) -> None:
        """A named point was reached by the newest life."""
        life = self.lives[-1] if self.lives else None
        if life is None or life.crashed or life.loop is not asyncio._get_running_loop():
            return
        self.points_visited[name] += 1
        if self._point is None or self._point[0] != name:
            return
        left = self._point[1] - 1
        self._point = (name, left) if left > 0 else None
        if left <= 0:
            life.crash()
            raise SimulatedCrash(name)

    def _live(self, life: Life, ending: str) -> None:
        self.lives.append(life)
        self._say(f"life {life.number} begins, to end by {ending}")
        self._point = None
        if ending == "point":
            passed = [name for name in POINTS if name not in POINTS_OF_SHARDS]
            points = [name for name in passed if self.scenes or name not in POINTS_OF_PARTS]
            self._point = (self.rng.choice(points), self.rng.choice([1, 1, 2, 3, 5, 8, 13, 30]))
        elif ending in ("moment", "paused"):
            delay = self.rng.choice([0.0, 0.5, 3.0, 20.0, 100.0, 1000.0]) * self.rng.random()
            life.loop.call_later(delay, life.crash if ending == "moment" else life.loop.halt)
        task = life.loop.create_task(driver.drive(self, life, ending=ending))
        task.add_done_callback(lambda _: life.loop.halt())
        self._run_loop(life)
        if ending == "paused" and not task.done() and not life.crashed and life.kernel.journal is not None:
            self._take_over(life, task)
        if not life.crashed and task.done():
            error = task.exception() if not task.cancelled() else None
            if error is not None and not isinstance(error, SimulatedCrash):
                self.violate("ends", f"life {life.number} ended with {error!r}")
        self._complaints(life)
        life.bury()
        if not self.rng.random() < 0.5 and life.crashed:
            self._refused_first()
        self.clock.stall(self.rng.choice([0.0, 1.0, 100.0]))

    def _run_loop(self, life: Life) -> None:
        try:
            life.loop.run_forever()
        except Deadlock:
            self.violate("ends", f"life {life.number}: {self._stuck(life)}")

    def _stuck(self, life: Life) -> str:
        states = [f"{pid} {p.state}" for pid, p in life.kernel.processes.items() if p.exit is None]
        return "nothing is ready and no timer is set; " + (", ".join(states) or "no process lives")

    def _take_over(self, life: Life, task: asyncio.Task[Any]) -> None:
        """The owner sleeps past its lease; another kernel opens the store; the sleeper wakes up and must do no harm."""
        life.paused = True
        self.clock.stall(self.lease_s + 1.0)
        self._wait_for_lease()
        usurper = Life(self, life.number + 100)
        self.lives.append(usurper)
        brief = usurper.loop.create_task(driver.drive_briefly(self, usurper))
        brief.add_done_callback(lambda _: usurper.loop.halt())
        self._run_loop(usurper)
        if brief.done() and not brief.cancelled() and brief.exception() is not None:
            self.violate("fenced", f"the second kernel could not take over: {brief.exception()!r}")
        self._complaints(usurper)
        usurper.bury()
        self._say("the sleeper wakes up")
        life.fenced = True
        life.loop.call_later(10 * self.lease_s, life.loop.halt)
        self._run_loop(life)
        if life.kernel.failure is None and not life.kernel.stopping:
            self.violate("fenced", "a kernel whose store was taken over did not notice")
        if task.done() and not task.cancelled():
            task.exception()  # retrieved, or asyncio would log it; it may be the Conflict

    def _refused_first(self) -> None:
        """Open at once, while the dead owner's lease still runs: refused, unless the lease is over."""
        holder = self.disk.holder()
        if holder is None or holder.expires_at <= self.clock.now():
            return
        life = Life(self, 900)

        async def try_it() -> None:
            try:
                await life.kernel.start()
            except Conflict:
                return
            self.violate("fenced", "a store was opened while another owner's lease ran")

        life.loop.run_until_complete(try_it())
        life.bury()

    def _wait_for_lease(self) -> None:
        holder = self.disk.holder()
        if holder is not None and holder.expires_at > self.clock.now():
            self.clock.stall(holder.expires_at - self.clock.now())

    def _complaints(self, life: Life) -> None:
        for text in life.loop.complaints:
            if not any(expected in text for expected in _EXPECTED):
                self.violate("contained", text)

    def _check_acknowledged(self) -> None:
        for seq, what in self.acked:
            if seq > len(self.ledger.rows):
                self.violate("acknowledged", f"{what} was acknowledged as row {seq} and is not in the journal")

    def _say(self, text: str) -> None:
        if self.verbose:
            import sys

            print(f"[{self.clock.monotonic():12.3f}] {text}", file=sys.stderr)
