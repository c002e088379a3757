"""Every promise of a cluster can be broken: for each one a bug is planted, and the worlds find it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lyra.cluster.calls import CALLS
from lyra.cluster.client import Cluster
from lyra.cluster.host import Host
from lyra.core import codec
from lyra.core.budgets.borrowed import BorrowedBudget
from lyra.core.budgets.budget import Budget, Reservation
from lyra.kernel.base import waiting
from lyra.kernel.effects import door
from lyra.kernel.journal import history as recall
from lyra.kernel.journal.lease import Ownership
from lyra.kernel.process.scheduler import Scheduler
from lyra.kernel.programs.handle import Handle
from lyra.kernel.remote.acts import Acts
from lyra.kernel.remote.groups import SharedGroups
from lyra.kernel.remote.messages import Messages
from lyra.kernel.remote.part import CLIENT, RemoteState
from lyra.kernel.remote.posts import Remote
from lyra.kernel.remote.schedules import Schedules
from lyra.kernel.remote.services import SharedServices
from lyra.kernel.remote.shares import HomeBucket, Shares
from lyra.kernel.remote.ties import Ties
from lyra.kernel.services.registry import ServiceRegistry
from lyra.kernel.supervision.supervisor import Run
from lyra.store.memory import MemoryStore
from verify.simulation.cluster import programs
from verify.simulation.cluster.books import PROMISES
from verify.simulation.cluster.sim import run_seed

SEEDS_MAX = 60
# A world that shows the bug, where the first few do not: it is tried first.
SHOWN_BY = {
    "_never_ask": 58,
    "_endless_lease": 23,
    "_number_twice": 40,
    "_open_twice": 14,
}
Plant = Callable[[pytest.MonkeyPatch], None]


def _take_again(patch):
    """A post that comes a second time is taken a second time."""

    async def take(self, sender, first, posts):
        for number, raw in enumerate(posts, first):
            if number <= self.state.seen.get(sender, 0) + 1:
                self._take_one(sender, number, *codec.decode(raw))
        await self.core.journal.wait_until_durable(self.core.journal.seq)
        return self.state.seen.get(sender, 0)

    patch.setattr(Remote, "take", take)


def _answer_early(patch):
    """A shard says that it has posts before they are durable."""

    async def take(self, sender, first, posts):
        self.core.raise_if_closed()
        for number, raw in enumerate(posts, first):
            if number == self.state.seen.get(sender, 0) + 1:
                self._take_one(sender, number, *codec.decode(raw))
        return self.state.seen.get(sender, 0)

    patch.setattr(Remote, "take", take)


def _forget_to_carry(patch):
    """Posts that were on their way when their host died are not carried on."""
    patch.setattr(Remote, "on_restored", lambda self: None)


def _deliver_twice(patch):
    take = Messages._take_message

    def twice(self, sender, data):
        take(self, sender, data)
        take(self, sender, data)

    patch.setattr(Messages, "_take_message", twice)


def _lose_messages(patch):
    take, count = Messages._take_message, [0]

    def lossy(self, sender, data):
        count[0] += 1
        if count[0] % 7:
            take(self, sender, data)

    patch.setattr(Messages, "_take_message", lossy)


def _lose_spawns(patch):
    patch.setattr(Acts, "take", lambda self, sender, what, data, before: None)


def _no_answer_about_the_dead(patch):
    patch.setattr(Ties, "_take_watch", lambda self, sender, data: None)


def _silent_ends(patch):
    """The end of a process is not told to those that are linked to it."""
    ended = Ties.process_ended

    def silent(self, process, how):
        links = self.links.pop(process.pid, None)
        ended(self, process, how)
        if links is not None:
            self.links[process.pid] = links

    patch.setattr(Ties, "process_ended", silent)


def _forget_finished(patch):
    """A take-over takes finished idempotent effects for unfinished ones."""
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
        if waiters is not process.core.journal.waiters:
            await suspend(process, waiters)

    patch.setattr(door, "suspend", hasty)


def _endless_lease(patch):
    """A kernel believes in its lease until somebody tells it otherwise."""
    confirm = Ownership._confirm_renewal

    def for_ever(self, asked_s):
        confirm(self, asked_s)
        self._core.lease_until = float("inf")

    patch.setattr(Ownership, "_confirm_renewal", for_ever)


def _no_fence(patch):
    """The store takes rows of any epoch, from its end on."""
    append = MemoryStore.append

    def anybody(self, records, epoch):
        first, last = (records[0][0] if records else 0), self.last_seq()
        append(self, [(last + 1 + row[0] - first, *row[1:]) for row in records], self._lease.epoch)

    patch.setattr(MemoryStore, "append", anybody)


async def _known(self):
    return self


def _acknowledge_early(patch):
    patch.setattr(Handle, "_durable", _known)


def _number_twice(patch):
    """A client gives the number of a message that was not answered to the next one."""
    send = Cluster.send

    async def again(self, address, message):
        shard = address.partition("/")[0]
        before = self._sent.get(shard) or (f"{CLIENT}{id(self)}", 0)
        self._sent[shard] = before
        try:
            await send(self, address, message)
        except BaseException:
            self._sent[shard] = before
            raise

    patch.setattr(Cluster, "send", again)


def _open_twice(patch):
    """A host opens the shard that it asked for, also while a beat opens it."""

    async def ask(self, giver):
        shard = await self.carrier.call(
            self.view.hosts[giver].address, "give", {"to": self.name, "format": self.row.format}, timeout_s=60.0
        )
        if shard is not None:
            await self._open_shard(str(shard))

    patch.setattr(Host, "_ask_for_shard", ask)


def _lost_pushes(patch):
    """Every seventh process made ready is forgotten."""
    push, count = Scheduler.push, [0]

    def lossy(self, process):
        count[0] += 1
        if count[0] % 7:
            push(self, process)

    patch.setattr(Scheduler, "push", lossy)


def _deaf_waiters(patch):
    """What a process waits for abroad arrives, and the process is not woken."""
    take = Ties._take_end

    def deaf(self, data, awaited):
        self._waiting.pop(data["ref"], None)
        take(self, data, awaited)

    patch.setattr(Ties, "_take_end", deaf)


def _stale_answers(patch):
    """A cell forgets what it was told to remember now and then."""
    step, count = programs.asked_value, [0]

    def stale(value, asked):
        count[0] += 1
        return value if count[0] % 3 == 0 else step(value, asked)

    patch.setattr(programs, "asked_value", stale)


def _loose_tasks(patch):
    """A task that nobody awaits fails."""
    apply = Remote._on_commit

    def careless(self, seq):
        apply(self, seq)

        async def fail():
            raise RuntimeError("nobody sees this")

        self.core.loop.create_task(fail())

    patch.setattr(Remote, "_on_commit", careless)


def _forget_what_was_seen(patch):
    """A shard does not know which posts it has, now and then."""
    see = RemoteState._see

    def forgetful(self, sender, number):
        see(self, sender, 0 if number % 4 == 0 else number)

    patch.setattr(RemoteState, "_see", forgetful)


def _believe_copies(patch):
    """A blackboard is compared with the copy of the shard that asks, not at its home."""

    async def compare(self, name, data, *, tainted):
        matched = self._groups.state.groups[name].board.get(data["key"]) == data["expected"]
        if matched:
            await self._groups.bb_set(name, data["key"], data["value"])
        return matched

    patch.setattr(SharedGroups, "compare", compare)


def _never_refuse(patch):
    """A scope gives what it does not have."""

    def reserve(self, usage):
        for scope in self._chain:
            scope._taken += usage.packed
        return Reservation(self, usage.packed)

    patch.setattr(Budget, "reserve", reserve)
    patch.setattr(BorrowedBudget, "reserve", reserve)


def _fire_again(patch):
    """Each due time starts its program where it belongs, and on another shard, too."""
    begin = Schedules._begin

    def twice(self, name, entry, due):
        begin(self, name, entry, due)
        begin(self, name, {**entry, "shard": "s1"}, due)

    patch.setattr(Schedules, "_begin", twice)


def _go_back(patch):
    """A schedule forgets once what it has settled, and settles it again."""
    apply = Schedules.apply_noted

    def forgetful(self, pid, time, data):
        apply(self, pid, time, data)
        entry = self.entries.get(data.get("settled", ""))
        if entry is not None and entry["fired"] == 2:
            entry["fired"] = 3
            entry["last"] -= 20.0

    patch.setattr(Schedules, "apply_noted", forgetful)


def _lend_beyond(patch):
    """The home of a rate limit lends what is asked for."""

    def lend(self, shard, need, want, now):
        self.number += 1
        return [max(least, most) for least, most in zip(need, want, strict=True)]

    patch.setattr(HomeBucket, "lend", lend)


def _forget_levels(patch):
    """A new home of a rate limit begins with a full bucket."""
    patch.setattr(Shares, "apply_noted", lambda self, pid, time, data: None)


def _refill_slowly(patch):
    """The home of a rate limit refills it half as fast."""
    make = HomeBucket.__init__

    def slow(self, *args):
        make(self, *args)
        self.per_s = [per_s / 2 for per_s in self.per_s]

    patch.setattr(HomeBucket, "__init__", slow)


def _ask_twice(patch):
    """A request that was answered is made once more."""
    ask = SharedServices._ask_one

    async def twice(self, *args, **kwargs):
        await ask(self, *args, **kwargs)
        return await ask(self, *args, **kwargs)

    patch.setattr(SharedServices, "_ask_one", twice)


def _always_room(patch):
    patch.setattr(ServiceRegistry, "_room", staticmethod(lambda service, live: 1))


def _swap_answers(patch):
    """Who asks gets the answer to the request before, now and then."""
    read, before = SharedServices._read_answer, []

    def swapped(self, place, answer):
        before.append(answer)
        return read(self, place, before[-2] if len(before) % 4 == 0 else answer)

    patch.setattr(SharedServices, "_read_answer", swapped)


def _tell_no_services(patch):
    patch.setattr(SharedServices, "tell", lambda self, name: None)


def _broadcast_twice(patch):
    take = SharedGroups._take_message

    def twice(self, sender, data):
        take(self, sender, data)
        take(self, sender, data)

    patch.setattr(SharedGroups, "_take_message", twice)


def _lose_broadcasts(patch):
    take, count = SharedGroups._take_message, [0]

    def lossy(self, sender, data):
        count[0] += 1
        if count[0] % 3:
            take(self, sender, data)

    patch.setattr(SharedGroups, "_take_message", lossy)


def _lose_changes(patch):
    """A copy of a group misses a change now and then."""
    take, count = SharedGroups._take_change, [0]

    def lossy(self, data):
        count[0] += 1
        if count[0] % 4:
            take(self, data)

    patch.setattr(SharedGroups, "_take_change", lossy)


async def _at_once(self, pid):
    return None


def _stop_together(patch):
    """A supervisor does not wait for the end of one child before it stops the next."""
    patch.setattr(Run, "_until_gone", _at_once)


def _start_together(patch):
    """A supervisor does not wait for the start of one child before it starts the next."""
    patch.setattr(Run, "_until_started", _at_once)


def _lose_answers(patch):
    """An answer of a person is acknowledged, and forgotten now and then."""
    resolve, count = CALLS["resolve_interrupt"], [0]

    async def lossy(host, data):
        count[0] += 1
        return await resolve(host, data) if count[0] % 3 else {}

    patch.setitem(CALLS, "resolve_interrupt", lossy)


def _share_tables(patch):
    """A part keeps a table when a snapshot loads what it remembers, so that no snapshot can be made."""
    load = SharedGroups.load

    def keep(self, data):
        holders = self.holders
        load(self, data)
        self.holders = holders

    patch.setattr(SharedGroups, "load", keep)


PLANTED: dict[str, list[Plant]] = {
    "posts_in_order": [_take_again, _forget_what_was_seen],
    "post_kept": [_answer_early],
    "post_arrives": [_forget_to_carry],
    "message_once": [_deliver_twice],
    "message_lost": [_lose_messages],
    "spawn_once": [_lose_spawns],
    "answered_once": [_no_answer_about_the_dead],
    "linked": [_silent_ends],
    "never_again": [_forget_finished],
    "at_most_once": [_never_ask],
    "started_first": [_start_unwritten],
    "after_lease": [_endless_lease],
    "one_writer": [_no_fence],
    "acknowledged": [_acknowledge_early, _number_twice],
    "shards_open": [_open_twice],
    "idle": [_lost_pushes],
    "ends": [_deaf_waiters],
    "linearizable": [_stale_answers, _believe_copies],
    "fired_once": [_fire_again, _go_back],
    "within_rate": [_lend_beyond, _forget_levels],
    "rate_usable": [_refill_slowly],
    "service_once": [_ask_twice],
    "service_room": [_always_room],
    "service_answer": [_swap_answers],
    "service_found": [_tell_no_services],
    "broadcast_once": [_broadcast_twice],
    "broadcast_lost": [_lose_broadcasts],
    "group_agrees": [_lose_changes],
    "tree_order": [_stop_together, _start_together],
    "person_once": [_lose_answers],
    "contained": [_loose_tasks, _share_tables],
    "spent_within_limit": [_never_refuse],
}


@pytest.mark.parametrize(
    ("promise", "plant"), [(promise, plant) for promise, plants in PLANTED.items() for plant in plants]
)
def test_a_planted_bug_breaks_its_promise(promise, plant, monkeypatch):
    """Some world with the bug says that this promise is broken."""
    plant(monkeypatch)
    found = set()
    for seed in (SHOWN_BY.get(plant.__name__, 1), *range(1, SEEDS_MAX + 1)):
        found |= {violation.name for violation in run_seed(seed).violations}
        if promise in found:
            return
    pytest.fail(f"{SEEDS_MAX} worlds with the bug break {sorted(found)} and not {promise!r}: {PROMISES[promise]}")


def test_every_promise_has_a_planted_bug():
    assert set(PLANTED) == set(PROMISES)
