"""The debugger as a path: its time, and what it costs where it is not used."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lyra import vesper
from lyra.vesper.check.judge import program_of
from lyra.vesper.direct.run import DirectProgram
from lyra.vesper.effects.compiled_path import drive
from lyra.vesper.python.generate import source
from lyra.vesper.runtime.debugger import Debugger, breakpoint_of
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


class Answers:
    async def perform(self, request):
        return None


@pytest.mark.parametrize("path", ["python", "direct"])
def test_time_at_the_prompt_does_not_count(path):
    """A node with a limit of a second goes on after a stop of an hour."""
    node = vesper.load(TEXT)
    program = program_of(node)
    clock = [0.0]

    def prompt(stop):
        assert stop.location == "act"
        clock[0] += 3600
        return "continue"

    debugger = Debugger(path, [breakpoint_of("step:act", node, program)], prompt)
    execution = Execution(now=datetime(2026, 1, 1, tzinfo=UTC), trace_id="t", monotonic=lambda: clock[0])
    outcome = drive(debugger.start(program, {"a": 1}, execution, Answers()))
    assert (outcome.status, debugger.stops) == ("success", 1)


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
