"""Supervisors and subsystems in simulated worlds: every scene takes place, and every check of them can fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lyra.core import codec
from lyra.core.envelope import Envelope
from lyra.core.ids import make_random
from lyra.core.policies.policy import RestartWindow
from lyra.kernel import Kernel, PipelineConfig
from lyra.kernel.journal import history as recall
from lyra.kernel.journal.journal import Journal
from lyra.kernel.programs.handle import acknowledge
from lyra.kernel.supervision.supervisor import Run
from verify.simulation.scenes import CASTS, cast_of
from verify.simulation.scenes.pipelines import SHAPES, draw_pipeline
from verify.simulation.scenes.trees import draw_tree
from verify.simulation.sim import run_seed
from verify.simulation.world import World

SEEDS_MAX = 80
Plant = Callable[[pytest.MonkeyPatch], None]
_KERNEL = Kernel()  # its parts say which classes they are


def _double(kind: str) -> Plant:
    """The journal writes rows of one kind twice."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        write = Journal.write

        def twice(self, pid, row_kind, data):
            if row_kind == kind:
                write(self, pid, row_kind, data)
            return write(self, pid, row_kind, data)

        patch.setattr(Journal, "write", twice)

    return plant


def _never_give_up(patch):
    patch.setattr(RestartWindow, "record", lambda self, now: self._times.append(now) or True)


def _give_up_early(patch):
    patch.setattr(RestartWindow, "record", lambda self, now: False)


def _leave_them_running(patch):
    """A supervisor thinks that it has stopped a child."""

    async def at_once(self, pid):
        return None

    patch.setattr(Run, "_tell_to_stop", lambda self, pid, shutdown_s, kind: None)
    patch.setattr(Run, "_until_gone", at_once)


def _leave_it_standing(patch):
    """A supervisor counts a restart and forgets to start."""

    async def forget(self, row):
        self._set(row, None, "stopped")

    patch.setattr(Run, "_restart_now", forget)


def _untold(patch):
    """A process that traps exits is not told of them."""
    links = type(_KERNEL.links)
    signal = links.signal

    def deaf(self, process, what, error=None):
        if not process.traps:
            signal(self, process, what, error)

    patch.setattr(links, "signal", deaf)


def _last_first(patch):
    """The line is read from its end."""

    def last(self):
        ready = [(entry.priority, entry.order, pid) for pid, entry in self.entries.items() if entry.state == "ready"]
        return max(ready)[2] if ready else None

    patch.setattr(type(_KERNEL.lifecycle.state), "first", last)


def _no_bounds(patch):
    patch.setattr(Envelope, "find_reached_bound", lambda self: None)


def _no_windows(patch):
    windows = type(_KERNEL.rate_limiter).check_rate_limit.__globals__["_Windows"]
    patch.setattr(windows, "count", lambda self, window, now: 0)


def _tell_twice(patch):
    bus = type(_KERNEL.bus)
    fan_out = bus._fan_out

    async def twice(self, message):
        await fan_out(self, message)
        return await fan_out(self, message)

    patch.setattr(bus, "_fan_out", twice)


def _health_without_a_row(patch):
    def quiet(self, name, status):
        self.state.services[name]["status"] = status
        return acknowledge(self.core)

    patch.setattr(type(_KERNEL.services), "update_health", quiet)


def _always_room(patch):
    patch.setattr(type(_KERNEL.services), "_room", staticmethod(lambda service, live: 1))


def _kept_slots(patch):
    """A slot that was taken by hand is not given back."""
    patch.setattr(type(_KERNEL.services), "release_slot", lambda self, name: True)


def _forget_stages(patch):
    """A restart takes finished runs of stages for unfinished ones, and asks about none."""
    finished = recall._apply_finished

    def undone(state, row, seq, time):
        finished(state, row, seq, time)
        entry = state.effects.get(row.key)
        if entry is not None and entry.name.startswith("pipeline:"):
            entry.done, entry.idempotent = False, True

    patch.setitem(recall._APPLY, "effect.finished", undone)


def _run_on(patch):
    """An entry with a question goes on running."""
    patch.setattr(type(_KERNEL.lifecycle), "pause_entry", lambda self, pid: None)


TREES, PIPELINES, WORKERS = ("trees",), ("pipelines",), ("workers",)

