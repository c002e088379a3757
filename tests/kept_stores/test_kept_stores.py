"""Every store that an earlier version left in the middle of its work is opened, finished and sound.

The stores lie in a folder for each version (`v0.1.0/NAME.db`), as a process killed by SIGKILL left them; `make` says
how they were made, and they are never made again. What they come to is written down here. A test that fails says that
today's code no longer understands what earlier versions wrote: the code has to be mended, not the store.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from lyra import Kernel
from lyra.errors import BudgetExceeded, NoSuchProcess
from lyra.kernel import ServiceInfo
from lyra.kernel.journal import snapshots
from lyra.store.ended import load_all
from lyra.testing import SimClock, run_in_virtual_time
from tests.kept_stores import programs
from tests.kept_stores.make import COMPACTED
from tests.kept_stores.scenes import MADE_AT, follow, settle
from tests.kept_stores.vega_scenes import COMMANDS, write_script

HERE = Path(__file__).parent
VERSIONS = sorted(folder.name for folder in HERE.glob("v*") if folder.is_dir())
_SCENES = (
    "supervisors", "groups", "interrupts", "services", "pipelines", "workers", "mailboxes", "effects", "memories",
    "agents", "parallel",
)  # fmt: skip
_ALL = [
    *(name for scene in _SCENES for name in (scene, f"{scene}{COMPACTED}")),
    "vega-replayed",
    "vega-saved",
    "vega-snapshots",
]
KEPT = {  # by folder; a store is never taken off this list
    "v0.1.0": _ALL,
    "v0.1.0-fixed-names": _ALL,  # the first with fixed names for the programs of Lyra itself
    "v0.1.0-segments": [f"ended{COMPACTED}"],  # the first with segments of ended processes, each named by the snapshot
    "v0.1.0-store-ids": [*_ALL, "withdrawals", f"withdrawals{COMPACTED}"],  # the first with ids and withdrawn messages
}
LATER_S = 90.0  # from the beginning of the first life to the next one
WAIT_S = 100_000.0  # of virtual time, for a process that has to end


def stores(name: str) -> list[Any]:
    """The store of a scene of each version, as a journal and compacted."""
    return files(name, f"{name}{COMPACTED}")


def files(*names: str) -> list[Any]:
    paths = [HERE / version / f"{name}.db" for version, kept in KEPT.items() for name in names if name in kept]
    return [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in paths]


@cache
def command() -> Callable[[list[str]], int]:
    """Return the command `lyra`, by the name it is installed under."""
    (script,) = entry_points(group="console_scripts", name="lyra")
    loaded: Callable[[list[str]], int] = script.load()
    return loaded


def lyra(*words: str) -> int:
    return command()(list(words))


def finish(kept: Path, folder: Path, work: Callable[[Kernel], Awaitable[None]]) -> None:
    """Open a copy of a store with today's code, soon after its kernel was killed, and do `work` with it."""
    path = folder / "kept.db"
    shutil.copy(kept, path)
    if kept.stem.endswith(COMPACTED):  # the others open as they are, with a warning
        assert lyra("store", "adopt", str(path), "--yes") == 0
    is_sound(path)
    clock = SimClock(MADE_AT + LATER_S)
    programs.performed.clear()
    programs.held.clear()
    stuck: list[tuple[str, str]] = []  # processes whose program is not found, or asks for something else than before

    async def main() -> None:
        kernel = Kernel(path, clock, [*programs.PROGRAMS, *programs.AGENTS])
        kernel.on_event(lambda event: stuck.append((event.kind, event.pid)), ["process.dormant", "process.diverged"])
        async with kernel:
            programs.kernels[:] = [kernel]
            async with asyncio.timeout(WAIT_S):
                await work(kernel)

    run_in_virtual_time(main(), clock=clock)
    assert stuck == []
    is_sound(path)


def is_sound(path: Path) -> None:
    assert lyra("store", "check", str(path)) == 0
    assert lyra("store", "info", str(path), "--json") == 0


