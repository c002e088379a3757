"""The lifecycle of entries that a caller outside the kernel drives."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lyra.core import codec
from lyra.errors import (
    ConfigError,
    InvalidTransition,
    LimitExceeded,
    NameTaken,
    NoSuchProcess,
    Overloaded,
    ProcessError,
)
from lyra.kernel import Kernel, ProcessControlBlock
from lyra.kernel.base import subsystem
from lyra.kernel.base.core import Core
from lyra.kernel.process.process import PRIORITIES, TRANSITIONS
from lyra.kernel.workers.lifecycle import STATES, TERMINAL, LifecycleState
from lyra.testing.clock import SimClock
from tests.cases import cases
from tests.kernel.conftest import Crash, pass_time, run, settle


async def forever(ctx):
    await ctx.receive()


def paths_to() -> dict[str, list[str]]:
    """How to bring a new entry into each state."""
    return {
        "new": [],
        "ready": ["ready"],
        "running": ["ready", "running"],
        "waiting": ["ready", "running", "waiting"],
        "blocked": ["ready", "running", "blocked"],
        "terminated": ["terminated"],
        "zombie": ["terminated", "zombie"],
    }


def test_a_life_from_submit_to_cleanup(target, clock):
    """Submitted, scheduled, taken, sent back, taken again, ended, forgotten; every time is the clock's."""

    async def main():
        async with Kernel(target, clock) as kernel:
            block = kernel.submit("p1", request_id="r", user_id="ada", session_id="s", priority="high")
            assert isinstance(block, ProcessControlBlock)
            assert (block.pid, block.state, block.priority, block.created_at) == ("p1", "new", "high", 1000.0)
            assert (block.request_id, block.user_id, block.session_id) == ("r", "ada", "s")
            assert block.quota.max_llm_calls == 100
            assert block.usage.elapsed_seconds == 0.0
            assert kernel.schedule("p1").state == "ready"
            clock.advance(5)
            taken = kernel.get_next_runnable()
            assert (taken.state, taken.started_at, taken.last_scheduled_at) == ("running", 1005.0, 1005.0)
            clock.advance(5)
            kernel.transition_state("p1", "READY", "its slice is over")
            again = kernel.get_next_runnable()
            assert (again.started_at, again.last_scheduled_at) == (1005.0, 1010.0)
            clock.advance(2)
            ended = kernel.terminate("p1", "done", force=True)
            assert (ended.state, ended.completed_at, ended.termination_reason) == ("terminated", 1012.0, "done")
            clock.advance(100)
            assert kernel.get_process("p1").usage.elapsed_seconds == 7.0
            await kernel.cleanup_process("p1")
            with pytest.raises(NoSuchProcess):
                kernel.get_process("p1")
            assert kernel.lifecycle.total == 0
            assert kernel.submit("p1").state == "new"

    run(main())


def test_submitting_a_pid_twice_gives_the_first(target):
    """A second submit of a pid changes nothing."""

    async def main():
        async with Kernel(target) as kernel:
            first = kernel.submit("p", user_id="ada", priority="low", quota={"max_llm_calls": 3})
            assert kernel.submit("p", user_id="bob", priority="realtime") == first
            kernel.schedule("p")
            assert kernel.submit("p").state == "ready"

    run(main())


@pytest.mark.parametrize("pid", ["", "~x", "a\nb", "x" * 201, None, 7])
def test_a_pid_is_a_short_printable_word(pid):
    """What cannot be a pid is refused, and nothing is in the table."""

    async def main():
        async with Kernel() as kernel:
            with pytest.raises(ConfigError, match="pid is"):
                kernel.submit(pid)
            assert kernel.list_processes() == []

    run(main())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"priority": "urgent"}, ConfigError),
        ({"quota": {"max_llm_cals": 3}}, ConfigError),
        ({"quota": {"max_llm_calls": -1}}, ConfigError),
        ({"quota": [1]}, ConfigError),
        ({"parent_pid": "missing"}, NoSuchProcess),
        ({"user_id": "x" * 201}, ConfigError),
        ({"request_id": "\ud800"}, ConfigError),
    ],
)
def test_a_bad_submit_changes_nothing(target, options, error):
    """Unknown priorities, quota keys and parents have their named error and leave no trace."""

    async def main():
        async with Kernel(target) as kernel:
            with pytest.raises(error):
                kernel.submit("p", **options)
            assert kernel.list_processes() == []
            assert not kernel.resources.is_tracked("p")

    run(main())