# what is broken → in which worlds it shows, and the bug
PLANTED: dict[str, tuple[str, tuple[str, ...], Plant]] = {
    "a supervisor restarts for ever": ("supervisor_window", TREES, _never_give_up),
    "a supervisor gives up at once": ("supervisor_window", TREES, _give_up_early),
    "children are left running": ("children", TREES, _leave_them_running),
    "a permanent child stands still": ("children", TREES, _leave_it_standing),
    "ends are not told": ("links", TREES, _untold),
    "the dead stay members": (
        "groups", TREES, lambda patch: patch.setattr(type(_KERNEL.groups), "remove_ended", lambda self, pid: None),
    ),
    "the last is first": ("turns", WORKERS, _last_first),
    "a move is written twice": ("transitions", WORKERS, _double("pcb.moved")),
    "a report is written twice": ("stage_once", PIPELINES, _double("pipeline.reported")),
    "no bound stops a pipeline": ("pipeline_bounds", PIPELINES, _no_bounds),
    "finished stages run again": ("never_again", PIPELINES, _forget_stages),
    "no request is counted": ("rates", WORKERS, _no_windows),
    "subscribers are told twice": ("bus", WORKERS, _tell_twice),
    "a state changes without a row": ("state_is_fold", WORKERS, _health_without_a_row),
    "a full service accepts": ("slots", WORKERS, _always_room),
    "slots are kept": ("slots", WORKERS, _kept_slots),
    "who asks goes on": ("interrupt_waiting", WORKERS, _run_on),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("bug", PLANTED)
def test_a_bug_planted_in_a_supervisor_or_subsystem_is_found(bug, monkeypatch):
    """A kernel with this bug in it does not get through a few dozen worlds."""
    name, cast, plant = PLANTED[bug]
    plant(monkeypatch)
    for seed in range(1, SEEDS_MAX):
        if any(invariant == name for invariant, _ in run_seed(seed, cast=cast).violations):
            return
    pytest.fail(f"{SEEDS_MAX} worlds did not show that {bug}")


def test_every_cast_is_drawn_and_most_worlds_keep_to_programs_or_one_scene():
    drawn = [cast_of(seed) for seed in range(1, 201)]
    assert set(drawn) == set(CASTS)
    assert drawn.count(()) > 40


def test_scenes_are_plain_data_and_follow_from_their_seed():
    for draw in (draw_tree, draw_pipeline):
        first, second = draw(make_random(7), "x"), draw(make_random(7), "x")
        assert first == second
        assert codec.decode(codec.encode(first)) == first


def test_every_shape_of_pipeline_is_accepted():
    for name, shape in SHAPES.items():
        for seed in range(30):
            assert PipelineConfig.of({"name": name, **shape(make_random(seed))}).agents


@pytest.mark.slow
def test_what_supervisors_and_subsystems_do_really_happens():
    """Restarts, dropped branches, questions of every end, refusals: a world in which nothing happens proves nothing."""
    kinds: dict[str, int] = {}
    words: set[str] = set()
    for cast in (TREES, PIPELINES, WORKERS):
        for seed in (1, 2, 3, 4, 5, 15):  # in the last one a question expires
            world = World(seed, cast=cast)
            world.run()
            assert world.violations == []
            for row in world.ledger.rows:
                kinds[row.kind] = kinds.get(row.kind, 0) + 1
                if row.kind == "pcb.interrupt_ended":
                    words.add(codec.decode(row.data)["status"])
            words |= {"restart" for window in world.ledger.parts.supervised.windows.values() if window.times}
            words |= {"gave up" for window in world.ledger.parts.supervised.windows.values() if window.over}
    assert words >= {"resolved", "expired", "cancelled", "restart", "gave up"}
    for kind in (
        "process.linked", "process.unlinked", "process.monitored", "process.demonitored", "process.trapping",
        "group.joined", "group.left", "group.set", "group.unset", "pcb.submitted", "pcb.moved", "pipeline.started",
        "pipeline.reported", "pipeline.waiting", "pipeline.resumed", "pipeline.terminated", "interrupt.resolved",
        "interrupt.expired", "interrupt.cancelled", "service.registered", "service.health_changed", "rate.counted",
    ):  # fmt: skip
        assert kinds.get(kind), kind
