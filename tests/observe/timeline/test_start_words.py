"""What a process was started with, in words: a supervisor of whom, and the processes of Vega runs by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lyra.core.naming import SUPERVISE, VEGA_AGENT, VEGA_PROCESS
from lyra.observe.timeline.step import ending_text, start_words, vega_name
from lyra.observe.timeline.travel import compare_runs
from lyra.vega.durable.runs import Runs
from lyra.vega.replay.timeline import timeline_of_run
from tests.vega.recorded import Recorded

SOURCE = """\
agent Bot { model "sim/script" }
fn worker(main, factor) { receive { n => { main <- [n * factor, "x"]; } } }
let bot = spawn Bot;
let p = spawn fn worker(process::self(), 3);
p <- 14;
receive { r => { print(r); } }
"""


def test_lyras_own_programs_are_told_in_words_and_others_as_they_are() -> None:
    plan = {"children": [{"id": name, "program": "m:f", "args": []} for name in ("a", "b")]}
    assert start_words(SUPERVISE, [plan], "[…]") == "of a, b"
    assert start_words(SUPERVISE, [{"children": [plan["children"][0]] * 20}], "[…]").endswith("a, 12 more")
    guard = {"children": [{"id": "process", "program": VEGA_AGENT, "args": ["main", "Poet", {}]}]}
    assert start_words(SUPERVISE, [guard], "[…]") == "of agent Poet"
    assert start_words(VEGA_PROCESS, ["main", None], '["main",null]') == ""
    assert vega_name("p5", VEGA_PROCESS, []) == "process p5"
    assert start_words("m:f", [], "[]") == ""
    for odd in (None, "text", [{"children": "x"}], [{"children": [1]}], [1]):
        assert start_words(SUPERVISE, odd, "as it is") == "as it is"
        assert start_words("m:f", odd, "as it is") == "as it is"
        assert vega_name("p", VEGA_AGENT, odd) == ""


def test_the_values_of_a_vega_program_are_told_as_it_writes_them(tmp_path: Path) -> None:
    """Messages between its processes, arguments and results; not in the form in which they are saved."""
    recorded = Recorded(tmp_path)
    recorded.run(SOURCE)
    with Runs(recorded.path) as runs:
        timeline = timeline_of_run(runs["run"])
        steps: dict[str, Any] = {f"{step.kind} {step.pid}": step.request for step in timeline.steps}
        tree = timeline.moment(len(timeline.steps))["tree"]
    assert steps["sent main"] == "14"
    worker = next(row["pid"] for row in tree if row["name"].startswith("process p"))
    assert steps[f"sent {worker}"] == '[42, "x"]'
    assert tree[0]["name"] == "process main"
    assert not any('"heap"' in text for text in steps.values())


def test_runs_whose_processes_were_started_with_other_values_differ(tmp_path: Path) -> None:
    """Also where the words are the same."""
    recorded = Recorded(tmp_path)
    recorded.run(SOURCE)
    recorded.run(SOURCE.replace('"sim/script"', '"sim/script" max_tokens 9'), "other")
    with Runs(recorded.path) as runs:
        left, right = timeline_of_run(runs["run"]), timeline_of_run(runs["other"])
        assert left.steps[1].request == right.steps[1].request == "of agent Bot"
        assert compare_runs(left, right).first == 2
        assert compare_runs(left, left).first is None


def test_the_end_of_a_child_is_its_result_or_why_it_has_none() -> None:
    assert ending_text({"reason": "normal", "result": {"n": 1}, "error": None}) == {"n": 1}
    assert ending_text({"reason": "killed", "result": None, "error": None}) == "ended killed"
    failed = {"reason": "error", "result": None, "error": {"type": "ValueError", "message": "odd"}}
    assert ending_text(failed) == "ended error: ValueError: odd"
