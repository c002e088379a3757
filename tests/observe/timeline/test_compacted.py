"""A run whose first rows were dropped: what was kept of it is told once, and nothing is counted twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import Kernel
from lyra.agents.forks.change import StepChange
from lyra.agents.forks.fork import fork_run
from lyra.cli.main import main as lyra
from lyra.errors import ConfigError, NoSuchProcess
from lyra.kernel.journal import snapshots
from lyra.observe.timeline.state import StoredRows
from lyra.observe.timeline.timeline import RunTimeline
from lyra.store.space import open_to_read
from lyra.testing.clock import SimClock
from tests.agents.forks.programs import PROGRAMS, guide
from tests.server.dashboard.support import logged_in, serving
from tests.server.http.support import in_loop


async def waits(ctx: Any) -> Any:
    """A program with one message that it has not taken."""
    await ctx.sleep(1e9)
    return await ctx.receive()


async def compacted(store: str, *, turn_after: bool) -> None:
    """A conversation of two turns, whose snapshot covers both while the rows of the second are still there."""
    clock = SimClock(1_000.0)
    async with Kernel(store, clock, programs=[*PROGRAMS, waits], retention_s=10) as kernel:
        agent = await kernel.spawn(guide, pid="talk", name="host")
        await kernel.spawn(waits, pid="late")
        await kernel.send("late", "a letter")
        await agent.send("weather in Oslo?")
        clock.advance(60)
        await agent.send("thanks")
        await kernel.durable()
        assert kernel._snapshots is not None
        await kernel._snapshots.write()
        if turn_after:
            await agent.send("bye")
            await kernel.durable()


@pytest.mark.parametrize("turn_after", [False, True], ids=["at the snapshot", "and a turn after it"])
def test_what_a_snapshot_covers_is_not_counted_again(store: str, *, turn_after: bool) -> None:
    """Messages, money and tokens are those of the conversation, whichever rows are left."""
    asyncio.run(compacted(store, turn_after=turn_after))
    rows = open_to_read(store)
    assert rows.first_seq() > 1
    run = RunTimeline.from_name(StoredRows(rows), "host")
    assert (run.pid, run.is_compacted) == ("talk", True)
    moment = run.moment(len(run.steps))
    assert moment["conversation"]["count"] == (8 if turn_after else 6)
    calls = 4 if turn_after else 3
    assert run.totals()["usage"]["llm_calls"] == moment["budget"][0]["used"]["llm_calls"] == calls
    assert [step.kind for step in run.steps] == (["message", "model", "turn"] if turn_after else [])
    assert run.moment(0)["conversation"]["count"] == 6
    with pytest.raises(ConfigError) as caught:
        run.step(99)
    assert ("compaction" in str(caught.value.hint)) is not turn_after
    rows.close()


def test_a_run_without_its_beginning_is_not_forked(store: str) -> None:
    """It says why, and nothing is written."""
    asyncio.run(compacted(store, turn_after=True))

    async def main() -> None:
        rows = open_to_read(store)
        async with Kernel(store, SimClock(2_000.0), programs=PROGRAMS) as kernel:
            with pytest.raises(NoSuchProcess, match="does not have the beginning") as caught:
                await fork_run(kernel, rows, "talk", 2, StepChange(reply="x"))
            assert "compaction" in str(caught.value.hint)
            assert "talk-fork-1" not in kernel.processes
        rows.close()

    asyncio.run(main())


def test_messages_that_wait_are_kept(store: str) -> None:
    asyncio.run(compacted(store, turn_after=False))
    rows = open_to_read(store)
    assert RunTimeline(StoredRows(rows), "late").moment(0)["mailbox"] == {"messages": ["a letter"], "count": 1}
    rows.close()


def test_the_command_and_the_page_say_that_rows_were_dropped(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(compacted(store, turn_after=True))
    assert lyra(["replay", store, "talk", "--steps"]) == 0
    printed = capsys.readouterr()
    assert "dropped by a compaction" in printed.err
    assert len(printed.out.splitlines()) == 3

    async def main() -> None:
        async with serving(guide, store=store) as parts, logged_in(parts) as browser:
            assert "dropped by a compaction" in await browser.page("/runs/talk")

    in_loop(main())


async def act() -> int:
    return 1


async def pays_late(ctx: Any) -> None:
    await ctx.sleep(60)
    await ctx.do(act, cost="$0.01")


async def starts_one(ctx: Any) -> None:
    await ctx.spawn(pays_late, pid="below")
    await ctx.sleep(61)


def test_what_a_process_spent_is_its_own_after_it_was_put_away(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes ended and were put away, one below the other: each is told with what it spent itself."""
    monkeypatch.setattr(snapshots, "_ENDED_KEPT", 0)

    async def main() -> None:
        clock = SimClock(1_000.0)
        async with Kernel(store, clock, programs=[pays_late, starts_one], retention_s=10) as kernel:
            top = await kernel.spawn(starts_one, pid="above")
            assert kernel.journal is not None
            while len(list(kernel.journal.store.read(kind="timer.set"))) < 2:  # both sleep
                await asyncio.sleep(0.001)
            clock.advance(62)
            await kernel.process("below").wait()
            await top.wait()
            await kernel.durable()
            assert kernel._snapshots is not None
            await kernel._snapshots.write()

    asyncio.run(main())
    rows = open_to_read(store)
    assert not {"above", "below"} & rows.load_snapshots().states.keys()
    _, states = StoredRows(rows).read_kept_states()
    assert {pid: state["spent"] for pid, state in states.items()} == {"above": {}, "below": {"usd": 10_000}}
    rows.close()
