"""The debugger as a path: its time, and what it costs where it is not used."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lyra import vesper
from lyra.core.clock import SystemClock
from lyra.vesper.check.judge import program_of
from lyra.vesper.direct.run import DirectProgram
from lyra.vesper.python.generate import source
from lyra.vesper.runtime.debugger import NodeDebug
from lyra.vesper.values.outcome import Execution

TEXT = """\
node_id: limited_v1
type: function
intent: act within a second
inputs: {a: integer}
outputs:
  success: {total: integer}
security:
  capabilities_required: [custom.test.act]
performance: {timeout_seconds: 1}
flow:
  - {step: act, operation: custom.test.act, parameters: {a: "{a}"}}
  - {step: add, operation: arithmetic, expression: "a + 1", output: total}
"""


@pytest.mark.parametrize("path", ["python", "direct"])
def test_time_at_a_halt_does_not_count(path, monkeypatch):
    """A node with a limit of a second goes on after an hour, in its steps and in its acts."""
    node = vesper.load(TEXT)
    late_s = [0.0]
    read = SystemClock.monotonic
    monkeypatch.setattr(SystemClock, "monotonic", staticmethod(lambda: read() + late_s[0]))
    with (
        vesper.Runtime(custom={"test.act": lambda *, a: a}, grant=["custom.test.act"]) as runtime,
        session_of(node, runtime, path) as session,
    ):
        while session.run_on():
            late_s[0] += 3600
    assert session.result().outputs == {"total": 2}
    assert [step.what for step in session.steps] == ["act", "add", "add"]


def session_of(node, runtime, path, **more):
    mode = {"python": "python_only", "direct": "direct_only"}[path]

    def execute(watched):
        return runtime.execute(node, {"a": 1}, mode, watched=watched)

    return NodeDebug(node, runtime.program(node), execute, live=path, **more)


@pytest.mark.parametrize("live", ["python", "direct"])
def test_acts_of_both_paths_are_performed_once(live):
    """The other path is answered what the live one was; leaving performs nothing more."""
    node, acts = vesper.load(TEXT), []
    with vesper.Runtime(custom={"test.act": lambda *, a: acts.append(a)}, grant=["custom.test.act"]) as runtime:
        with session_of(node, runtime, live, compares=True) as session:
            session.run_on()
        assert (session.result().error.code, acts) == ("cancelled", [])
        with session_of(node, runtime, live, compares=True) as session:
            while session.run_on():
                assert not session.steps[-1].differences
        assert acts == [1]
        assert {path.ended.outputs["total"] for path in session.paths.values()} == {2}
        assert runtime.evidence(node).compared == 0


def test_a_debugged_execution_is_not_answered_from_kept_results():
    act = next(line for line in TEXT.splitlines(keepends=True) if "step: act" in line)
    node = vesper.load(TEXT.replace(act, "").replace("flow:", "idempotent: true\nflow:"))
    with vesper.Runtime() as runtime:
        runtime.execute(node, {"a": 1})
        with session_of(node, runtime, "direct") as session:
            assert session.run_on()
    assert [step.what for step in session.steps] == ["add"]


def test_programs_that_are_not_watched_have_no_hook():
    """Generated code and closures are the same as without a debugger."""
    assert "_watch" not in source(program_of(vesper.load(TEXT)))
    act = next(line for line in TEXT.splitlines(keepends=True) if "step: act" in line)
    pure = program_of(vesper.load(TEXT.replace(act, "")))
    seen = []

    def watch(step, values):
        seen.append(step.name)
        return {}

    execution = Execution(now=datetime(2026, 1, 1, tzinfo=UTC))
    assert DirectProgram(pure).execute({"a": 1}, execution) == DirectProgram(pure, watch).execute({"a": 1}, execution)
    assert seen == ["add"]
