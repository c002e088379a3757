"""What the program of a run tells about the steps of its journal: variables, output, and what a fork changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.errors import ConfigError
from lyra.observe.timeline.step import RunStep
from lyra.vega.durable.runs import Runs
from lyra.vega.replay.fork import RunFork
from lyra.vega.replay.replayed_run import ReplayedRun
from lyra.vega.replay.timeline import timeline_of_run
from tests.vega.recorded import Recorded

TOOLS = """\
tool lookup(word: str) -> str { return "meaning of " + word; }
agent Finder { model "sim/script" tools [lookup] }
let finder = spawn Finder;
let factor = 2;
fn down(n) { if n == 0 { return finder <- "find love"; } let kept = n * factor; return down(n - 1); }
print(down(2));
"""
REPLIES = [
    {"tool": "lookup", "text": "It says {result}."},
    {"user": "find (.*)", "tool_calls": [{"name": "lookup", "arguments": {"word": "{1}"}}]},
]


MODEL = {"replies": REPLIES}


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    recorded = Recorded(tmp_path)
    assert recorded.run(TOOLS, model=MODEL) == ["It says meaning of love."]
    return recorded


def steps_of(recorded: Recorded, kind: str) -> list[RunStep]:
    with Runs(recorded.path) as runs:
        return [step for step in timeline_of_run(runs["run"]).steps if step.kind == kind]


def forked(recorded: Recorded, step: RunStep, text: str, *, model: Any = MODEL) -> list[str]:
    """What a fork printed that has another answer at a step."""
    with Runs(recorded.path) as runs:
        number, change = ReplayedRun(runs["run"]).change(step, text)
    with RunFork(str(recorded.path), "run", change, number) as fork:
        book, name = fork.book, fork.run_id
    assert recorded.go_on(name, book, is_live=True, model=model) == ""
    return recorded.output(name)


def test_the_calls_of_a_process_are_told_with_their_variables(recorded: Recorded) -> None:
    """The innermost last, each with the line that it stands at; of an agent those of the process that waits for it."""
    asked = steps_of(recorded, "model")[0]
    with Runs(recorded.path) as runs:
        replayed = ReplayedRun(runs["run"])
        for pid in ("main", asked.pid):
            shared, *frames = replayed.frames(asked.seq, pid)
            assert (shared.function, shared.variables["factor"]) == ("globals", "2")
            assert [frame.function for frame in frames] == ["main", "down", "down", "down"]
            assert [frame.variables.get("n") for frame in frames] == [None, "2", "1", "0"]
            assert [frame.variables.get("kept") for frame in frames] == [None, "4", "2", None]
            assert [frame.line for frame in frames] == [6, 5, 5, 5]
        assert replayed.output(asked.seq, 10) == []
        assert replayed.output(replayed.last_seq, 10) == ["It says meaning of love."]
        assert replayed.frames(replayed.last_seq, "main") == []


def test_a_fork_changes_what_a_model_said_in_the_middle_of_its_turn(recorded: Recorded) -> None:
    """Then the tool is not called; with the last reply changed it was."""
    first, last = steps_of(recorded, "model")
    assert forked(recorded, first, "No.") == ["No."]
    assert forked(recorded, last, "Yes.") == ["Yes."]


def test_a_fork_changes_what_a_tool_of_an_agent_gave(recorded: Recorded) -> None:
    """The model is asked anew, with that result."""
    (tool,) = steps_of(recorded, "tool")
    assert forked(recorded, tool, "nothing") == ["It says nothing."]


def test_a_step_without_a_reply_cannot_be_changed(recorded: Recorded) -> None:
    with Runs(recorded.path) as runs:
        replayed = ReplayedRun(runs["run"])
        for step in steps_of(recorded, "spawn"):
            with pytest.raises(ConfigError, match="has no reply"):
                replayed.change(step, "x")


def test_a_name_that_is_taken_is_refused(recorded: Recorded) -> None:
    with Runs(recorded.path) as runs:
        number, change = ReplayedRun(runs["run"]).change(steps_of(recorded, "model")[0], "x")
    with pytest.raises(ConfigError, match="already"):
        RunFork(str(recorded.path), "run", change, number, name="run")