async def came_back(kernel: Kernel) -> None:
    """Every live process has taken up its work: none waits for a program that is not found."""
    await settle()
    states = {pid: kernel.process(pid).state for pid in kernel.processes}
    assert [pid for pid, state in states.items() if state == "new"] == []


async def result(kernel: Kernel, pid: str) -> Any:
    ended = await kernel.process(pid).wait()
    assert ended.error is None, ended.error
    assert ended.reason == "normal"
    return ended.result


def test_no_store_is_missing():
    """Each version that was kept has every store that it was kept with, and no other."""
    assert list(KEPT) == VERSIONS
    for version, names in KEPT.items():
        assert sorted(path.name for path in (HERE / version).iterdir()) == sorted(f"{name}.db" for name in names)


@pytest.fixture(autouse=True)
def own_user(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a user of its own: copies of one store are adopted by one and not by another."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("user")))


def adopted() -> list[Any]:
    """All of the first version; of the later ones every other scene stays in `make test`, where each compacted store
    is adopted on its way into the test of its scene."""
    first = VERSIONS[0]
    kept = {HERE / first / f"{name}.db" for name in _ALL}
    kept |= {HERE / version / f"{name}.db" for number, version in enumerate(KEPT) for name in _SCENES[number % 2 :: 2]}
    return [
        file if file.values[0] in kept else pytest.param(*file.values, id=file.id, marks=pytest.mark.long)
        for file in files(*_ALL)
    ]


@pytest.mark.parametrize("kept", adopted())
def test_all_of_them_can_be_adopted(kept, tmp_path, capsys):
    """No version before signed its stores: what is in them is listed and signed, with the runs, and is sound then."""
    path = tmp_path / "kept.db"
    shutil.copy(kept, path)
    assert lyra("store", "adopt", str(path), "--yes", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert {shown["standing"] for shown in listed["stores"]} <= {"unsigned", "empty"}
    assert any(shown["processes"] or shown["entries"] for shown in listed["stores"])
    is_sound(path)
    capsys.readouterr()
    assert lyra("store", "adopt", str(path), "--yes", "--json") == 0
    again = json.loads(capsys.readouterr().out)["stores"]
    assert {shown["standing"] for shown in again} <= {"signed", "empty"}
    assert [shown["processes"] for shown in again] == [shown["processes"] for shown in listed["stores"]]


@pytest.mark.parametrize("kept", stores("supervisors"))
def test_supervisors(kept, tmp_path):
    """The tree, the dynamic supervisor, a supervised process and a program's own supervisor; their restarts count."""

    def children(pid):
        return [(child.id, child.state, child.starts) for child in kernel_of[0].supervisor(pid).which_children()]

    kernel_of: list[Kernel] = []

    async def work(kernel):
        kernel_of.append(kernel)
        await came_back(kernel)
        assert programs.performed == ["note bob hears wait", "note bob hears unread"]
        assert children("tree") == [("ada", "running", 3), ("bob", "running", 1), ("inner", "running", 1)]
        inner = next(child.pid for child in kernel.supervisor("tree").which_children() if child.id == "inner")
        assert children(inner) == [("cid", "running", 2), ("dan", "running", 2)]
        assert children("jobs") == [("job-1", "running", 1), ("job-3", "running", 1)]
        await kernel.supervisor("jobs").start_child(args=("job 4",))
        assert [child.id for child in await kernel.supervisor("jobs").which_children()] == ["job-1", "job-3", "job-4"]
        programs.performed.clear()
        for name in ("ada", "dan", "eve", "own"):
            await kernel.send(name, "hello")
            await settle()
        assert (
            programs.performed
            == [
                "note job 4 starts",
                "note ada hears hello",
                "note dan hears hello",
                "note eve hears hello",
                "note own hears hello",
            ][-len(programs.performed) :]
        )
        programs.performed.clear()
        await kernel.send("eve", "fall")
        await settle()
        assert programs.performed == ["note eve starts"]
        await kernel.send("eve", "end")
        assert await result(kernel, "eve") == "eve"
        await kernel.send("head", "enough")
        assert await result(kernel, "head") == "enough"
        await settle()
        assert kernel.whereis("own") is None
        await kernel.send("ada", "fall")  # the third restart in its window, and the last that is allowed
        await settle()
        assert children("tree")[0] == ("ada", "running", 4)
        await kernel.send("ada", "fall")
        ended = await kernel.process("tree").wait()
        assert ended.reason != "normal"
        assert [kernel.whereis(name) for name in ("ada", "bob", "cid", "dan")] == [None] * 4
        await kernel.supervisor("jobs").stop()

    finish(kept, tmp_path, work)


@pytest.mark.parametrize("kept", stores("groups"))
def test_groups(kept, tmp_path):
    """Members, those that left and ended, the blackboard, and a broadcast that one member has not read."""

    async def work(kernel):
        await came_back(kernel)
        assert kernel.groups.names() == ["red", "empty"]
        assert kernel.groups.members("red") == ["ann", "ben"]
        assert kernel.groups.members("empty") == []
        assert kernel.groups.bb_snapshot("red") == {"plan": {"steps": [1, 2]}}
        assert programs.performed == ["note ann hears wait", "note ann hears all"]
        kernel.groups.broadcast("red", "end")
        assert [await result(kernel, pid) for pid in ("ann", "ben", "cat")] == ["ann", "ben", "cat"]
        assert kernel.groups.members("red") == []

    finish(kept, tmp_path, work)


@pytest.mark.parametrize("kept", stores("interrupts"))
def test_interrupts(kept, tmp_path):
    """Questions of programs and about entries stand as they stood; an answer arrives."""

    async def work(kernel):
        await came_back(kernel)
        questions = {
            interrupt.question: (interrupt.pid, interrupt.kind, interrupt.status)
            for interrupt in kernel.interrupts.list_interrupts()
        }
        assert questions == {
            "may I?": ("pending", "confirmation", "pending"),
            "delete it?": ("entry", "confirmation", "pending"),
            "which one?": ("entry", "clarification", "resolved"),
            "too late?": ("other", "confirmation", "expired"),
            "never mind?": ("other", "clarification", "cancelled"),
        }
        assert kernel.interrupts.configs["agent_review"].default_ttl == 5.0
        ended = await kernel.process("expired").wait()
        assert (ended.reason, ended.error.code) == ("error", "deadline_exceeded")
        assert (await kernel.process("killed").wait()).reason == "killed"
        question = kernel.get_pending_interrupt("entry")
        assert (question.data, question.user_id) == ({"file": "a.txt"}, "ada")
        assert question.expires_at == pytest.approx(MADE_AT + 3600.0, abs=0.1)
        assert [kernel.get_process(pid).state for pid in ("entry", "other")] == ["waiting", "running"]
        await kernel.resolve_interrupt(question.id, {"approved": False}, "ada")
        assert kernel.interrupts.get(question.id).response.approved is False
        assert kernel.get_process("entry").state == "ready"
        assert await result(kernel, "answered") == ["yes", None, "noted proceed? yes"]
        question = kernel.get_pending_interrupt("pending")
        assert (question.kind, question.question) == ("confirmation", "may I?")
        await kernel.resolve_interrupt(question.id, {"approved": True, "text": "ok"})
        assert await result(kernel, "pending") == ["ok", True, "noted may I? ok"]
        assert programs.performed == ["note proceed? yes", "note may I? ok"]

    finish(kept, tmp_path, work)


@pytest.mark.parametrize("kept", stores("services"))
def test_services(kept, tmp_path):
    """Services, their health and settings; a dispatch in flight is made again, a finished one is not."""

    async def work(kernel):
        kernel.register_handler("printer", programs.serve)
        await came_back(kernel)
        known = kernel.services.list_services()
        assert [(service.name, service.service_type, service.status) for service in known] == [
            ("printer", "worker", "healthy"),
            ("oracle", "inference", "degraded"),
        ]
        assert (known[0].version, known[0].max_concurrent, known[0].metadata) == ("2.1", 4, {"room": 7})
        assert known[1].capabilities == ["small"]
        assert await result(kernel, "client") == ["served letter one", "served letter two"]
        assert programs.performed == ["service letter two"]
        await kernel.register_service(ServiceInfo("gone"))

    finish(kept, tmp_path, work)


@pytest.mark.parametrize("kept", stores("pipelines"))
def test_pipelines(kept, tmp_path):
    """Those of workers outside and of the kernel: a loop, a fork, open questions, stages in flight and in doubt."""

    async def work(kernel):
        for stage in programs.STAGES:
            kernel.register_agent(stage, programs.run_stage, idempotent=stage != "draft")
        await came_back(kernel)
        assert programs.performed == [
            "stage run check", "stage run draft", "stage run check", "stage forked right", "stage forked sum"
        ]  # fmt: skip
        outside = kernel.get_next_instruction("outside")
        assert (outside.kind, outside.agent_name, outside.run_id) == ("run_agent", "draft", 3)
        assert (outside.envelope.llm_call_count, outside.envelope.iteration) == (2, 1)
        for stage in ("draft", "check"):
            told = kernel.report_agent_result("outside", {"agent_name": stage, "output": {"again": False}})
        assert told.kind == "wait_interrupt"
        restored = kernel.get_next_instruction("restored outside")
        assert (restored.agent_name, restored.envelope.outputs) == ("check", {"draft": {"n": 4}})
        kernel.report_agent_result("restored outside", {"agent_name": "check", "output": {"again": False}})
        copied = kernel.get_orchestration_state("copied outside")
        assert (copied.terminal_reason, copied.envelope.termination_reason) == ("user_cancelled", "no longer wanted")
        with pytest.raises(NoSuchProcess):
            kernel.get_orchestration_state("cleaned")
        answered = kernel.report_agent_result("answered outside", {"agent_name": "publish", "output": {"n": 5}})
        assert (answered.kind, answered.terminal_reason) == ("terminate", "completed")
        for pid in ("outside", "asks outside", "restored outside"):
            question = kernel.get_pending_interrupt(pid)
            assert (question.kind, question.question) == ("confirmation", "check asks")
            await kernel.resolve_interrupt(question.id, {"approved": True})
            told = kernel.get_next_instruction(pid)
            assert (told.kind, told.agent_name) == ("run_agent", "publish")
            told = kernel.report_agent_result(pid, {"agent_name": "publish", "output": {"where": pid}})
            assert (told.kind, told.terminal_reason) == ("terminate", "completed")
            assert told.envelope.outputs["publish"] == {"where": pid}
        programs.performed.clear()
        question = kernel.get_pending_interrupt("doubtful")
        assert (question.kind, "pipeline:draft" in question.question) == ("in_doubt", True)
        await kernel.resolve_interrupt(question.id, {"decision": "retry"})
        await settle()
        assert programs.performed == [f"stage doubtful {stage}" for stage in ("draft", "check", "draft", "check")]
        programs.performed.clear()
        for pid, kind in (
            ("doubtful", "confirmation"), ("run", "confirmation"), ("asks", "confirmation"), ("forked", "clarification")
        ):  # fmt: skip
            question = kernel.get_pending_interrupt(pid)
            assert question.kind == kind
            await kernel.resolve_interrupt(question.id, {"approved": True, "text": "go on"})
            events = await follow(kernel.execute_pipeline(programs.FORK if pid == "forked" else programs.LINE, pid=pid))
            assert events[-1] == "pipeline_completed"
            state = kernel.get_orchestration_state(pid)
            assert (state.terminated, state.terminal_reason) == (True, "completed")
            outputs = {stage: output["said"] for stage, output in state.envelope.outputs.items()}
            if pid == "forked":
                assert outputs == {
                    "plan": "plan after 0",
                    "left": "left after 1",
                    "right": "right after 1",
                    "sum": "sum after 3",
                    "tell": "tell after 4",
                }
            else:
                assert outputs == {"draft": "draft after 2", "check": "check after 2", "publish": "publish after 2"}
                assert state.stage_visits == {"draft": 2, "check": 2, "publish": 1}
        assert programs.performed == [
            "stage doubtful publish", "stage run publish", "stage asks publish", "stage forked tell"
        ]  # fmt: skip

    finish(kept, tmp_path, work)


@pytest.mark.parametrize("kept", stores("workers"))
def test_workers(kept, tmp_path):
    """Entries of outside workers in every state, their order, quotas, usage, times and rate limits."""

    async def work(kernel):
        heard = []
        kernel.on_event(lambda event: heard.append((event.kind, event.pid)), ["resource.exceeded", "resource.warning"])
        assert {block.pid: (block.state, block.priority, block.user_id) for block in kernel.list_processes()} == {
            "low": ("ready", "low", "ada"),
            "high": ("running", "high", "ada"),
            "normal": ("blocked", "normal", "ada"),
            "late": ("new", "normal", "ada"),
            "dead": ("terminated", "idle", "ada"),
            "timed": ("running", "normal", "bob"),
            "new": ("new", "normal", "bob"),
        }
        high = kernel.get_process("high")
        assert (high.request_id, high.session_id, high.started_at) == ("r-high", "s", MADE_AT)
        assert (high.usage.llm_calls, high.usage.tool_calls, high.usage.tokens_in) == (2, 1, 100)
        assert (high.current_stage, high.current_service) == ("reading", "printer")
        assert (high.quota.max_llm_calls, high.quota.max_tool_calls) == (50, 1)
        kernel.record_tool_call("high")
        assert kernel.check_quota("high").within_bounds is False
        assert kernel.get_remaining_budget("high").llm_calls_remaining == 48
        assert kernel.get_process("new").parent_pid == "high"
        assert kernel.get_process("dead").termination_reason == "not needed"
        await asyncio.sleep(8.0)
        assert ("resource.exceeded", "timed") not in heard
        await asyncio.sleep(3.0)
        assert [kind for kind, pid in heard if pid == "timed"] == ["resource.exceeded"]  # the warning was before
        kernel.schedule("late")
        kernel.transition_state("normal", "ready")
        order = [kernel.get_next_runnable().pid for _ in range(3)]
        assert order == ["late", "normal", "low"]
        for pid in (*order, "high"):
            kernel.terminate(pid, "done", force=True)
        assert kernel.get_process_counts()["terminated"] >= 5
        assert kernel.rate_limiter.get_config("ada").requests_per_minute == 3
        assert kernel.rate_limiter.get_usage("ada").hour == 3
        assert kernel.rate_limiter.get_usage("bob", "search").hour == 1
        allowed = [kernel.check_rate_limit("bob", "search").allowed for _ in range(5)]
        assert allowed == [True, True, True, True, False]

    finish(kept, tmp_path, work)


@pytest.mark.parametrize("kept", stores("mailboxes"))
def test_mailboxes(kept, tmp_path):
    """Unread messages, links, monitors, trapped exits, timers, names, parents and children."""

    async def work(kernel):
        await came_back(kernel)
        assert kernel.whereis("reader").pid == "reader"
        await kernel.send("reader", "two")
        await kernel.send("reader", ["three"])
        assert await result(kernel, "reader") == [{"n": 1}, "two", ["three"]]
        await kernel.send("watched", "end")
        assert await result(kernel, "watcher") == [
            ["Down", "watched", "normal"],
            ["ExitSignal", "linked", "told to"],
        ]
        await kernel.kill("other end", "gone")
        ended = await kernel.process("tied").wait()
        assert ended.reason == "linked"
        slept, noted = await result(kernel, "sleeper")
        assert (slept, noted) == (pytest.approx(600.0), "noted slept 600")
        assert await result(kernel, "patient") is None
        assert await result(kernel, "over") is None
        await kernel.send("child", "from outside")
        assert await result(kernel, "parent") == ["normal", ["from the parent", "from outside"], "no_such_process"]
        assert await result(kernel, "undecided") == "noted undecided"
        assert programs.performed == ["note undecided", "note slept 600"]

    finish(kept, tmp_path, work)


@pytest.mark.parametrize("kept", stores("effects"))
def test_effects(kept, tmp_path):
    """Finished effects are not performed again, idempotent ones in flight are, and the others become a question."""

    async def work(kernel):
        await came_back(kernel)
        assert await result(kernel, "errands") == [
            "noted first",
            "paid once",
            len(programs.LARGE),
            "it is broken",
            "capability_denied",
            "bought bread",
            "$0.75",
            True,
            "noted left",
            "noted right",
            "$0.75",
        ]
        assert await result(kernel, "counter") == 5
        assert await result(kernel, "gated") == [
            "served one", "broken", "served two", "broken", "rate limited", "circuit open", "noted gated"
        ]  # fmt: skip
        assert sorted(programs.performed) == [
            "note count 3", "note count 4", "note count 5", "note gated", "note right"
        ]  # fmt: skip
        for text, decision, data in (
            ("retried", "retry", None), ("skipped", "skip", "seen on the bill"), ("failed", "fail", None)
        ):  # fmt: skip
            question = kernel.get_pending_interrupt(f"payer {text}")
            assert question.kind == "in_doubt"
            await kernel.resolve_interrupt(question.id, {"decision": decision, "data": data})
        results = [await result(kernel, f"payer {text}") for text in ("retried", "skipped", "failed")]
        assert results == ["paid retried", "seen on the bill", "effect_in_doubt"]
        assert programs.performed[5:] == ["pay retried"]
        again = kernel.spawn(programs.gated, pid="gated again")  # the breaker is still open, the rate has recovered
        assert (await again.wait()).result == [
            "served one", "circuit open", "rate limited", "circuit open", "rate limited", "circuit open", "noted gated"
        ]  # fmt: skip

    finish(kept, tmp_path, work)


@pytest.mark.parametrize("kept", stores("memories"))
def test_memories_and_labels(kept, tmp_path):
    """What is remembered, what was forgotten, and which processes and memories carry the mark of text from outside."""

    async def work(kernel):
        await came_back(kernel)
        items = kernel.memories.items("facts")
        assert [(item.id, item.kind, item.text, item.tainted) for item in items] == [
            (1, "preference", "likes tea", False),
            (2, "fact", "lives in Ulm", False),
            (4, "fact", "read somewhere", True),
        ]
        assert [item.text for item in kernel.memories.search("facts", "who lives where?")] == ["lives in Ulm"]
        assert kernel.memories.add("facts", "new").id == 5
        marked = [pid for pid in ("clean", "marked", "told", "tells") if kernel.taint.is_tainted(pid)]
        assert marked == ["marked", "told"]
        for pid in ("clean", "marked", "told"):
            await kernel.send(pid, "go on")
        results = [await result(kernel, pid) for pid in ("clean", "marked", "told", "tells")]
        assert results == ["noted clean", "noted marked", "noted told", "noted tells"]
        assert programs.performed[0] == "note tells"
        assert len(programs.performed) == 4

    finish(kept, tmp_path, work)


@pytest.mark.parametrize("kept", stores("agents"))
def test_agents(kept, tmp_path):
    """Turns go on where they were: what a model or a tool has answered is not asked again."""

    async def talk(kernel, agent, pid):
        process = await kernel.spawn(agent, pid=pid)
        texts = [message.text or [result.output for result in message.tool_results] for message in process.messages]
        return texts[-2:], len(texts), process.metrics.calls

    async def work(kernel):
        await came_back(kernel)
        assert sorted(programs.performed) == [
            "look_up slow",
            "model [help with it]",
            "model after the fall",
            "model and now",
            "model help with it",
            "model meaning of slow",
            "model meaning of tea",
            "model stream",
            "model think",
            "model what is hot?",
        ]
        programs.performed.clear()
        for pid, kind, answer in (
            ("orders", "in_doubt", {"decision": "skip", "data": "ordered by hand"}),
            ("confirms", "clarification", {"text": "with milk"}),
        ):
            question = kernel.get_pending_interrupt(pid)
            assert question.kind == kind
            await kernel.resolve_interrupt(question.id, answer)
        await settle()
        assert sorted(programs.performed) == ["model a person said with milk", "model ordered by hand"]
        for agent, pid, last, count, calls in (
            (programs.plain_agent, "thinks", ["think", "[think]"], 4, 2),
            (programs.tool_agent, "looks up", [["meaning of slow"], "[meaning of slow]"], 4, 2),
            (programs.tool_agent, "orders", [["ordered by hand"], "[ordered by hand]"], 4, 2),
            (programs.tool_agent, "knows", [["meaning of tea"], "[meaning of tea]"], 4, 2),
            (programs.tool_agent, "confirms", [["a person said with milk"], "[a person said with milk]"], 4, 2),
            (programs.lead, "lead", [["[help with it]"], "[[help with it]]"], 4, 2),
            (programs.remembering, "remembers", ["what is hot?", "[what is hot?]"], 6, 3),
            (programs.compacting, "compacts", ["and now", "[and now]"], 14, 12),
            (programs.plain_agent, "streams", ["stream", "[stream]"], 2, 1),
            (programs.guarded, "guarded", ["after the fall", "[after the fall]"], 4, 2),
        ):
            assert await talk(kernel, agent, pid) == (last, count, calls), pid
            assert await (await kernel.spawn(agent, pid=pid)).send("go on") == "[go on]"
        assert [item.text for item in kernel.memories.items("facts")] == ["tea is hot"]

    finish(kept, tmp_path, work)


@pytest.mark.parametrize("kept", stores("parallel"))
def test_parallel(kept, tmp_path):
    """Calls ahead of their turn: what was answered is not asked again, and the budget is charged once for each. Calls
    that were under way when the kernel was killed stay charged, so three calls do not pay for a fourth: one call is
    left, and the program is refused when it comes to the third."""

    async def work(kernel):
        await came_back(kernel)
        ended = await kernel.process("review").wait()
        assert isinstance(ended.error, BudgetExceeded)
        assert programs.performed == ["model one"]
        assert kernel.processes["review"].spent == kernel.process("review").budget.usage
        assert kernel.process("review").budget.used("llm_calls") == 3

    finish(kept, tmp_path, work)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_script_makes_stores_of_today(tmp_path):
    """`make` works with today's code: its child is killed, and what it leaves is finished like the kept store."""
    code = "import sys, pathlib; from tests.kept_stores.make import make; make('groups', pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "made")], cwd=HERE.parents[1], timeout=60, check=True)
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["groups.db"]
    test_groups(tmp_path / "made" / "groups.db", tmp_path)


@pytest.mark.parametrize("kept", stores("withdrawals"))
def test_withdrawals(kept, tmp_path):
    """What a sender gave up is not carried out; what waited behind it is."""

    async def work(kernel):
        await came_back(kernel)
        asked = await kernel.spawn(programs.plain_agent, pid="asked")
        other = await kernel.spawn(programs.plain_agent, pid="other")
        assert programs.performed == ["model kept"]
        assert await asked.send("again") == "[again]"
        assert await other.send("again") == "[again]"
        assert programs.performed == ["model kept", "model again", "model again"]
        assert [message.text for message in asked.messages] == ["kept", "[kept]", "again", "[again]"]
        assert kernel.process("few").grant.to_data() == {"allow": ["process.send:few"]}

    finish(kept, tmp_path, work)


@pytest.mark.parametrize("kept", stores("ended"))
def test_ended(kept, tmp_path, monkeypatch):
    """How processes ended whose states were put away: as they lie there, and once their segments are in lists."""
    monkeypatch.setattr(snapshots, "_SEGMENTS_A_LIST", 2)

    async def work(kernel):
        await came_back(kernel)
        assert len(kernel.processes) < 1_200
        assert "old-5" not in kernel.processes
        assert await result(kernel, "old-0") == await result(kernel, "old-590") == []
        for _ in range(300):
            await kernel.run(programs.collect, 0)
        await kernel._snapshots.write()
        assert max(segment.level for segment in kernel._snapshots.ended.segments.values()) > 0
        assert kernel._snapshots.ended.find("old-0") is not None
        assert len([pid for pid in load_all(kernel.journal.store).states if pid[0] != "~"]) == 1_901
        await kernel.send("left", "end")
        assert await result(kernel, "left") == "left"

    finish(kept, tmp_path, work)


# ---------------------------------------------------------------------- durable runs of Vega programs

# What each run prints in all of its lives, its exit code, and the calls of agents that are made in the last one.
VEGA_RUNS: dict[str, tuple[int, list[str], int]] = {
    "ahead": (0, ["begin", "one, hold two, review three", "four, five"], 3),
    "supervised": (
        0,
        [
            "ada: work of ada",
            "bob: work of bob",
            "ada again: work of ada",
            "bob: more of bob: hold",
            "ada: more of ada: go on",
        ],
        2,
    ),
    "stream": (0, ["whole at once", "drip ", "by ", "drip", "whole again"], 2),
    "timers": (0, ["waits", "ticked", "true Broken: as told", "read", "42", "nothing more"], 0),
    "tools": (0, ["result 8", "result slow tea", "result 8"], 2),
    "conversation": (0, ["first", "second", "hold third", "0.00017", "turn 4"], 2),
    "asks": (0, ["before", "result green", "after"], 1),
    "edited": (0, ["one", "hold on", "later two", "three"], 2),
    "fails": (1, ["it failed", "hold on"], 1),
}


def runs_of_vega() -> list[Any]:
    """One way of coming back for each version stays in `make test`, another one each."""
    ways = ("vega-replayed", "vega-saved", "vega-snapshots")
    kept = {"v0.1.0-vega-saved", "v0.1.0-fixed-names-vega-snapshots", "v0.1.0-store-ids-vega-replayed"}
    return [
        file if file.id in kept else pytest.param(*file.values, id=file.id, marks=pytest.mark.long)
        for file in files(*ways)
    ]


@pytest.mark.parametrize("kept", runs_of_vega())
def test_vega_runs(kept, tmp_path, monkeypatch):
    """`vega resume` brings every run to its end, with the whole output, and makes no call that was answered before.
    Commands refuse a store without signatures, so the user adopts it first."""
    path = tmp_path / "kept.db"
    shutil.copy(kept, path)
    is_sound(path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert lyra("store", "adopt", str(path), "--yes") == 0
    db = ("--db", str(path))
    commands = [["answer", "asks", "green", *db]]
    commands += [["resume", name, *db, "--trace"] for name in VEGA_RUNS]
    commands += [["runs", *db, "--json"]]
    answer, *resumed, runs = vega(commands, tmp_path)
    assert answer[0] == 0, answer
    ends = {}
    for name, (code, output, errors) in zip(VEGA_RUNS, resumed, strict=True):
        calls = sum(line.startswith('{"trace_id"') for line in errors.splitlines())
        ends[name] = (code, output.splitlines(), calls)
    assert ends == VEGA_RUNS
    assert "error[Broken]: at the end" in resumed[-1][2]
    states = {run["run"]: run["state"] for run in json.loads(runs[1])}
    assert states == {**dict.fromkeys(VEGA_RUNS, "finished"), "fails": "failed"}
    is_sound(path)


def vega(commands: list[list[str]], home: Path) -> list[tuple[int, str, str]]:
    """Each command's exit code, output and errors, at a time when every timer of the runs is due."""
    script = write_script(home / "script.toml", holds=False)
    env = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "LYRA_SIM_SCRIPT": str(script)}
    words = [sys.executable, str(COMMANDS), str(MADE_AT + 1000.0), json.dumps(commands)]
    done = subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, timeout=120, check=True)
    results: list[tuple[int, str, str]] = json.loads(done.stdout)
    return results