@pytest.mark.parametrize("old", STATES)
@pytest.mark.parametrize("new", STATES)
def test_the_table_of_transitions(old, new, clock):
    """Every move in the table is made, every other one is InvalidTransition and changes nothing."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            kernel.submit("p")
            for state in paths_to()[old]:
                kernel.transition_state("p", state)
            if new in TRANSITIONS[old]:
                assert kernel.transition_state("p", new, "why").state == new
            else:
                before = kernel.get_process("p")
                with pytest.raises(InvalidTransition) as caught:
                    kernel.transition_state("p", new)
                assert (caught.value.old_state, caught.value.new_state) == (old, new)
                assert kernel.get_process("p") == before

    run(main())


def test_unknown_states_and_pids():
    """A state that does not exist is a ConfigError with a hint; a pid that does not, NoSuchProcess."""

    async def main():
        async with Kernel() as kernel:
            kernel.submit("p")
            with pytest.raises(ConfigError) as caught:
                kernel.transition_state("p", "redy")
            assert "ready" in str(caught.value.hint)
            for call in (
                lambda: kernel.schedule("x"),
                lambda: kernel.transition_state("x", "ready"),
                lambda: kernel.terminate("x"),
                lambda: kernel.get_process("x"),
                lambda: kernel.get_process(None),  # type: ignore[arg-type]
                lambda: kernel.cleanup_process("x"),
                lambda: kernel.lifecycle.note("x", current_stage="s"),
                lambda: kernel.get_remaining_budget("x"),
                lambda: kernel.get_request_status("x"),
                lambda: kernel.create_interrupt("x", "clarification", "?"),
            ):
                with pytest.raises(NoSuchProcess):
                    call()

    run(main())


def test_only_a_new_entry_is_scheduled():
    """Scheduling twice is refused with the state it found."""

    async def main():
        async with Kernel() as kernel:
            kernel.submit("p")
            kernel.schedule("p")
            with pytest.raises(InvalidTransition, match="its state is ready, not new"):
                kernel.schedule("p")

    run(main())


def test_an_exhausted_entry_is_not_scheduled(target):
    """Usage at the limit is still within it; above it, scheduling is LimitExceeded and the entry stays new."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.submit("p", quota={"max_llm_calls": 2})
            kernel.record_usage("p", llm_calls=3)
            with pytest.raises(LimitExceeded) as caught:
                kernel.schedule("p")
            assert caught.value.reason == "max_llm_calls_exceeded"
            assert kernel.get_process("p").state == "new"
            kernel.adjust_quota("p", {"max_llm_calls": 3})
            assert kernel.schedule("p").state == "ready"

    run(main())


