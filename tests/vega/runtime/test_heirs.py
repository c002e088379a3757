"""Handles on the children of a `supervisor`: they go on working after a restart, and an end for good is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra.models.script import Reply
from tests.vega.recorded import Recorded
from tests.vega.support import Seen, play

WORKER = """
fn worker(main) { while true { receive { "die" => { throw "dead"; }, m => { main <- m + "!"; } } } }
supervisor Team { SETTINGS child w = fn worker(process::self()) }
spawn Team;
let w = process::whereis("w");
fn told() { return receive { m => m, after 2s => "nothing" }; }
w <- "one"; print(told());
"""
AGAIN = 'w <- "die"; process::sleep(100ms); w <- "two"; print(told()); print(process::alive(w));'


def team(rest: str, settings: str = "") -> str:
    return WORKER.replace("SETTINGS", settings) + rest


def test_a_handle_goes_on_working_after_a_restart():
    assert play(team(AGAIN)) == ["one!", "two!", "true"]


def test_a_handle_goes_on_working_after_many_restarts():
    assert play(team(AGAIN + AGAIN, "max_restarts 5")) == ["one!", "two!", "true", "two!", "true"]


def test_a_program_waits_while_the_supervisor_does():
    """The next process is started after a back-off, and gets what is sent meanwhile."""
    assert play(team(AGAIN, "backoff constant(1s)")) == ["one!", "two!", "true"]


def test_a_monitor_of_the_handle_hears_of_the_next_end():
    rest = 'w <- "die"; process::sleep(100ms); process::monitor(w); w <- "die"; print(told()[2]);'
    assert play(team(rest)) == ["one!", "Error: dead"]


def test_a_child_that_a_sibling_takes_along_is_reached_too():
    rest = 'process::whereis("other") <- "die"; process::sleep(100ms); w <- "two"; print(told());'
    source = team(rest, "strategy restart_all child other = fn worker(process::self())")
    assert play(source) == ["one!", "two!"]


def test_a_handle_is_dead_when_its_supervisor_has_given_up():
    rest = 'w <- "die"; process::sleep(100ms); w <- "two"; print(told()); print(process::alive(w));'
    lines = play(team(rest, "max_restarts 0"))
    assert lines[1].startswith("[DOWN, ")
    assert "gave up after 0 restarts in 60 s" in lines[1]
    assert (lines[0], lines[2]) == ("one!", "false")


def test_a_handle_is_dead_when_its_child_has_ended_in_order():
    source = """
        fn once(main) { receive { m => { main <- m; } } }
        supervisor Team { child w = fn once(process::self()) }
        spawn Team;
        let w = process::whereis("w");
        w <- "one"; print(receive { m => m });
        process::sleep(50ms); w <- "two"; print(receive { m => m, after 1s => "nothing" });
    """
    assert play(source) == ["one", "nothing"]


def test_a_resumed_run_reaches_the_same_process(tmp_path: Path):
    """The journal has which process a handle meant."""
    recorded = Recorded(tmp_path)
    source = team(AGAIN + 'process::sleep(1s); w <- "three"; print(told());')
    recorded.run(source, stop_after_s=0.7)
    recorded.resume()
    assert recorded.output() == ["one!", "two!", "true", "three!"]


# ---------------------------------------------------------------- agents

BUSY = Reply.from_data({"error": {"kind": "overloaded", "message": "busy"}})
BOT = 'agent Bot { model "sim/script" MEMORY retry { max_attempts 1 } }\n'
ASKED = 'try { print(b <- "x"); } catch AgentFailed(reason) { print(reason); }\n'
GONE = (
    "agent Bot is gone: busy (not restarted after {} restarts in {} s: "
    "the settings `max_restarts` and `window` of its supervision)"
)


def fails(times: int) -> Seen:
    """A model that is busy so many times, and answers then."""
    seen = Seen(lambda request: BUSY if len(seen.requests) <= times else request.messages[-1].text)
    return seen


@pytest.mark.parametrize("memory", ["", "memory conversation"])
def test_an_agent_that_is_a_child_is_reached_after_a_crash(memory):
    source = (
        BOT.replace("MEMORY", memory) + 'supervisor S { child bot = Bot } spawn S; let b = process::whereis("bot");\n'
    )
    assert play(source + ASKED * 3, fails(2)) == ["busy", "busy", "x"]


@pytest.mark.parametrize(
    ("start", "restarts", "window_s"),
    [
        ("let b = spawn Bot;", 3, 60),
        ("let b = spawn Bot supervised by { max_restarts 1 window 5s };", 1, 5),
        ('supervisor S { max_restarts 1 child bot = Bot } spawn S; let b = process::whereis("bot");', 1, 60),
    ],
)
def test_the_next_caller_is_told_why_an_agent_ended_for_good(start, restarts, window_s):
    """Transient failures have used up its restarts: the reason, and the settings that say so."""
    source = BOT.replace("MEMORY", "") + start + "\n" + ASKED * (restarts + 3)
    gone = GONE.format(restarts, window_s)
    assert play(source, fails(99)) == ["busy"] * (restarts + 1) + [gone] * 2
