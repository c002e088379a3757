"""Supervised trees of every strategy, with children that crash, hang, end and are restarted; links, monitors, names.

`draw_tree` draws one supervisor as plain data: strategy, intensity, back-off, children, some of them supervisors.
`charge` is the program of every child: it follows its words, some of which end it. `bond` spawns others, ties itself to
them by links and monitors and may trap exits. Around them the scene gives commands as an operator would (start,
terminate, restart, delete a child), puts processes in groups, writes on a blackboard, and stops the trees at last.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from lyra.core.ids import ProcessRandom
from lyra.errors import LyraError
from lyra.kernel import Child
from verify.simulation.provider import EFFECTS
from verify.simulation.scenes import Scene

if TYPE_CHECKING:
    from verify.simulation.world import Life, World

__all__ = ["PROGRAMS", "WORDS", "Trees", "bond", "charge", "draw_tree"]

# What a child may do next, and how often: each takes some time, so that a crash is never a spin.
WORDS: Final[dict[str, int]] = {
    "act": 8,  # an effect, which may fail and take the child with it
    "sleep": 8,
    "listen": 4,  # waits for a message that may never come
    "maybe": 3,  # crashes one time in three
    "crash": 2,
    "end": 2,
    "shutdown": 1,
    "odd": 1,  # exits with a reason of its own
}
_STRATEGIES: Final = ("one_for_one", "one_for_all", "rest_for_one", "stop", "escalate", "simple_one_for_one")
_GROUPS: Final = ("red", "blue")


class Crash(Exception):
    """A child that fails because its words say so."""


async def charge(ctx: Any, spec: dict[str, Any], extra: int = 0) -> Any:
    """A supervised child: it does its words in order, then begins again or waits for ever."""
    try:
        await ctx.sleep(spec["delay_s"])
        if spec["ready"]:
            ctx.ready()
        while True:
            for word in spec["words"]:
                await ctx.sleep(spec["pause_s"])
                if word == "end":
                    return [spec["label"], extra]
                await _do_word(ctx, word, spec)
            if not spec["again"]:
                await ctx.receive()
    except asyncio.CancelledError:
        if spec["stubborn"]:
            await ctx.sleep(2.0)
        raise


async def _do_word(ctx: Any, word: str, spec: dict[str, Any]) -> None:
    if word == "act":
        request = {"kind": "fetch", "label": spec["label"], "needs": [], "micro_usd": 0, "number": 1}
        await ctx.do(EFFECTS["fetch"], request)
    elif word == "sleep":
        await ctx.sleep(7.0)
    elif word == "listen":
        await ctx.receive(timeout=spec["pause_s"])
    elif word == "crash" or (word == "maybe" and ctx.random.random() < 1 / 3):
        raise Crash(spec["label"])
    elif word in ("shutdown", "odd"):
        ctx.exit(word)


async def bond(ctx: Any, spec: dict[str, Any]) -> Any:
    """Ties itself to processes it spawns, and tells what it heard of their ends."""
    if spec["traps"]:
        ctx.trap_exit(True)
    refs: dict[str, str] = {}
    for number, (how, child) in enumerate(spec["others"]):
        pid = ctx.spawn(charge, child).pid
        if how in ("link", "both", "untied"):
            ctx.link(pid)
        if how in ("monitor", "both", "unwatched"):
            refs[pid] = ctx.monitor(pid)
        await ctx.sleep(0.2 * number)
        if how == "untied":
            ctx.unlink(pid)
        if how == "unwatched":
            ctx.demonitor(refs[pid])
    heard = []
    for _ in range(2 * len(spec["others"])):
        message = await ctx.receive(timeout=60.0)
        if message is None:
            break
        heard.append([type(message).__name__, getattr(message, "reason", "")])
    return heard


PROGRAMS: Final = (charge, bond)


# ---------------------------------------------------------------------- drawing


def draw_charge(rng: ProcessRandom, label: str, *, ready: bool = False) -> dict[str, Any]:
    return {
        "label": label,
        "words": rng.choices(list(WORDS), list(WORDS.values()), k=rng.randint(1, 5)),
        "delay_s": rng.choice([0.0, 0.1, 2.0]),
        "pause_s": rng.choice([0.5, 5.0, 30.0]),
        "again": rng.random() < 0.5,
        "ready": ready,
        "stubborn": rng.random() < 0.15,
    }


def draw_tree(rng: ProcessRandom, label: str, depth: int = 0) -> dict[str, Any]:
    """A supervisor as plain data; `children` are charges or further trees."""
    strategy = rng.choice(_STRATEGIES)
    dynamic = strategy == "simple_one_for_one"
    auto = "never" if dynamic else rng.choice(["never", "never", "any_significant", "all_significant"])
    children = []
    for number in range(1 if dynamic else rng.randint(1, 4)):
        child_id = f"{label}.{number}"
        restart = rng.choice(["permanent", "permanent", "transient", "temporary"])
        ready = rng.random() < 0.3
        children.append(
            {
                "id": child_id,
                "restart": restart,
                "shutdown_s": rng.choice([0.5, 5.0, "kill", "infinity"]),
                "significant": auto != "never" and restart != "permanent" and rng.random() < 0.5,
                "name": None if dynamic or rng.random() < 0.6 else f"n:{child_id}",
                "wait_ready": ready,
                "charge": draw_charge(rng, child_id, ready=ready),
                "tree": draw_tree(rng, child_id, depth + 1)
                if depth < 1 and not dynamic and rng.random() < 0.2
                else None,
            }
        )
    return {
        "children": children,
        "strategy": strategy,
        "max_restarts": rng.choice([0, 1, 2, 3, 5, -1]),
        "window_s": rng.choice([1.0, 20.0, 60.0]),
        "auto_shutdown": auto,
        "backoff": {"kind": "exponential", "initial_s": 0.5, "max_s": 20.0} if rng.random() < 0.3 else None,
    }


def make_child(plan: dict[str, Any]) -> Child:
    if plan["tree"] is not None:
        settings = {key: value for key, value in plan["tree"].items() if key != "children"}
        children = [make_child(child) for child in plan["tree"]["children"]]
        restart = "transient" if plan["restart"] == "temporary" else plan["restart"]
        return Child.supervisor(plan["id"], children, restart=restart, significant=False, **settings)
    return Child(
        plan["id"],
        charge,
        (plan["charge"],),
        restart=plan["restart"],
        shutdown_s=plan["shutdown_s"],
        significant=plan["significant"],
        name=plan["name"],
        wait_ready=plan["wait_ready"],
    )


# ---------------------------------------------------------------------- the scene


class Trees(Scene):
    def __init__(self, world: World, rng: ProcessRandom) -> None:
        super().__init__(world, rng)
        self.trees = {f"t{number}": draw_tree(rng, f"t{number}") for number in range(rng.randint(1, 3))}
        self.guards = {f"g{number}": draw_charge(rng, f"g{number}") for number in range(rng.randint(0, 1))}
        kinds = ("link", "monitor", "both", "untied", "unwatched")
        self.bonds = {
            f"b{number}": {
                "traps": rng.random() < 0.5,
                "others": [[rng.choice(kinds), draw_charge(rng, f"b{number}.{k}")] for k in range(rng.randint(1, 3))],
            }
            for number in range(rng.randint(1, 2))
        }
        self.children_started = 0
        self.trouble = {self._command: 3, self._gather: 2, self._write: 2}

    async def begin(self, world: World, life: Life) -> None:
        kernel = life.kernel
        for pid, tree in self.trees.items():
            children = [make_child(child) for child in tree["children"]]
            settings = {key: value for key, value in tree.items() if key != "children"}
            kernel.supervise(children, pid=pid, name=f"s:{pid}", **settings)
        for pid, spec in self.guards.items():
            kernel.spawn(charge, spec, pid=pid, supervision={"max_restarts": 2, "window_s": 30.0})
        for pid, bonds in self.bonds.items():
            kernel.spawn(bond, bonds, pid=pid)
        for name in _GROUPS:
            kernel.groups.create(name, exist_ok=True)
        await kernel.durable()
        for pid in (*self.trees, *self.guards, *self.bonds):
            if pid not in world.ledger.processes:
                world.violate("acknowledged", f"{pid} was acknowledged as started and is not in the journal")

    async def finish(self, world: World, life: Life) -> None:
        """Trees are stopped by their handles, and stop all the way down."""
        await asyncio.sleep(life.rng.choice([5.0, 60.0, 300.0]))
        for pid in self.trees:
            process = life.kernel.processes.get(pid)
            if process is None or process.exit is not None:
                continue
            tree = life.kernel.supervisor(pid)
            pids = [child.pid for child in tree.which_children() if child.pid is not None]
            try:
                async with asyncio.timeout(600.0):
                    await tree.stop()
            except TimeoutError:
                world.violate("ends", f"the supervisor {pid} was told to stop and did not")
                continue
            left = [child for child in pids if life.kernel.processes[child].exit is None]
            ended = life.kernel.processes[pid].exit
            if left and not (ended is not None and ended.reason == "killed"):  # then they may still tidy up
                world.violate("children", f"{pid} has stopped and left {', '.join(left)} behind")

    # ------------------------------------------------------------------ trouble

    async def _command(self, world: World, life: Life) -> None:
        """An operator at work; refusals are part of it."""
        for _ in range(life.rng.randint(1, 4)):
            await asyncio.sleep(life.rng.choice([0.1, 5.0, 60.0]) * life.rng.random())
            pid = life.rng.choice(list(self.trees))
            process = life.kernel.processes.get(pid)
            if process is None or process.exit is not None:
                continue
            try:
                async with asyncio.timeout(120.0):
                    await self._one_command(world, life, pid)
            except (TimeoutError, Crash):
                pass  # a supervisor that waits for a stubborn child answers later, one that escalates fails as it did
            except LyraError as refusal:
                if refusal.code == "conflict":
                    raise

    async def _one_command(self, world: World, life: Life, pid: str) -> None:
        rng, tree = life.rng, life.kernel.supervisor(pid)
        ids = [child.id for child in tree.which_children()]
        verb = rng.choice(["start", "start", "terminate", "restart", "delete", "look"])
        if verb == "start":
            self.children_started += 1
            label = f"{pid}+{self.children_started}"
            dynamic = self.trees[pid]["strategy"] == "simple_one_for_one"
            child = None if dynamic else Child(label, charge, (draw_charge(rng, label),), restart="transient")
            handle = await tree.start_child(child, args=(self.children_started,) if dynamic else ())
            if handle.pid not in world.ledger.processes:
                world.violate("acknowledged", f"{handle.pid} was acknowledged as started and is not in the journal")
        elif verb == "look" or not ids:
            counts = await tree.count_children()
            if not 0 <= counts["active"] <= counts["specs"]:
                world.violate("children", f"{pid} counts {counts}")
        else:
            commands = {"terminate": tree.terminate_child, "restart": tree.restart_child, "delete": tree.delete_child}
            await commands[verb](rng.choice(ids))

    async def _gather(self, _world: World, life: Life) -> None:
        """Processes join and leave groups; everybody in one is told something."""
        kernel, rng = life.kernel, life.rng
        for _ in range(rng.randint(1, 4)):
            await asyncio.sleep(rng.choice([0.1, 5.0, 60.0]) * rng.random())
            alive = [pid for pid, process in kernel.processes.items() if process.exit is None]
            name = rng.choice(_GROUPS)
            if alive and name in kernel.groups.names():
                (kernel.groups.join if rng.random() < 0.7 else kernel.groups.leave)(name, rng.choice(alive))
                if rng.random() < 0.3:
                    kernel.groups.broadcast(name, "to all")

    async def _write(self, world: World, life: Life) -> None:
        """What is on a blackboard and acknowledged is in the journal."""
        kernel, rng = life.kernel, life.rng
        await asyncio.sleep(rng.choice([0.1, 5.0, 60.0]) * rng.random())
        name = rng.choice(_GROUPS)
        if name not in kernel.groups.names():
            return
        mark = f"mark-{life.number}-{rng.getrandbits(30)}"
        known = len(world.ledger.rows)
        await kernel.groups.bb_set(name, rng.choice("abc"), mark)
        if not any(row[3] == "group.set" and mark.encode() in row[4] for row in world.ledger.rows[known:]):
            world.violate("acknowledged", f"{mark} on the blackboard was acknowledged and is not in the journal")
        if rng.random() < 0.3:
            kernel.groups.bb_delete(name, rng.choice("abc"))