def test_the_order_of_the_line(clock):
    """Higher priority first; inside a level by submission; who comes back stands at the end; None when empty."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            assert kernel.get_next_runnable() is None
            for pid, priority in (("i", "idle"), ("n1", "normal"), ("n2", "normal"), ("r", "realtime"), ("l", "low")):
                kernel.submit(pid, priority=priority)
            for pid in ("n2", "n1", "l", "i", "r"):  # the order of scheduling does not matter
                kernel.schedule(pid)
            assert kernel.lifecycle.queue_depth == 5
            first = [kernel.get_next_runnable().pid for _ in range(2)]
            kernel.transition_state("n1", "ready")  # behind n2 now
            rest = [kernel.get_next_runnable().pid for _ in range(4)]
            assert (first, rest) == (["r", "n1"], ["n2", "n1", "l", "i"])
            assert kernel.get_next_runnable() is None

    run(main())


def test_entries_that_left_the_line_are_skipped_and_forgotten():
    """A thousand entries that end while they are in line leave nothing behind in it."""

    async def main():
        async with Kernel() as kernel:
            for index in range(1000):
                kernel.submit(f"p{index}")
                kernel.schedule(f"p{index}")
                kernel.terminate(f"p{index}")
            assert len(kernel.lifecycle.state.line) <= 65
            assert kernel.get_next_runnable() is None
            assert kernel.lifecycle.state.line == []

    run(main())


def test_ending(target):
    """A running one needs force; an ended one stays as it ended; only an ended one is cleaned up."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.submit("p")
            kernel.schedule("p")
            kernel.get_next_runnable()
            with pytest.raises(InvalidTransition, match="is running"):
                kernel.terminate("p", "no")
            with pytest.raises(InvalidTransition, match="not over"):
                kernel.cleanup_process("p")
            ended = kernel.terminate("p", "yes", force=True)
            assert kernel.terminate("p", "again", force=True) == ended
            assert kernel.transition_state("p", "zombie").terminal
            assert kernel.terminate("p").state == "zombie"

    run(main())


def test_program_processes_are_shown_too(target):
    """They share the pids: shown as blocks, counted, ended; but no other caller moves them."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.submit("entry", user_id="ada")
            await kernel.spawn(forever, pid="program", priority="high")
            await settle(kernel)
            block = kernel.get_process("program")
            assert (block.state, block.priority) == ("waiting", "high")
            assert kernel.submit("program").created_at == block.created_at
            assert [process.pid for process in kernel.list_processes()] == ["entry", "program"]
            assert [process.pid for process in kernel.list_processes(state="waiting")] == ["program"]
            assert [process.pid for process in kernel.list_processes(user_id="ada")] == ["entry"]
            counts = kernel.get_process_counts()
            assert (counts["new"], counts["waiting"], sum(counts.values())) == (1, 1, 2)
            with pytest.raises(InvalidTransition, match="runs a program, which decides"):
                kernel.transition_state("program", "ready")
            with pytest.raises(InvalidTransition, match="runs a program, which decides"):
                kernel.schedule("program")
            with pytest.raises(NameTaken):
                kernel.spawn(forever, pid="entry")
            kernel.spawn(forever, name="ear")
            with pytest.raises(NameTaken):
                kernel.submit("ear")
            kernel.terminate("program", "enough")
            await settle(kernel)
            assert kernel.get_process("program").state == "terminated"
            assert kernel.get_process("program").termination_reason == "enough"
            kernel.cleanup_process("program")

    run(main())


def test_parents_and_notes(target):
    """An entry knows its children, its stage and its service; a blocked one says why."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.submit("a")
            kernel.submit("b", parent_pid="a")
            assert kernel.get_process("a").child_pids == ("b",)
            assert kernel.get_process("b").parent_pid == "a"
            kernel.lifecycle.note("a", current_stage="plan", current_service="worker")
            kernel.lifecycle.note("a", current_stage="act")
            block = kernel.get_process("a")
            assert (block.current_stage, block.current_service) == ("act", "worker")
            kernel.schedule("a")
            kernel.get_next_runnable()
            assert kernel.transition_state("a", "blocked", "a lock").interrupt_data == {"block_reason": "a lock"}
            kernel.terminate("b")
            kernel.cleanup_process("b")
            assert kernel.get_process("a").child_pids == ()

    run(main())


def test_listing_and_limits():
    """Filters are checked words; there are at most `processes_max` at once."""

    async def main():
        async with Kernel(processes_max=2) as kernel:
            kernel.submit("a", user_id="ada")
            kernel.submit("b", user_id="bob")
            with pytest.raises(Overloaded):
                kernel.submit("c")
            kernel.terminate("a")
            kernel.submit("c")
            assert [process.pid for process in kernel.list_processes(state="NEW")] == ["b", "c"]
            assert [process.pid for process in kernel.list_processes("new", "bob")] == ["b"]
            with pytest.raises(ConfigError):
                kernel.list_processes(state="sleeping")

    run(main())


