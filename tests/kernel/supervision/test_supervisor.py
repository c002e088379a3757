"""Supervisors: started in order, restarted by the rules, stopped in reverse; and back after kill -9."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lyra.core.faultpoint import SimulatedCrash, intercept
from lyra.errors import ConfigError, Denied, InvalidTransition, NameTaken, NoSuchProcess, ProcessError
from lyra.kernel import Child, Kernel
from lyra.testing.clock import SimClock
from tests.kernel.conftest import Crash, crash, pass_time, run, settle

diary: list[str] = []
tries: dict[str, int] = {}


@pytest.fixture(autouse=True)
def _fresh():
    diary.clear()
    tries.clear()


async def worker(ctx, label="w"):
    diary.append(f"+{label}")
    try:
        while True:
            message = await ctx.receive()
            if message == "crash":
                raise ValueError("boom")
            if isinstance(message, str):
                ctx.exit(message)
            if isinstance(message, list):
                await ctx.send(message[0], [label, ctx.pid])
    except asyncio.CancelledError:
        diary.append(f"-{label}")
        raise


async def stubborn(ctx):
    while True:
        try:
            await ctx.sleep(1_000)
        except asyncio.CancelledError:
            diary.append("told")


async def slow_to_stop(ctx, label, seconds):
    try:
        await ctx.receive()
    except asyncio.CancelledError:
        await ctx.sleep(seconds)
        diary.append(f"-{label}")
        raise


async def begins_late(ctx):
    await ctx.receive()
    ctx.ready()
    await ctx.receive()


async def fails_at_once(ctx):
    raise ValueError("no")


async def starts_once(ctx):
    tries["once"] = tries.get("once", 0) + 1
    if tries["once"] > 1:
        raise ValueError("no")
    ctx.ready()
    await ctx.receive()
    raise ValueError("boom")


def children(*labels: str, **options: Any) -> list[Child]:
    return [Child(label, worker, (label,), name=label, **options) for label in labels]


def up(sup) -> list[str]:
    return [child.id for child in sup.which_children() if child.pid is not None]


async def hit(kernel, name, message="crash"):
    await kernel.send(name, message)
    await settle(kernel)


@pytest.mark.parametrize(
    ("strategy", "log"),
    [
        ("one_for_one", ["+b"]),
        ("restart", ["+b"]),
        ("one_for_all", ["-c", "-a", "+a", "+b", "+c"]),
        ("restart_all", ["-c", "-a", "+a", "+b", "+c"]),
        ("rest_for_one", ["-c", "+b", "+c"]),
    ],
)
def test_strategies(target, strategy, log):
    """Who is restarted with a crashed child: none, all, or those after it; stopped in reverse, started in order."""

    async def main():
        async with Kernel(target) as kernel:
            sup = await kernel.supervise(children("a", "b", "c"), strategy=strategy)
            await settle(kernel)
            assert diary == ["+a", "+b", "+c"]
            diary.clear()
            await hit(kernel, "b")
            assert diary == log
            assert up(sup) == ["a", "b", "c"]
            diary.clear()
            await sup.stop()
            assert diary == ["-c", "-b", "-a"]
            assert (await sup.wait()).reason == "shutdown"
            assert not sup.alive

    run(main())


@pytest.mark.parametrize(
    ("restart", "how", "state"),
    [
        ("permanent", "normal", "running"),
        ("permanent", "shutdown", "running"),
        ("permanent", "crash", "running"),
        ("transient", "normal", "stopped"),
        ("transient", "shutdown", "stopped"),
        ("transient", "crash", "running"),
        ("transient", "odd", "running"),
        ("temporary", "normal", "gone"),
        ("temporary", "crash", "gone"),
    ],
)
def test_restart_types(target, restart, how, state):
    """Permanent always, transient after an abnormal end, temporary never: that one is forgotten."""

    async def main():
        async with Kernel(target) as kernel:
            sup = await kernel.supervise(children("a", restart=restart))
            await hit(kernel, "a", how)
            children_left = await sup.which_children()
            assert [child.state for child in children_left] == ([] if state == "gone" else [state])
            assert [child.pid is not None for child in children_left] == (
                [] if state == "gone" else [state == "running"]
            )

    run(main())


def test_names_resolve_across_restarts(target):
    """A restarted child has a new pid and the old name."""

    async def main():
        async with Kernel(target) as kernel:
            sup = await kernel.supervise(children("a"))
            before = kernel.whereis("a").pid
            await hit(kernel, "a")
            after = kernel.whereis("a").pid
            assert after != before
            assert kernel.process(before).alive is False
            assert sup.which_children()[0].pid == after
            assert sup.which_children()[0].starts == 2
            assert await sup.count_children() == {"specs": 1, "active": 1, "supervisors": 0, "workers": 1}

    run(main())


def test_the_window_slides_and_its_edge_counts(target, clock):
    """max_restarts within window_s: a crash exactly window_s after the first still counts, one later does not."""

    async def main():
        async with Kernel(target, clock=clock) as kernel:
            first = await kernel.supervise(children("a"), max_restarts=1, window_s=10)
            second = await kernel.supervise(children("b"), max_restarts=1, window_s=10)
            await hit(kernel, "a")
            await hit(kernel, "b")
            clock.advance(10.0)
            await hit(kernel, "a")
            assert (await first.wait()).reason == "shutdown"
            clock.advance(0.001)
            await hit(kernel, "b")
            assert second.alive
            assert up(second) == ["b"]

    run(main())


@pytest.mark.parametrize(("most", "crashes"), [(0, 0), (2, 2), (-1, 30)])
def test_intensity(target, most, crashes):
    """N restarts are allowed, 0 none, -1 any number; then all are stopped in reverse and it ends as shutdown."""

    async def main():
        async with Kernel(target) as kernel:
            told: list[str] = []
            kernel.on_event(lambda event: told.append(event.kind))
            sup = await kernel.supervise(children("a", "b", "c"), max_restarts=most)
            for _ in range(crashes):
                await hit(kernel, "b")
            assert up(sup) == ["a", "b", "c"]
            assert told.count("child.restarting") == crashes
            if most >= 0:
                diary.clear()
                await hit(kernel, "b")
                assert (await sup.wait()).reason == "shutdown"
                assert diary == ["-c", "-a"]
                assert "supervisor.gave_up" in told

    run(main())


def test_a_child_that_does_not_start(target):
    """Those started before it are stopped in reverse order, and the supervisor fails."""

    async def main():
        async with Kernel(target) as kernel:
            sup = kernel.supervise([*children("a", "b"), Child("c", fails_at_once, wait_ready=True)])
            with pytest.raises(ProcessError, match="'c' did not start") as caught:
                await sup
            assert caught.value.id == "c"
            assert diary == ["+a", "+b", "-b", "-a"]
            assert (await sup.wait()).reason == "error"
            taken = kernel.supervise([Child("x", worker, name="n"), Child("y", worker, name="n")])
            with pytest.raises(ProcessError, match="belongs to another"):
                await taken
            assert kernel.whereis("n") is None

    run(main())


def test_a_restart_that_fails_counts_again(target):
    """A start that fails is tried again at once, and each try counts: the supervisor gives up."""

    async def main():
        async with Kernel(target) as kernel:
            sup = await kernel.supervise([Child("a", starts_once, name="a", wait_ready=True)], max_restarts=3)
            await hit(kernel, "a")
            assert (await sup.wait()).reason == "shutdown"
            assert tries["once"] == 4

    run(main())


def test_wait_ready(target):
    """A child that says when it is ready holds up those after it; commands meanwhile wait their turn."""

    async def main():
        async with Kernel(target) as kernel:
            sup = kernel.supervise([Child("late", begins_late, name="late", wait_ready=True), *children("b")])
            asked = sup.terminate_child("b")
            await settle(kernel)
            assert diary == []
            await hit(kernel, "late", "go")
            await asked  # at once after its start: it never got a turn
            assert diary == []
            assert up(sup) == ["late"]
            assert [child.starts for child in sup.which_children()] == [1, 1]
            stuck = kernel.supervise([Child("never", begins_late, wait_ready=True)])
            await settle(kernel)
            await stuck.stop()
            assert not stuck.alive

    run(main())


def test_stopping_takes_as_long_as_it_may(target, clock):
    """shutdown_s to tidy up, then killed; "kill" at once; a supervisor as long as its children need."""

    async def main():
        async with Kernel(target, clock=clock) as kernel:
            inner = Child.supervisor("inner", [Child("slow", slow_to_stop, ("slow", 50), shutdown_s=60)])
            sup = await kernel.supervise(
                [
                    inner,
                    Child("deaf", stubborn, shutdown_s=20, name="deaf"),
                    Child("shot", stubborn, shutdown_s="kill", name="shot"),
                ]
            )
            await settle(kernel)
            deaf, shot = kernel.whereis("deaf"), kernel.whereis("shot")
            stopped = sup.stop()
            await pass_time(kernel, clock, 19)
            assert not shot.alive
            assert (await shot.wait()).reason == "killed"
            assert deaf.alive
            await pass_time(kernel, clock, 2)
            assert (await deaf.wait()).reason == "killed"
            await pass_time(kernel, clock, 48)
            assert sup.alive
            await pass_time(kernel, clock, 3)
            await stopped
            assert diary[-1] == "-slow"

    run(main())


def test_trees(target):
    """An inner supervisor that gives up is a child that ended: the outer one starts it again, with its children."""

    async def main():
        async with Kernel(target) as kernel:
            inner = Child.supervisor("inner", children("x", "y"), strategy="one_for_all", max_restarts=1)
            sup = await kernel.supervise([*children("a"), inner, *children("b")], max_restarts=2)
            assert [child.kind for child in sup.which_children()] == ["worker", "supervisor", "worker"]
            first = sup.which_children()[1].pid
            await hit(kernel, "x")
            assert sup.which_children()[1].pid == first
            await hit(kernel, "y")
            await sup.which_children()
            again = sup.which_children()[1].pid
            assert again is not None
            assert again != first
            assert up(kernel.supervisor(again)) == ["x", "y"]
            diary.clear()
            await sup.stop()
            assert diary == ["-b", "-y", "-x", "-a"]
            assert kernel.live == 0

    run(main())


def test_the_end_of_a_supervisor_is_the_end_of_its_children(target):
    """Killed or failed, it takes its whole tree along; nothing is left behind."""

    async def main():
        async with Kernel(target) as kernel:
            sup = await kernel.supervise([*children("a"), Child.supervisor("inner", children("b"))])
            await kernel.kill(sup)
            await settle(kernel)
            assert (await sup.wait()).reason == "killed"
            assert kernel.live == 0
            other = await kernel.supervise([Child.supervisor("inner", children("b"))])
            kernel.lifetimes.stop(kernel.processes[other.pid], "odd")  # not the tree: links do the rest
            await other.wait()
            await settle(kernel)
            assert kernel.live == 0

    run(main())


@pytest.mark.parametrize(
    ("when", "ends"), [("never", [False, False]), ("any_significant", [True]), ("all_significant", [False, True])]
)
def test_auto_shutdown(target, when, ends):
    """A supervisor ends with one significant child, or with the last; terminate_child does not count."""

    async def main():
        async with Kernel(target) as kernel:
            important = when != "never"
            sup = await kernel.supervise(
                [*children("a", "b", restart="transient", significant=important), *children("c")], auto_shutdown=when
            )
            await sup.terminate_child("a")
            assert sup.alive
            await sup.restart_child("a")
            for name, ended in zip("ab", ends, strict=False):
                await hit(kernel, name, "normal")
                assert sup.alive is not ended
            if ends[-1]:
                assert (await sup.wait()).reason == "shutdown"
                assert kernel.live == 0

    run(main())


def test_commands_and_their_errors(target):
    """Each refusal has its name and its field, and changes nothing."""

    async def main():
        async with Kernel(target) as kernel:
            sup = await kernel.supervise(children("a", "b"))
            before = await sup.which_children()
            refused = [
                (lambda: sup.start_child(children("a")[0]), NameTaken, "already_started"),
                (lambda: sup.restart_child("a"), InvalidTransition, "running"),
                (lambda: sup.delete_child("a"), InvalidTransition, "running"),
                (lambda: sup.terminate_child("z"), NoSuchProcess, "not_found"),
                (lambda: sup.restart_child("z"), NoSuchProcess, "not_found"),
                (lambda: sup.delete_child("z"), NoSuchProcess, "not_found"),
            ]
            for call, error, problem in refused:
                with pytest.raises(error) as caught:
                    await call()
                assert caught.value.problem == problem
            with pytest.raises(ConfigError):
                await sup.start_child(Child("s", worker, restart="transient", significant=True))
            with pytest.raises(ProcessError, match="did not start"):
                await sup.start_child(Child("s", fails_at_once, wait_ready=True))
            assert await sup.which_children() == before

            await sup.terminate_child("a")
            assert (sup.which_children()[0].pid, sup.which_children()[0].state) == (None, "stopped")
            with pytest.raises(NameTaken) as present:
                await sup.start_child(children("a")[0])
            assert present.value.problem == "already_present"
            assert (await sup.restart_child("a")).alive
            await sup.terminate_child("a")
            await sup.delete_child("a")
            handle = await sup.start_child({"id": "c", "program": worker, "args": ("c",), "restart": "temporary"})
            assert handle.alive
            assert up(sup) == ["b", "c"]
            await sup.terminate_child("c")
            assert [child.id for child in sup.which_children()] == ["b"]
            await sup.stop()
            await sup.stop()
            with pytest.raises(NoSuchProcess):
                sup.start_child(children("d")[0])
            assert sup.which_children() == []

    run(main())


def test_specifications_are_checked():
    """What OTP refuses, and what cannot be meant, is a named error before anything starts."""

    async def main():
        async with Kernel() as kernel:
            for wrong in (
                lambda: kernel.supervise([Child("a", worker, restart="always")]),
                lambda: kernel.supervise([Child("a", worker, shutdown_s="never")]),
                lambda: kernel.supervise([Child("a", worker, shutdown_s=-1)]),
                lambda: kernel.supervise([Child("", worker)]),
                lambda: kernel.supervise([Child("a", worker, args="text")]),
                lambda: kernel.supervise([Child("a", len)]),
                lambda: kernel.supervise([{"id": "a"}]),
                lambda: kernel.supervise([{"id": "a", "program": worker, "restrat": "permanent"}]),
                lambda: kernel.supervise(["a"]),
                lambda: kernel.supervise(children("a"), strategy="one_for_none"),
                lambda: kernel.supervise(children("a"), max_restarts=-2),
                lambda: kernel.supervise(children("a"), auto_shutdown="always"),
                lambda: kernel.supervise(children("a"), backoff={"initial": 1}),
                lambda: kernel.supervise(children("a", significant=True, restart="transient")),
                lambda: kernel.supervise(children("a", significant=True), auto_shutdown="any_significant"),
                lambda: kernel.supervise([Child.supervisor("a", [], strategi="restart")]),
            ):
                with pytest.raises(ConfigError):
                    wrong()
            with pytest.raises(NameTaken):
                kernel.supervise(children("a", "a"))
            with pytest.raises(ProcessError, match="not a supervisor"):
                kernel.supervisor(kernel.spawn(worker).pid)
            assert len(kernel.processes) == 1

    run(main())


def test_back_off_delays_the_restart(target, clock):
    """Exponential: 1, 2, 4 s; meanwhile the child is `restarting`, and terminate_child ends that too."""

    async def main():
        async with Kernel(target, clock=clock) as kernel:
            sup = await kernel.supervise(
                children("a", "b"), max_restarts=10, backoff={"kind": "exponential", "initial_s": 1, "factor": 2}
            )
            for pause in (1, 2, 4):
                await hit(kernel, "a")
                await pass_time(kernel, clock, pause - 0.5)
                assert [child.state for child in await sup.which_children()] == ["restarting", "running"]
                with pytest.raises(InvalidTransition) as caught:
                    await sup.restart_child("a")
                assert caught.value.problem == "restarting"
                with pytest.raises(InvalidTransition):
                    await sup.delete_child("a")
                await pass_time(kernel, clock, 1)
                assert up(sup) == ["a", "b"]
            await hit(kernel, "a")
            await sup.terminate_child("a")
            await pass_time(kernel, clock, 60, step_s=10)
            assert up(sup) == ["b"]

    run(main())


def test_back_off_begins_anew_after_a_quiet_window(target, clock):
    """A child that ran for longer than the window since its last crash is restarted after the first pause again."""

    async def main():
        async with Kernel(target, clock=clock) as kernel:
            backoff = {"kind": "exponential", "initial_s": 1, "factor": 4, "max_s": 100}
            sup = await kernel.supervise(children("a"), max_restarts=10, window_s=30, backoff=backoff)

            async def restarts_after(pause_s):
                await hit(kernel, "a")
                await pass_time(kernel, clock, pause_s - 0.5)
                assert up(sup) == []
                await pass_time(kernel, clock, 1)
                assert up(sup) == ["a"]

            await restarts_after(1)
            await restarts_after(4)
            await pass_time(kernel, clock, 31, step_s=5)
            await restarts_after(1)
            await restarts_after(4)

    run(main())


def test_jitter_is_the_process_own_chance(path, clock):
    """A back-off with jitter is drawn once: a restart of the kernel waits for the same moment."""

    async def main():
        backoff = {"kind": "constant", "initial_s": 10, "jitter": 0.5}
        async with Crash(Kernel(path, clock=clock, programs=[worker])) as kernel:
            sup = await kernel.supervise(children("a"), pid="sup", backoff=backoff)
            await hit(kernel, "a")
            due = kernel.supervisors.tables["sup"].rows[0].due
            assert 5 <= due - clock.now() <= 15
            assert sup.alive
        async with Kernel(path, clock=clock, programs=[worker]) as kernel:
            await settle(kernel)
            assert kernel.supervisors.tables["sup"].rows[0].due == due
            await pass_time(kernel, clock, due - clock.now() + 0.5)
            assert up(kernel.supervisor("sup")) == ["a"]

    run(main())


def test_a_dynamic_supervisor(target, clock):
    """Any number of children of one kind: started with arguments, forgotten when they end, stopped all at once."""

    async def main():
        async with Kernel(target, clock=clock) as kernel:
            template = Child("job", worker, restart="transient", shutdown_s=5)
            sup = await kernel.supervise([template], strategy="simple_one_for_one", max_restarts=2)
            assert sup.which_children() == []
            jobs = [await sup.start_child(args=(f"j{number}",)) for number in range(5)]
            assert [child.id for child in await sup.which_children()] == [f"job-{number}" for number in range(1, 6)]
            await hit(kernel, jobs[0].pid, "normal")
            await hit(kernel, jobs[1].pid, "crash")
            assert up(sup) == ["job-2", "job-3", "job-4", "job-5"]
            await sup.terminate_child(jobs[2].pid)
            await sup.terminate_child("job-4")
            assert up(sup) == ["job-2", "job-5"]
            for refused in (sup.restart_child, sup.delete_child):
                with pytest.raises(InvalidTransition) as caught:
                    await refused("job-2")
                assert caught.value.problem == "simple_one_for_one"
            with pytest.raises(NoSuchProcess):
                await sup.terminate_child("job-1")
            with pytest.raises(ConfigError, match="needs arguments"):
                await sup.start_child(children("a")[0])
            await sup.stop()
            assert kernel.live == 0
            with pytest.raises(ConfigError):
                kernel.supervise([], strategy="simple_one_for_one")
            with pytest.raises(ConfigError):
                kernel.supervise(children("a"), strategy="simple_one_for_one")
            with pytest.raises(ConfigError, match="needs a Child"):
                await (await kernel.supervise([])).start_child(args=(1,))
            deaf = await kernel.supervise([Child("deaf", stubborn, shutdown_s=10)], strategy="simple_one_for_one")
            for _ in range(20):
                await deaf.start_child()
            await settle(kernel)
            stopped = deaf.stop()
            await pass_time(kernel, clock, 11)
            await stopped

    run(main())


def test_a_dynamic_supervisor_comes_back(path):
    """Its children, and the numbers in their ids, go on after kill -9."""

    async def main():
        async with Crash(Kernel(path, programs=[worker])) as kernel:
            sup = await kernel.supervise([Child("job", worker)], pid="sup", strategy="simple_one_for_one")
            for number in range(100):
                await sup.start_child(args=(f"j{number}",))
                if number % 3:
                    await sup.terminate_child(f"job-{number + 1}")
            before = await sup.which_children()
            assert len(before) == 34
        async with Kernel(path, programs=[worker]) as kernel:
            sup = kernel.supervisor("sup")
            assert await sup.which_children() == before
            assert (await sup.start_child()).alive
            assert sup.which_children()[-1].id == "job-101"

    run(main())


def test_children_have_budgets_rights_and_priorities(target):
    """Each child may be given less than its supervisor has; a restart gives the same again."""

    async def main():
        async with Kernel(target) as kernel:
            limited = Child(
                "a", worker, name="a", budget="$0.10", grant=["fs.read:/project/**"], priority="low", args=("a",)
            )
            sup = await kernel.supervise([limited, *children("b")], budget="$1.00")
            for _ in range(2):
                process = kernel.processes[kernel.whereis("a").pid]
                assert str(process.budget.limit("usd")) == "$0.10"
                assert process.budget.parent is kernel.processes[sup.pid].budget
                assert process.grant.allows("fs.read:/project/a")
                assert not process.grant.allows("fs.read:/etc/passwd")
                assert process.priority == 3
                await hit(kernel, "a")
            assert kernel.processes[kernel.whereis("b").pid].budget is kernel.processes[sup.pid].budget

    run(main())


# ---------------------------------------------------------------------- kill -9
def test_a_supervisor_comes_back(path, clock):
    """After a crash of the kernel: the same children, the same window; the next crash is one too many."""

    async def main():
        async with Crash(Kernel(path, clock=clock, programs=[worker])) as kernel:
            sup = await kernel.supervise(children("a", "b"), pid="sup", max_restarts=2, strategy="rest_for_one")
            await hit(kernel, "a")
            await sup.start_child(children("c")[0])
            await sup.terminate_child("c")
            await hit(kernel, "b")
            pids = [child.pid for child in await sup.which_children()]
            await settle(kernel)
        for snapshot in (False, True):
            async with Crash(Kernel(path, clock=clock, programs=[worker])) as kernel:
                await settle(kernel)
                sup = kernel.supervise([], pid="sup")
                assert [child.pid for child in sup.which_children()] == pids
                assert [child.starts for child in sup.which_children()] == [
                    2,
                    3,
                    2,
                ]  # c began again with b: it comes after it
                assert kernel.whereis("a").pid == pids[0]
                if snapshot:
                    await kernel._snapshots.write()
        async with Kernel(path, clock=clock, programs=[worker]) as kernel:
            await settle(kernel)
            sup = kernel.supervisor("sup")
            await hit(kernel, "b")
            assert (await sup.wait()).reason == "shutdown"
            assert kernel.live == 0

    run(main())


def test_its_journal_stays_short(path):
    """Hundreds of restarts are folded into checkpoints: what is replayed does not grow with them."""

    async def main():
        async with Crash(Kernel(path, programs=[worker])) as kernel:
            sup = await kernel.supervise(children("a", "b", "c"), pid="sup", max_restarts=-1, strategy="one_for_all")
            for _ in range(60):
                await hit(kernel, "b")
            pids = [child.pid for child in await sup.which_children()]
        kernel = Kernel(path, programs=[worker])
        await kernel.start()
        replayed = len(kernel.processes["sup"].replay or ())
        assert replayed < 200
        await settle(kernel)
        sup = kernel.supervisor("sup")
        assert [child.pid for child in sup.which_children()] == pids
        await hit(kernel, "b")
        assert [child.starts for child in await sup.which_children()] == [62, 62, 62]
        await kernel.close()

    run(main())


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_killed_anywhere_in_a_restart(tmp_path, strategy, monkeypatch):
    """However far a restart had come, after kill -9 it goes on: every child runs once, none twice."""
    monkeypatch.setattr("lyra.kernel.journal.journal._ROWS_A_COMMIT", 1)  # a slice may end after any round

    async def dies(path, point):
        """A kernel that ends at the `point`-th point it passes after a child's crash; False if it passes fewer."""
        passed = 0

        def hook(_name):
            nonlocal passed
            passed += 1
            if passed >= point:
                raise SimulatedCrash

        kernel = Kernel(path, programs=[worker])
        await kernel.start()
        kernel.loop.set_exception_handler(lambda _loop, _context: None)
        await kernel.supervise(children("a", "b", "c"), pid="sup", strategy=strategy)
        kernel.send("b", "crash")
        with intercept(hook):
            await settle(kernel)
        crash(kernel)
        return passed >= point

    async def comes_back(path):
        async with Kernel(path, programs=[worker]) as kernel:
            sup = kernel.supervisor("sup")
            await sup.which_children()
            await settle(kernel)
            assert up(sup) == ["a", "b", "c"]
            live = [pid for pid, process in kernel.processes.items() if process.exit is None]
            assert sorted(live) == sorted(["sup", *[child.pid for child in sup.which_children()]])
            assert len(kernel.supervisors.tables["sup"].times) <= 1

    points = 0
    while run(dies(str(tmp_path / f"{points}.db"), points + 1)):
        run(comes_back(str(tmp_path / f"{points}.db")))
        points += 1
    assert points > 5


