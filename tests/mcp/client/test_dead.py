"""Servers at their worst: whatever one does, a call ends, a turn goes on, and the state says what happened."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from lyra.core.policies.policy import Backoff, Supervision
from lyra.core.tool import error_code, progress
from lyra.mcp.transports import AnswerTooLarge, check_values
from lyra.sandbox import Sandbox
from tests.mcp.support import run, tiny, using


def test_a_server_that_dies_fails_the_call_at_once_and_is_started_again(tmp_path):
    """The one who waits is told why; the next one finds it being started, and then started."""

    async def main():
        async with using(tiny(), folder=tmp_path) as use:
            began = time.monotonic()
            error = await use.error("mcp__tiny__crash")
            assert time.monotonic() - began < 5
            assert "it ended with 7: last words" in error.message
            assert error_code(error) == "io_error"
            error = await use.error("mcp__tiny__add", a=1, b=2)
            assert "being started again" in error.message
            await use.until(lambda: use.state("tiny").state == "connected")
            assert await use.call("mcp__tiny__add", a=1, b=2) == "3"
            assert use.state("tiny").restarts == 1

    run(main())


def test_calls_that_wait_beside_it_fail_too(tmp_path):
    """No call waits for an answer that cannot come."""

    async def main():
        async with using(tiny(), folder=tmp_path) as use:
            waiting = [asyncio.ensure_future(use.error("mcp__tiny__hang")) for _ in range(5)]
            await asyncio.sleep(0.1)
            await use.error("mcp__tiny__crash")
            errors = await asyncio.wait_for(asyncio.gather(*waiting), 5)
            assert all("it ended with 7" in error.message for error in errors)

    run(main())


def test_one_that_dies_too_often_is_given_up(tmp_path):
    """Three restarts within the window, then connection_error; it can still be started again."""

    async def main():
        few = Supervision(max_restarts=2, window_s=60, backoff=Backoff(initial_s=0.01, max_s=0.02))
        async with using(tiny(), folder=tmp_path, supervision=few) as use:
            for _ in range(3):
                await use.until(lambda: use.state("tiny").state == "connected")
                await use.error("mcp__tiny__crash")
            await use.until(lambda: use.state("tiny").state == "connection_error")
            failure = use.state("tiny").failure
            assert (failure.kind, failure.code, failure.recoverable) == ("crash", "7", True)
            assert use.state("tiny").restarts == 2
            assert "connection_error" in (await use.error("mcp__tiny__add", a=1, b=2)).message
            assert (await use.servers.reconnect("tiny")).state == "connected"
            assert await use.call("mcp__tiny__add", a=1, b=2) == "3"

    run(main())


def test_one_that_never_works_is_given_up_while_others_go_on(tmp_path):
    """Started together: the others have their tools."""

    async def main():
        async with using(tiny("good"), tiny("bad", "dies"), folder=tmp_path) as use:
            assert use.state("good").state == "connected"
            assert use.state("bad").failure.message.endswith("it never works")
            await use.until(lambda: use.state("bad").state == "connection_error")
            assert use.state("bad").failure.message.endswith("it never works")
            assert use.state("bad").restarts == 3
            assert await use.call("mcp__good__add", a=2, b=2) == "4"

    run(main())


def test_one_that_crashes_at_its_first_start_is_started_again(tmp_path):
    """A restart is a start."""

    async def main():
        once = tmp_path / "once"
        settings = tiny("tiny", f"once:{once}", writable=(str(tmp_path),))
        async with using(settings, folder=tmp_path) as use:
            await use.until(lambda: use.state("tiny").state == "connected")
            assert use.state("tiny").restarts == 1

    run(main())


def test_one_that_says_nothing_is_not_waited_for(tmp_path):
    """The start has its limit, and everything it started is dead afterwards."""

    async def main():
        began = time.monotonic()
        async with using(tiny("mute", "mute"), folder=tmp_path, start_s=0.5) as use:
            assert time.monotonic() - began < 10
            assert use.state("mute").state == "connection_error"
            assert use.state("mute").failure.kind == "timeout"

    run(main())


def test_one_that_starts_slowly_holds_up_only_itself(tmp_path):
    """All are started at once."""

    async def main():
        began = time.monotonic()
        async with using(*(tiny(f"s{number}", "slow:1") for number in range(3)), folder=tmp_path) as use:
            assert {state.state for state in use.servers.states()} == {"connected"}
            assert time.monotonic() - began < 2.9

    run(main())


def test_what_is_no_message_is_passed_over_for_a_while(tmp_path):
    """A few lines on stdout are forgiven; nothing else is not."""

    async def main():
        async with using(tiny("chatty", "chatty"), tiny("noise", "noise"), folder=tmp_path) as use:
            assert await use.call("mcp__chatty__add", a=1, b=1) == "2"
            assert use.state("noise").state == "connection_error"
            assert use.state("noise").failure.code == "garbage"

    run(main())


def test_a_call_that_takes_too_long_is_cancelled_at_the_server(tmp_path):
    """Its time is up here, and the server hears of it."""

    async def main():
        async with using(tiny(timeout_s=0.3), folder=tmp_path) as use:
            error = await use.error("mcp__tiny__hang")
            assert error.message == "MCP server tiny did not answer within 0.3 s"
            assert error_code(error) == "timeout"
            assert "notifications/cancelled" in await use.call("mcp__tiny__log")

    run(main())


def test_a_call_that_is_given_up_is_cancelled_at_the_server(tmp_path):
    """The same when the caller was cancelled."""

    async def main():
        async with using(tiny(), folder=tmp_path) as use:
            waiting = asyncio.ensure_future(use.call("mcp__tiny__hang"))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert "notifications/cancelled" in await use.call("mcp__tiny__log")

    run(main())


def test_more_than_anybody_reads_is_cut(tmp_path):
    """A long text is cut; a message beyond all bounds ends the connection, and memory is not filled with it."""

    async def main():
        async with using(tiny(), folder=tmp_path) as use:
            came = await use.call("mcp__tiny__huge", chars=3_000_000)
            assert len(came) < 101_000
            assert "2900000 characters left out" in came
            assert "more than 32 MiB" in (await use.error("mcp__tiny__oversized")).message
            await use.until(lambda: use.state("tiny").state == "connected")

    run(main())


def test_a_result_of_very_many_parts_holds_up_no_other_call(tmp_path):
    """It is cut before anything is made of them: the loop stands still for moments, not for many seconds."""

    async def main():
        async with using(tiny(), folder=tmp_path) as use:
            lags = [0.0]  # of the loop's own thread, so that other work of the machine does not count

            async def watch():
                while True:
                    began = time.thread_time()
                    await asyncio.sleep(0.01)
                    lags.append(time.thread_time() - began)

            watching = asyncio.create_task(watch())
            came = await use.call("mcp__tiny__wide", parts=20_000)
            assert came.endswith("y\n… 19000 parts left out")
            error = await use.error("mcp__tiny__wide", parts=600_000)
            assert "it sent an answer of more than" in error.message
            watching.cancel()
            assert max(lags) < 1
            assert use.state("tiny").state == "connected"

    run(main())


def test_an_answer_that_cannot_be_read_fails_its_call(tmp_path):
    """At once, not when its time is up."""

    async def main():
        async with using(tiny("tiny", "half"), folder=tmp_path) as use:
            error = await asyncio.wait_for(use.error("mcp__tiny__add", a=0, b=0), 5)
            assert "its answer cannot be read" in error.message
            assert await use.call("mcp__tiny__add", a=1, b=2) == "3"

    run(main())


def test_what_counts_as_a_value():
    """Commas within a text are text, whatever is quoted in it."""
    many = 200_000
    run(check_values(json.dumps({"text": "a,[{" * many}).encode()))
    run(check_values(json.dumps({"text": '\\",[\\\\' * many}).encode()))
    for value in ([1] * many, [""] * many, ['"', "\\"] * many):
        with pytest.raises(AnswerTooLarge, match="more than 100000 values"):
            run(check_values(json.dumps({"values": value}).encode()))


def test_a_pattern_of_the_servers_own_is_not_tried(tmp_path):
    """A result that its schema would take for ever to check comes at once."""

    async def main():
        async with using(tiny(), folder=tmp_path) as use:
            assert await asyncio.wait_for(use.call("mcp__tiny__slow_pattern"), 5) == "fine"

    run(main())


def test_tools_that_cannot_be_read(tmp_path):
    """What cannot be used is left out; a listing that is no listing is a schema_error."""

    async def main():
        async with using(tiny("some", "odd"), tiny("none", "unreadable"), folder=tmp_path) as use:
            assert use.state("some").state == "connected"
            skipped = ("add: there is another of this name", "large: its schema has more than 256 KiB")
            assert use.state("some").skipped == skipped
            assert "A second one" not in use.tools["mcp__some__add"].description
            assert use.state("none").state == "schema_error"
            assert "mcp__some__large" not in use.tools

    run(main())


def test_a_command_that_is_not_there(tmp_path):
    """Says so, and what would help."""

    async def main():
        async with using(tiny(command="no-such-program"), folder=tmp_path) as use:
            failure = use.state("tiny").failure
            assert (failure.kind, failure.recoverable) == ("exec", False)
            assert "there is no program no-such-program: install it" in failure.message
            assert use.state("tiny").restarts == 0

    run(main())


def test_without_a_sandbox_nothing_is_started(tmp_path):
    """There is no switch that would run it outside."""
    mark = tmp_path / "started"

    async def main():
        settings = tiny("tiny", f"once:{mark}", writable=(str(tmp_path),))
        async with using(settings, folder=tmp_path, sandbox=Sandbox(tiers=())) as use:
            assert use.state("tiny").state == "connection_error"
            assert use.state("tiny").failure.kind == "sandbox"

    run(main())
    assert not mark.exists()


def test_progress_without_end_is_not_all_told(tmp_path):
    """A server cannot fill anybody's memory with how far it is."""

    async def main():
        async with using(tiny(), folder=tmp_path) as use:
            told = []
            progress.set(lambda text, fraction: told.append(text))
            assert await use.call("mcp__tiny__flood") == "done"
            assert 0 < len(told) <= 1_000

    run(main())