def test_ended_entries_are_bounded(monkeypatch):
    """Also where no caller cleans up, the table does not grow for ever: the first that ended goes first."""
    monkeypatch.setattr("lyra.kernel.workers.lifecycle.ENDED_PROCESSES_KEPT", 2)

    async def main():
        async with Kernel() as kernel:
            for pid in "abcd":
                kernel.submit(pid)
            for pid in "badc":
                kernel.terminate(pid)
            assert [process.pid for process in kernel.list_processes()] == ["c", "d"]

    run(main())


def test_events(target):
    """Created, every change of state and the end are Events, with their facts."""

    async def main():
        seen: list[tuple[str, str, dict[str, Any]]] = []
        async with Kernel(target) as kernel:
            kernel.on_event(lambda event: seen.append((event.kind, event.pid, dict(event.data))))
            kernel.submit("p", user_id="ada", priority="high")
            kernel.schedule("p")
            kernel.get_next_runnable()
            kernel.terminate("p", "done", force=True)
        public = [(kind, data) for kind, pid, data in seen if kind.startswith("process.") and pid == "p"]
        assert [kind for kind, _ in public] == [
            "process.created",
            "process.state_changed",
            "process.state_changed",
            "process.state_changed",
            "process.terminated",
        ]
        assert (public[0][1]["priority"], public[0][1]["user_id"]) == ("high", "ada")
        assert [(data["old_state"], data["new_state"]) for kind, data in public[1:4]] == [
            ("new", "ready"),
            ("ready", "running"),
            ("running", "terminated"),
        ]
        assert public[-1][1]["reason"] == "done"

    run(main())


def test_closed_kernels_take_nothing():
    """Before it opens and after it closed, every change is refused."""

    async def main():
        kernel = Kernel()
        with pytest.raises(ProcessError):
            kernel.submit("p")
        async with kernel:
            kernel.submit("p")
        for call in (lambda: kernel.submit("q"), lambda: kernel.schedule("p"), kernel.get_next_runnable):
            with pytest.raises(ProcessError):
                call()

    run(main())


def test_what_was_awaited_is_kept(path):
    """`await kernel.durable()` after a call that gives a value: it survives kill -9."""

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.submit("p")
            await kernel.durable()
        async with Kernel(path) as kernel:
            assert kernel.get_process("p").state == "new"
        async with Kernel() as kernel:
            await kernel.durable()

    run(main())


@pytest.mark.parametrize("snapshot", [False, True])
def test_entries_survive_a_kill(path, clock, snapshot):
    """After kill -9 the table, the line and its order are what they were; a snapshot changes nothing of that."""

    async def main():
        async with Crash(Kernel(path, clock)) as kernel:
            for pid, priority in (("a", "normal"), ("b", "normal"), ("c", "high"), ("d", "idle")):
                kernel.submit(pid, priority=priority, user_id="ada", quota={"max_tool_calls": 7})
                kernel.schedule(pid)
            assert kernel.get_next_runnable().pid == "c"
            assert kernel.get_next_runnable().pid == "a"
            kernel.transition_state("a", "ready", "again")
            if snapshot:
                await settle(kernel)
                await kernel._snapshots.write()
            kernel.record_usage("c", llm_calls=2)
            kernel.terminate("d", "not needed")
            await settle(kernel)
            before = kernel.list_processes()
        async with Kernel(path, clock) as kernel:
            assert kernel.list_processes() == before
            assert [kernel.get_next_runnable().pid for _ in range(2)] == ["b", "a"]
            assert kernel.get_next_runnable() is None
            assert kernel.get_process("c").usage.llm_calls == 2
            with pytest.raises(NameTaken):
                kernel.spawn(forever, pid="a")

    run(main())


