"""Every invariant can fail: for each one a bug is planted, and the simulation finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from lyra.core.budgets.budget import Budget, Reservation, lanes
from lyra.core.ids import make_random
from lyra.core.policies.policy import RestartWindow
from lyra.core.rights.capability import Grant
from lyra.kernel.base import waiting
from lyra.kernel.base.core import Core
from lyra.kernel.effects import door
from lyra.kernel.interrupts.service import Interrupts
from lyra.kernel.journal import history as recall
from lyra.kernel.journal.journal import Journal
from lyra.kernel.process.mailbox import Mailboxes
from lyra.kernel.process.process import Process
from lyra.kernel.process.scheduler import Scheduler
from lyra.kernel.programs.context import Context
from lyra.kernel.programs.lifetime import Lifetimes
from lyra.store.memory import MemoryStore
from tests.cases import cases
from tests.verify.simulation.test_parts import PLANTED as IN_PARTS
from verify.simulation.failing_disk import FaultStore
from verify.simulation.invariants import INVARIANTS, PROMISES, supervisor_window
from verify.simulation.provider import Provider
from verify.simulation.sim import run_seed, same_twice

SEEDS_MAX = 60
# A world that shows the bug, where the first few do not: it is tried first.
SHOWN_BY = {
    "acknowledged": 22,
    "contained": 49,
    "ends": 14,
    "fenced": 6,
    "grant": 4,
    "interrupt_waiting": 59,
    "mailbox_order": 31,
    "parents": 8,
    "slots": 2,
    "spent_within_limit": 10,
}
Plant = Callable[[pytest.MonkeyPatch], None]


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


def _skip_rows(patch):
    """A batch reaches the store without its first row, as far as anybody can see."""
    append = FaultStore.append

    def shorter(self, records, epoch):
        committed = self._life.committed
        self._life.committed = lambda rows: committed(rows[1:] if len(rows) > 1 else rows)
        try:
            append(self, records, epoch)
        finally:
            self._life.committed = committed

    patch.setattr(FaultStore, "append", shorter)


def _never_refuse(patch):
    def reserve(self, usage):
        for scope in self._chain:
            scope._taken += usage.packed
        return Reservation(self, usage.packed)

    patch.setattr(Budget, "reserve", reserve)


def _generous_children(patch):
    child = Budget.child

    def larger(self, limits):
        scope = child(self, limits)
        scope._limits += (1 << 60) - lanes(scope._limits)[0]
        return scope

    patch.setattr(Budget, "child", larger)


def _forgetful_parents(patch):
    """Children of an ended process stay where they were."""
    end = Lifetimes._end

    def keep(self, process, ended):
        children = dict(process.children or {})
        end(self, process, ended)
        for child in children.values():
            child.parent = process

    patch.setattr(Lifetimes, "_end", keep)


def _lost_pushes(patch):
    """Every seventh process made ready is forgotten."""
    push, count = Scheduler.push, [0]

    def lossy(self, process):
        count[0] += 1
        if count[0] % 7:
            push(self, process)

    patch.setattr(Scheduler, "push", lossy)


def _forget_finished(patch):
    """A restart takes finished idempotent effects for unfinished ones."""
    finished = recall._apply_finished

    def undone(state, row, seq, time):
        finished(state, row, seq, time)
        entry = state.effects.get(row.key)
        if entry is not None and entry.kind == "do" and entry.idempotent:
            entry.done = False

    patch.setitem(recall._APPLY, "effect.finished", undone)


def _never_ask(patch):
    async def retry(self, attempt, entry):
        return False, None

    patch.setattr(door.Door, "_ask_about_doubt", retry)


def _start_unwritten(patch):
    """The door does not wait until a start is durable."""
    suspend = waiting.suspend

    async def hasty(process, waiters):
        if process.kernel.journal is None or waiters is not process.kernel.journal.waiters:
            await suspend(process, waiters)

    patch.setattr(door, "suspend", hasty)


def _last_in_first_out(patch):
    take = Mailboxes.take

    def newest(self, process, key):
        if len(process.inbox) > 1:
            process.inbox.rotate(1)
        return take(self, process, key)

    patch.setattr(Mailboxes, "take", newest)


async def _at_once(self, seq):
    await asyncio.sleep(0)


def _anybodys(patch):
    """A store that may be opened even while another kernel holds it."""
    acquire = MemoryStore.acquire

    def take(self, owner, *, now, ttl_s):
        self._lease = self._lease._replace(expires_at=0.0)
        return acquire(self, owner, now=now, ttl_s=ttl_s)

    patch.setattr(MemoryStore, "acquire", take)


def _drop_an_event(patch):
    committed = Core.on_commit

    def quiet(self, batch):
        committed(self, batch[1:] if len(batch) > 2 else batch)

    patch.setattr(Core, "on_commit", quiet)


def _broken_timer(patch):
    def fail(self, interrupt):
        raise RuntimeError("a bug in a timer")

    patch.setattr(Interrupts, "_expire", fail)


def _unkillable(patch):
    patch.setattr(Lifetimes, "stop_tree", lambda self, process, reason: None)


def _new_dice(patch):
    """Chance is drawn anew at each replay."""
    draws = [0]

    def fresh(self):
        draws[0] += 1
        return make_random(draws[0])

    patch.setattr(Context, "random", property(fresh))


def _wrong_move(patch):
    """A process goes straight from waiting to running in what it tells the world."""
    move = Process.move

    def astray(self, state):
        old = self.state
        move(self, state)
        if old == "waiting" and state == "ready":
            self.kernel.publish(self.pid, "process.state_changed", {"old_state": "waiting", "new_state": "running"})

    patch.setattr(Process, "move", astray)


def _hoarding(patch):
    """What was set aside for an act that did not happen is never free again."""
    settle = Budget.settle

    def hoard(self, reservation, actual=None):
        over = settle(self, reservation, actual)
        if actual is not None and not actual:
            for scope in self._chain:
                scope._taken += reservation.packed
        return over

    patch.setattr(Budget, "settle", hoard)


PLANTED: dict[str, Plant] = {
    "journal_dense": _skip_rows,
    "finished_started": _double("effect.finished"),
    "spent_within_limit": _never_refuse,
    "child_budget": _generous_children,
    "transitions": _wrong_move,
    "message_lost": lambda patch: patch.setattr(Mailboxes, "publish_dropped", lambda self, process, count, why: None),
    "parents": _forgetful_parents,
    "interrupt_waiting": lambda patch: patch.setattr(Interrupts, "_take_back", lambda self, *facts: None),
    "slots": _hoarding,
    "grant": lambda patch: patch.setattr(Grant, "check", lambda self, need: None),
    "idle": _lost_pushes,
    "never_again": _forget_finished,
    "at_most_once": _never_ask,
    "started_first": _start_unwritten,
    "mailbox_order": _last_in_first_out,
    "fenced": _anybodys,
    "acknowledged": lambda patch: patch.setattr(Journal, "wait_until_durable", _at_once),
    "budget_exact": lambda patch: patch.setattr(recall, "_add", lambda total, usage: None),
    "replay": _new_dice,
    "events": _drop_an_event,
    "contained": _broken_timer,
    "ends": _unkillable,
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name, monkeypatch):
    """A kernel with this bug in it does not get through a few dozen worlds."""
    PLANTED[name](monkeypatch)
    for seed in (SHOWN_BY.get(name, 1), *range(1, SEEDS_MAX)):
        if any(invariant == name for invariant, _ in run_seed(seed, cast=()).violations):
            return
    pytest.fail(f"{SEEDS_MAX} worlds did not show the bug planted against {name}")


def test_a_row_after_the_end_of_its_process_is_found(monkeypatch):
    _double("process.terminated")(monkeypatch)
    names = {name for seed in range(1, 10) for name, _ in run_seed(seed, cast=()).violations}
    assert "transitions" in names


def test_a_window_that_forgets_its_edge_is_found():
    """The supervisor's window includes its edge; one that does not is told from the real one."""

    class Exclusive(RestartWindow):
        def record(self, now):
            while self._times and now - self._times[0] >= self.supervision.window_s:
                self._times.popleft()
            return super().record(now)

    assert any(list(supervisor_window(make_random(seed), Exclusive)) for seed in range(50))
    assert not any(list(supervisor_window(make_random(seed))) for seed in range(cases(500)))


def test_a_world_that_is_no_function_of_its_seed_is_found(monkeypatch):
    perform, calls = Provider.perform, [0]

    async def moody(self, request, key):
        calls[0] += 1
        answer = await perform(self, request, key)
        return {**answer, "mood": calls[0]} if isinstance(answer, dict) else answer

    monkeypatch.setattr(Provider, "perform", moody)
    assert any("same_seed" in {name for name, _ in same_twice(seed).violations} for seed in range(1, 6))


def test_every_invariant_and_promise_has_a_planted_bug():
    in_parts = {name for name, _, _ in IN_PARTS.values()}
    assert set(PLANTED) | in_parts == set(INVARIANTS) | set(PROMISES)