def test_stopping_in_order_shares_commits(path):
    """Two hundred children end one after the other, the last first, and hardly any of it is a commit of its own."""

    async def main():
        async with Kernel(path, programs=[worker]) as kernel:
            names = [f"c{number}" for number in range(200)]
            sup = await kernel.supervise(children(*names))
            pids = [child.pid for child in sup.which_children()]
            ended = []
            kernel.on_event(
                lambda event: ended.append((event.seq, event.pid)) if event.kind == "process.terminated" else None
            )
            told = {}
            kernel.on_event(
                lambda event: told.setdefault(event.pid, event.seq) if event.kind == "process.stopping" else None
            )
            assert kernel.journal is not None
            before = kernel.journal.commits
            await sup.stop()
            assert [pid for _, pid in ended] == [*reversed(pids), sup.pid]
            # Each one's end is written before the next is told to end.
            assert all(seq < told[after] for (seq, _), (_, after) in pairwise(ended[:-1]))
            assert kernel.journal.commits - before < 100

    run(main())


def test_a_program_that_is_not_known_yet(path):
    """A supervisor that must start a program its kernel does not know waits for it, as a process would."""

    async def main():
        async with Crash(Kernel(path, programs=[worker])) as kernel:
            await kernel.supervise(children("a"), pid="sup")
            kernel.send("a", "crash")
            kernel.journal.flush()
        async with Kernel(path) as kernel:
            await settle(kernel)
            sup = kernel.supervisor("sup")
            assert sup.alive
            kernel.register(worker)
            await settle(kernel)
            await sup.which_children()
            assert up(sup) == ["a"]
            assert sup.which_children()[0].starts == 2

    run(main())