# ---------------------------------------------------------------- all of it at once
class Rows:
    """A kernel in memory whose rows are kept, so that a test can fold them again."""

    def __init__(self, clock: SimClock) -> None:
        self.loop = asyncio.new_event_loop()
        self.kernel = Kernel("memory", clock)
        self.loop.run_until_complete(self.kernel.start())
        self.rows: list[tuple[str, str, str, float, bytes]] = []
        inner = Core.fact

        def fact(core: Core[Any], state: Any, pid: str, kind: str, data: dict[str, Any]) -> int:
            if core is self.kernel.core:
                self.rows.append((state.NAME, kind, pid, clock.now(), codec.encode(data)))
            return inner(core, state, pid, kind, data)

        self._recording = patch.object(Core, "fact", fact)
        self._recording.start()

    def check(self) -> None:
        """The fold of the rows, and a snapshot read back, are the live state."""
        for name, live in self.kernel.states.items():
            folded, read_back = type(live)(), type(live)()
            for owner, kind, pid, time, data in self.rows:
                if owner == name:
                    folded.apply(kind, pid, time, codec.decode(data))
            subsystem.load(read_back, subsystem.dump(live))
            assert subsystem.dump(folded) == subsystem.dump(live) == subsystem.dump(read_back), name

    def close(self) -> None:
        self._recording.stop()
        self.check()
        self.loop.run_until_complete(self.kernel.close())
        self.loop.close()


PIDS = ("a", "b", "c", "d")


class Lives(RuleBasedStateMachine):
    """Random lives against a model with a sorted list for a line."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, str] = {}
        self.level: dict[str, int] = {}
        self.place: dict[str, int] = {}
        self.places = 0

    @initialize()
    def begin(self) -> None:
        self.clock = SimClock(1_000.0)
        self.world = Rows(self.clock)
        self.kernel = self.world.kernel

    def _next_place(self, pid: str) -> None:
        self.places += 1
        self.place[pid] = self.places

    @rule(pid=st.sampled_from(PIDS), level=st.sampled_from(range(5)))
    def submit(self, pid: str, level: int) -> None:
        self.kernel.submit(pid, priority=PRIORITIES[level])
        if pid not in self.states:
            self.states[pid], self.level[pid] = "new", level
            self._next_place(pid)

    @rule(pid=st.sampled_from(PIDS), state=st.sampled_from(STATES))
    def move(self, pid: str, state: str) -> None:
        old = self.states.get(pid)
        try:
            self.kernel.transition_state(pid, state)
        except NoSuchProcess:
            assert old is None
        except InvalidTransition:
            assert state not in TRANSITIONS[str(old)]
        else:
            assert state in TRANSITIONS[str(old)]
            self.states[pid] = state
            if state == "ready" and old != "new":
                self._next_place(pid)

    @rule()
    def take(self) -> None:
        line = sorted((self.level[pid], self.place[pid], pid) for pid, state in self.states.items() if state == "ready")
        taken = self.kernel.get_next_runnable()
        assert (taken.pid if taken is not None else None) == (line[0][2] if line else None)
        if taken is not None:
            self.states[taken.pid] = "running"

    @precondition(lambda self: self.states)
    @rule(pid=st.sampled_from(PIDS), force=st.booleans())
    def end(self, pid: str, force: bool) -> None:
        if pid not in self.states:
            return
        try:
            self.kernel.terminate(pid, force=force)
        except InvalidTransition:
            assert self.states[pid] == "running"
            assert not force
        else:
            self.states[pid] = self.states[pid] if self.states[pid] in TERMINAL else "terminated"

    @rule(pid=st.sampled_from(PIDS))
    def forget(self, pid: str) -> None:
        try:
            self.kernel.cleanup_process(pid)
        except (NoSuchProcess, InvalidTransition):
            assert self.states.get(pid) not in TERMINAL
        else:
            assert self.states.pop(pid) in TERMINAL

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "kernel"):
            assert {process.pid: process.state for process in self.kernel.list_processes()} == self.states
            counts = self.kernel.get_process_counts()
            assert counts == {state: list(self.states.values()).count(state) for state in STATES}

    def teardown(self) -> None:
        self.world.close()


Lives.TestCase.settings = settings(max_examples=cases(40), stateful_step_count=40, deadline=None)
test_random_lives = Lives.TestCase


def test_rows_that_make_no_sense_are_refused():
    """A fold of an impossible move raises, so that a damaged journal is noticed."""
    state = LifecycleState()
    with pytest.raises(LookupError):
        state.apply("pcb.moved", "p", 0.0, {"new_state": "ready"})


async def brief(ctx):
    await ctx.sleep(5)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_program_shows_its_times(path, clock, snapshot):
    """When a program was made, began and ended: the same after a restart to the digit, from rows or a snapshot."""

    async def main():
        async with Crash(Kernel(path, clock, [brief])) as kernel:
            clock.advance(0.1)
            kernel.spawn(brief, pid="first")
            await pass_time(kernel, clock, 6)
            kernel.spawn(brief, pid="second")
            await settle(kernel)
            seen = [kernel.get_process(pid) for pid in ("first", "second")]
            await kernel.durable()
            if snapshot:
                await kernel._snapshots.write()
        assert (seen[0].created_at, seen[0].started_at, seen[0].completed_at) == (1000.1, 1000.1, 1005.1)
        assert (seen[1].created_at, seen[1].started_at, seen[1].completed_at) == (1006.1, 1006.1, None)
        clock.advance(1)
        async with Kernel(path, clock, [brief]) as kernel:
            for old in seen:
                new = kernel.get_process(old.pid)
                assert (new.created_at, new.started_at, new.completed_at) == (
                    old.created_at,
                    old.started_at,
                    old.completed_at,
                )

    run(main())


def test_a_program_shows_its_times_without_a_journal(clock):
    async def main():
        async with Kernel("memory", clock, [brief]) as kernel:
            handle = kernel.spawn(brief)
            assert kernel.get_process(handle.pid).completed_at is None
            await pass_time(kernel, clock, 6)
            block = kernel.get_process(handle.pid)
            assert (block.created_at, block.started_at, block.completed_at) == (1000.0, 1000.0, 1005.0)

    run(main())


def test_a_program_is_ended_by_hand(target):
    """With everything that it started."""

    async def forever(ctx):
        await ctx.receive()

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(forever, pid="p")
            await settle(kernel)
            kernel.terminate("p", "enough", force=True)
            assert (await handle.wait()).reason == "enough"

    run(main())


class Word(str):
    """Text of a class of its own, as an agent's Reply is."""

    __slots__ = ()