def test_closing_ends_everything_that_was_started(tmp_path):
    """Also what does not want to end."""

    async def main():
        async with using(tiny("a"), tiny("b"), folder=tmp_path) as use:
            waiting = asyncio.ensure_future(use.error("mcp__a__hang"))
            await asyncio.sleep(0.05)
            await use.servers.close()
            assert {state.state for state in use.servers.states()} == {"disconnected"}
            await asyncio.wait_for(waiting, 5)
            assert "disconnected" in (await use.error("mcp__a__add", a=1, b=1)).message

    run(main())


def test_one_that_asks_without_end_is_given_up(tmp_path):
    """It does not read the answers either: a bounded number of tasks waits for that, and closing takes no time."""

    async def main():
        async with using(tiny("asks", "asks"), folder=tmp_path) as use:
            # Its pipe takes more than a thousand answers before it is full, and each is work.
            await use.until(lambda: use.state("asks").state == "connection_error", timeout_s=120)
            assert use.state("asks").failure.code == "too_many_requests"
            assert len(asyncio.all_tasks()) < 150
            began = time.monotonic()
            await use.servers.close()
            assert time.monotonic() - began < 15

    run(main(), timeout_s=180)


@pytest.mark.parametrize(("how", "message"), [("deaf", "does not read"), ("closes", "does not read")])
def test_one_that_does_not_read_is_killed(tmp_path, how, message):
    """What is sent fills its pipe: the call ends, and the state does not say that all is well."""

    async def main():
        seldom = Supervision(max_restarts=0, window_s=60)
        async with using(tiny("t", how, timeout_s=20), folder=tmp_path, supervision=seldom) as use:
            began = time.monotonic()
            error = await use.error("mcp__t__read", path="x" * 1_000_000)
            assert time.monotonic() - began < 10
            assert message in error.message
            await use.until(lambda: use.state("t").state == "connection_error")
            assert message in use.state("t").failure.message

    run(main())


def test_one_that_dies_at_start_is_told_at_once(tmp_path):
    """Not after its restarts and their pauses; those go on."""

    async def main():
        slow = Supervision(max_restarts=3, window_s=600, backoff=Backoff(initial_s=60, max_s=60))
        async with using(tiny("bad", "dies"), folder=tmp_path, supervision=slow) as use:
            assert use.state("bad").state == "connecting"
            assert use.state("bad").failure.message.endswith("it never works")
            assert use.servers.problems

    began = time.monotonic()
    run(main())
    assert time.monotonic() - began < 50


@pytest.mark.parametrize(("start_s", "state"), [(0.05, "timeout"), (20.0, "connected")])
def test_a_slow_server_is_waited_for_as_its_settings_say(tmp_path, start_s, state):
    """`start_s` bounds the wait for its start, whatever the default is."""

    async def main():
        async with using(tiny("slow", "slow:1", start_s=start_s), folder=tmp_path, start_s=0.1 + 20.0 / start_s) as use:
            failure = use.state("slow").failure
            assert (use.state("slow").state if failure is None else failure.kind) == state

    run(main())