def test_a_supervisor_of_unknown_programs_obeys(path):
    """Reopened without its children's program: they are there and asleep, and every command is carried out."""

    async def main():
        async with Crash(Kernel(path, programs=[worker])) as kernel:
            await kernel.supervise([*children("a", "b"), Child.supervisor("c", children("d"))], pid="sup")
            await settle(kernel)
        async with Kernel(path) as kernel:
            sup = await kernel.supervisor("sup")
            assert [child.state for child in await sup.which_children()] == ["running"] * 3
            assert (await sup.count_children())["active"] == 3
            await sup.terminate_child("a")
            assert up(sup) == ["b", "c"]
            told = "this kernel does not know the program 'tests.kernel.supervision.test_supervisor:worker'"
            restarting = asyncio.ensure_future(_answer(sup.restart_child("a")))
            await settle(kernel)
            with pytest.raises(ProcessError, match=told) as refused:
                await sup.terminate_child("b")
            assert (refused.value.program, refused.value.id) == ("tests.kernel.supervision.test_supervisor:worker", "a")
            assert "kernel.register" in str(refused.value.hint)
            assert up(sup) == ["b", "c"]
            kernel.register(worker)
            assert (await restarting).alive
            await sup.terminate_child("b")
            assert up(sup) == ["a", "c"]
            await sup.stop()
            assert kernel.live == 0

    run(main())