ENDINGS = {
    "terminate": lambda kernel, reason: kernel.lifecycle.terminate("p", reason),
    "transition": lambda kernel, reason: kernel.transition_state("p", "terminated", reason),
    "the end of its pipeline": lambda kernel, reason: kernel.lifecycle.pipeline_over("p", reason),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_a_reason_is_text_however_it_ends(tmp_path, how):
    """Anything else is refused, and the store opens again with the text."""
    path = str(tmp_path / "store.db")

    async def main():
        async with Kernel(path) as kernel:
            kernel.submit("p")
            kernel.schedule("p")
            for wrong in (5, {"a": 1}, None, "\ud800"):
                with pytest.raises(ConfigError):
                    ENDINGS[how](kernel, wrong)
            assert kernel.get_process("p").state == "ready"
            ENDINGS[how](kernel, Word("enough"))
        async with Kernel(path) as kernel:
            assert kernel.get_process("p").termination_reason == "enough"

    run(main())


def test_an_entry_is_put_back_with_a_reason_that_is_text(tmp_path):
    async def main():
        async with Kernel(str(tmp_path / "store.db")) as kernel:
            kernel.submit("p")
            kernel.schedule("p")
            kernel.get_next_runnable()
            with pytest.raises(ConfigError):
                kernel.lifecycle.put_back("p", 5)  # type: ignore[arg-type]
            assert kernel.get_process("p").state == "running"

    run(main())