async def _answer(command):
    return await command


@pytest.mark.parametrize("known_first", [True, False])
def test_waiting_for_a_program_is_replayed(path, known_first):
    """What a supervisor read while it waited for a program is read again by its replay, whatever that kernel knows."""

    async def main():
        async with Crash(Kernel(path, programs=[worker])) as kernel:
            sup = await kernel.supervise(children("a", "b"), pid="sup")
            await sup.terminate_child("a")
        async with Crash(Kernel(path)) as kernel:
            sup = kernel.supervisor("sup")
            sup.restart_child("a")
            with pytest.raises(ProcessError, match="does not know the program"):
                await sup
            assert [child.state for child in await sup.which_children()] == ["restarting", "running"]
            kernel.send("sup", "nothing for a supervisor")
            await settle(kernel)
            if known_first:
                kernel.register(worker)
                await settle(kernel)
                assert up(sup) == ["a", "b"]
        async with Kernel(path) as kernel:
            sup = kernel.supervisor("sup")
            await settle(kernel)
            assert up(sup) == (["a", "b"] if known_first else ["b"])
            await sup.stop()
            assert (await sup.wait()).reason == "shutdown"
            assert kernel.live == 0

    run(main())


@pytest.mark.parametrize("restarts", [0, 3, 100])
def test_its_table_is_there_as_soon_as_the_store_is_open(path, restarts):
    """which_children() right after recovery says what it said before the crash, and looking changes nothing."""

    async def main():
        async with Crash(Kernel(path, programs=[worker])) as kernel:
            sup = await kernel.supervise(children("a", "b"), pid="sup", max_restarts=-1)
            await sup.start_child(Child("c", worker, ("c",), name="c"))
            await sup.terminate_child("b")
            for _ in range(restarts):
                await hit(kernel, "a")
            await kernel.durable()
            before = list(sup.which_children())
            assert [child.starts for child in before] == [restarts + 1, 1, 1]
        async with Kernel(path, programs=[worker]) as kernel:
            rows = kernel.journal.seq
            sup = kernel.supervisor("sup")
            assert list(sup.which_children()) == before
            assert dict(sup.count_children()) == {"specs": 3, "active": 2, "supervisors": 0, "workers": 3}
            assert kernel.journal.seq == rows
            await settle(kernel)
            assert list(sup.which_children()) == before
            await hit(kernel, "a")
            assert up(sup) == ["a", "c"]

    run(main())


def test_a_name_that_is_taken_says_so(target):
    """A child whose name belongs to another process is NameTaken, from start_child and from supervise."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.spawn(worker, name="x")
            sup = await kernel.supervise([])
            with pytest.raises(NameTaken, match="child 'a' did not start: the name 'x' belongs") as taken:
                await sup.start_child(Child("a", worker, name="x"))
            assert (taken.value.id, taken.value.name) == ("a", "x")
            assert sup.which_children() == []
            with pytest.raises(NameTaken, match="did not start"):
                await kernel.supervise([Child("a", worker, name="x")])

    run(main())


def test_a_wrong_strategy_is_told_all_words():
    """The names of Erlang/OTP are among the words that may be meant."""

    async def main():
        async with Kernel() as kernel:
            words = "restart, restart_all, rest_for_one, stop, escalate, one_for_one, one_for_all"
            with pytest.raises(ConfigError, match=f"one of {words}, simple_one_for_one, not 'all'"):
                kernel.supervise([], strategy="all")
            with pytest.raises(ConfigError, match=f"one of {words}, not") as wrong:
                kernel.spawn(worker, supervision="one_for_onee")
            assert wrong.value.hint == "did you mean 'one_for_one'?"

    run(main())


def test_the_window_does_not_care_who_sets_the_clock(target, clock):
    """Within a life restarts are counted by a clock that cannot be set: not back, and not ahead."""

    async def main():
        async with Kernel(target, clock=clock) as kernel:
            sup = await kernel.supervise(children("a"), max_restarts=1, window_s=10)
            await hit(kernel, "a")
            clock.jump(-3600.0)
            clock.advance(11.0)
            await hit(kernel, "a")
            assert up(sup) == ["a"]
            clock.jump(3600.0)
            await hit(kernel, "a")
            assert (await sup.wait()).reason == "shutdown"

    run(main())


def test_a_clock_set_back_between_two_lives(path):
    """Restarts that the new wall clock has yet to see do not count, and a back-off ends as soon as it may."""

    async def main():
        async with Crash(Kernel(path, SimClock(10_000.0), programs=[worker])) as kernel:
            backoff = {"kind": "constant", "initial_s": 2.0, "max_s": 5.0}
            await kernel.supervise(children("a"), pid="a-sup", max_restarts=1, window_s=60)
            await kernel.supervise(children("b"), pid="b-sup", backoff=backoff)
            await hit(kernel, "a")
            await hit(kernel, "b")
            await kernel.durable()
        clock = SimClock(1_000.0)
        async with Kernel(path, clock, programs=[worker]) as kernel:
            await hit(kernel, "a")
            assert up(kernel.supervisor("a-sup")) == ["a"]
            assert up(kernel.supervisor("b-sup")) == []
            await pass_time(kernel, clock, 5.0)
            assert up(kernel.supervisor("b-sup")) == ["b"]

    run(main())


# ---------------------------------------------------------------------- processes with a supervision of their own
async def flaky(ctx, label, failures):
    tries[label] = tries.get(label, 0) + 1
    if tries[label] <= failures:
        raise ValueError(f"failure {tries[label]}")
    return tries[label]


async def echo(ctx):
    while True:
        message = await ctx.receive()
        if message == "crash":
            raise ValueError("boom")
        if message == "done":
            return "done"
        diary.append(message)


def test_a_supervised_spawn(target):
    """Crashes are restarted behind one handle; it ends as the last run ended, or with the error it gave up on."""

    async def main():
        async with Kernel(target) as kernel:
            good = kernel.spawn(flaky, "good", 3, supervision={"strategy": "restart", "max_restarts": 3})
            assert (await good.wait()).result == 4
            bad = await kernel.spawn(flaky, "bad", 9, supervision={"max_restarts": 2}).wait()
            assert (bad.reason, str(bad.error)) == ("error", "failure 3")
            for strategy in ("stop", "escalate"):
                once = await kernel.spawn(flaky, strategy, 9, supervision=strategy).wait()
                assert str(once.error) == "failure 1"
            with pytest.raises(ConfigError, match="strategy is one of"):
                kernel.spawn(flaky, "x", 1, supervision={"strategy": "resart"})
            assert kernel.live == 0

    run(main())


def test_its_pid_and_name_outlive_restarts(target, clock):
    """Messages to the name or the pid reach whichever run is alive, in order, also those sent during a back-off."""

    async def main():
        async with Kernel(target, clock) as kernel:
            handle = kernel.spawn(
                echo, pid="e", name="echo", supervision={"backoff": {"kind": "constant", "initial_s": 0.05}}
            )
            assert handle.pid == "e"
            for message in ("one", "crash", "two", "three"):
                await kernel.send("echo", message)
                await settle(kernel)
            assert diary == ["one"]
            await pass_time(kernel, clock, 0.1, step_s=0.05)
            assert diary == ["one", "two", "three"]
            assert kernel.whereis("echo").pid == "e"
            assert kernel.spawn(echo, pid="e").pid == "e"
            handle.send("done")
            assert (await handle.wait()).result == "done"
            gone = kernel.spawn(echo, supervision="restart")
            await settle(kernel)
            await gone.kill()
            await gone.wait()
            await settle(kernel)
            assert kernel.live == 0

    run(main())


def test_a_programs_supervised_child(path):
    """ctx.spawn takes the same supervision; the parent learns of the end it did not survive, also after kill -9."""

    async def parent(ctx):
        child = ctx.spawn(echo, name="echo", supervision={"max_restarts": 1})
        ended = await child.wait()
        return [ended.reason, str(ended.error)]

    async def main():
        async with Crash(Kernel(path, programs=[parent, echo])) as kernel:
            kernel.spawn(parent, pid="p")
            await settle(kernel)
            await hit(kernel, "echo")
            assert kernel.process("p").alive
        async with Kernel(path, programs=[parent, echo]) as kernel:
            await settle(kernel)
            await hit(kernel, "echo", "still here")
            assert diary == ["still here"]
            await hit(kernel, "echo")
            assert (await kernel.process("p").wait()).result == ["error", "boom"]

    run(main())


def test_strategies_stop_and_escalate_of_a_supervisor(target):
    """`stop` leaves a crashed child down and the others running; `escalate` fails with the child's error."""

    async def main():
        async with Kernel(target) as kernel:
            leaves = await kernel.supervise(children("a", "b"), strategy="stop")
            await hit(kernel, "a")
            assert up(leaves) == ["b"]
            fails = await kernel.supervise(children("x", "y"), strategy="escalate")
            await hit(kernel, "x")
            ended = await fails.wait()
            assert (ended.reason, str(ended.error)) == ("error", "boom")
            assert up(leaves) == ["b"]
            assert kernel.whereis("y") is None

    run(main())


def test_escalate_starts_a_permanent_child_again_that_has_not_failed(target):
    """Its end was no failure, so there is nothing to pass on: it is started again, alone."""

    async def main():
        async with Kernel(target) as kernel:
            sup = await kernel.supervise(children("x", "y"), strategy="escalate")
            diary.clear()
            await hit(kernel, "x", "normal")
            assert diary == ["+x"]
            assert up(sup) == ["x", "y"]
            assert sup.alive

    run(main())


def test_a_programs_own_supervisor(target):
    """ctx.supervise: its end is the program's business, the program's end is its end, and `stop` tells the program."""

    async def boss(ctx):
        ctx.trap_exit(True)
        handle = ctx.supervise(children("a", "b"), strategy="stop", name="sup")
        told = await ctx.receive()
        assert told["supervisor"] == handle.pid
        await ctx.receive()
        return told["reason"]

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(boss)
            await settle(kernel)
            sup = kernel.supervisor("sup")
            await hit(kernel, "a")
            assert up(sup) == ["b"]
            await hit(kernel, handle.pid, "go")
            assert (await handle.wait()).result == "error"
            await settle(kernel)
            assert (await sup.wait()).reason == "normal"
            assert kernel.live == 0

    run(main())


def test_only_a_parent_may_stop(target):
    """ctx.stop is for what a program spawned itself; another's process is Denied."""

    async def nosy(ctx, pid):
        own = ctx.spawn(worker, "own")
        ctx.stop(own)
        ended = await own.wait()
        try:
            ctx.stop(pid)
        except Denied as refusal:
            return [ended.reason, refusal.pid]

    async def main():
        async with Kernel(target) as kernel:
            other = kernel.spawn(worker, "other")
            assert await kernel.run(nosy, other.pid) == ["shutdown", other.pid]
            assert other.alive

    run(main())


# ---------------------------------------------------------------------- a model, with crashes of the kernel
LETTERS = st.sampled_from("abcd")


class SupervisorMachine(RuleBasedStateMachine):
    """A one_for_one supervisor of at most four children against the obvious model; the kernel dies now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.Runner()
        self.model: dict[str, tuple[str, bool]] = {}  # id → (restart type, running)
        self.kernel: Kernel
        self.loop.run(self.open())

    async def open(self) -> None:
        self.kernel = Kernel(f"{self.folder.name}/run.db", programs=[worker], clock=SimClock(1_000.0))
        await self.kernel.start()
        self.sup = await self.kernel.supervise([], pid="sup", max_restarts=-1)
        await settle(self.kernel)

    def do(self, work: Any) -> Any:
        async def wait() -> Any:
            return await work

        return self.loop.run(wait())

    @rule(letter=LETTERS, restart=st.sampled_from(["permanent", "transient", "temporary"]))
    def start(self, letter: str, restart: str) -> None:
        command = self.loop.run(self._call(lambda: self.sup.start_child(children(letter, restart=restart)[0])))
        if letter in self.model:
            assert isinstance(command, NameTaken)
        else:
            assert command.alive
            self.model[letter] = restart, True

    @rule(letter=LETTERS)
    def terminate(self, letter: str) -> None:
        outcome = self.loop.run(self._call(lambda: self.sup.terminate_child(letter)))
        assert isinstance(outcome, NoSuchProcess) == (letter not in self.model)
        self._down(letter)

    @rule(letter=LETTERS)
    def restart(self, letter: str) -> None:
        outcome = self.loop.run(self._call(lambda: self.sup.restart_child(letter)))
        if letter not in self.model:
            assert isinstance(outcome, NoSuchProcess)
        elif self.model[letter][1]:
            assert isinstance(outcome, InvalidTransition)
        else:
            self.model[letter] = self.model[letter][0], True

    @rule(letter=LETTERS)
    def delete(self, letter: str) -> None:
        outcome = self.loop.run(self._call(lambda: self.sup.delete_child(letter)))
        if letter not in self.model:
            assert isinstance(outcome, NoSuchProcess)
        elif self.model[letter][1]:
            assert isinstance(outcome, InvalidTransition)
        else:
            del self.model[letter]

    @precondition(lambda self: any(running for _, running in self.model.values()))
    @rule(data=st.data(), how=st.sampled_from(["crash", "normal", "shutdown", "odd"]))
    def end(self, data: st.DataObject, how: str) -> None:
        letter = data.draw(st.sampled_from(sorted(key for key, (_, running) in self.model.items() if running)))
        self.loop.run(hit(self.kernel, letter, how))
        restart = self.model[letter][0]
        if restart == "temporary" or (restart == "transient" and how in ("normal", "shutdown")):
            self._down(letter)

    @rule(snapshot=st.booleans())
    def kernel_dies(self, snapshot: bool) -> None:
        async def again() -> None:
            await settle(self.kernel)
            if snapshot:
                await self.kernel._snapshots.write()
            crash(self.kernel)
            await self.open()

        self.loop.run(again())

    @invariant()
    def same_children(self) -> None:
        known = self.loop.run(self._call(self.sup.which_children))
        assert {child.id: (child.restart, child.pid is not None) for child in known} == self.model
        for child in known:
            named = self.kernel.whereis(child.id)
            assert (named.pid if named is not None else None) == child.pid

    def _down(self, letter: str) -> None:
        if letter in self.model:
            restart = self.model[letter][0]
            if restart == "temporary":
                del self.model[letter]
            else:
                self.model[letter] = restart, False

    async def _call(self, call: Any) -> Any:
        try:
            return await call()
        except ProcessError as refusal:
            return refusal

    def teardown(self) -> None:
        self.loop.run(self.kernel.close())
        self.loop.close()
        self.folder.cleanup()


TestSupervisorMachine = SupervisorMachine.TestCase
TestSupervisorMachine.settings = settings(
    max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_list_of_children_says_which_are_significant(target):
    """Those whose end can end the supervisor; and when each is started again."""

    async def main():
        async with Kernel(target) as kernel:
            kids = [
                Child("main", worker, ("main",), restart="transient", significant=True),
                Child("aide", worker, ("aide",)),
            ]
            sup = await kernel.supervise(kids, auto_shutdown="any_significant")
            return [(child.id, child.significant, child.restart) for child in sup.which_children()]

    assert run(main()) == [("main", True, "transient"), ("aide", False, "permanent")]
