"""Texts of moments: one strict grammar on every evaluator, for inputs, elements, `timestamp(…)` and files."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lyra import vesper
from lyra.errors import LyraError
from lyra.vesper.check.judge import program_of
from lyra.vesper.values.outcome import Execution
from tests.vesper.paths import PATHS

NODE = """\
node_id: moments_v1
type: function
intent: read moments
inputs: {moment: timestamp, moments: array<timestamp>, text: string}
outputs: {moment: timestamp, count: integer, read: any}
flow:
  - {step: read, operation: arithmetic, expression: timestamp(text)}
  - {step: count, operation: arithmetic, expression: len(moments)}
  - {operation: return, return_success: {moment: "{moment}", count: "{count}", read: "{read}"}}
"""
TAKEN = {
    "2026-03-04": "2026-03-04T00:00:00Z",
    "2026-03-04T05:06": "2026-03-04T05:06:00Z",
    "2026-03-04 05:06:07": "2026-03-04T05:06:07Z",
    "2026-03-04T05:06:07.5Z": "2026-03-04T05:06:07.500000Z",
    "2026-03-04T05:06:07.123456000Z": "2026-03-04T05:06:07.123456Z",
    "2026-03-04T05:06:07+01:30": "2026-03-04T03:36:07Z",
    "2026-03-04T05:06:07-0130": "2026-03-04T06:36:07Z",
    "2026-03-04T05:06:07+01": "2026-03-04T04:06:07Z",
}
REFUSED = (
    "0004-05-30000",  # `fromisoformat` takes the fifth digit for a separator
    "2026-03-04x05:06:07",
    "2026-03-04\n05:06:07",
    "2026-03-04T",
    "2026-03-04T05",
    "2026-03-04T0506",
    "2026-03-04T05:06:07.",
    "2026-03-04T05:06:07,5",
    "2026-03-04T05:06:07.1234567",  # finer than a microsecond
    "2026-03-04T05:06:7",
    "2026-03-04T24:00:00",
    "2026-03-04T23:60:00",
    "2026-03-04T23:59:60",
    "2026-03-04T05:06:07z",
    "2026-03-04T05:06:07 +01:00",
    "2026-03-04T05:06:07+1:00",
    "2026-03-04T05:06:07+01:00:30",
    "2026-03-04T05:06:07+24:00",
    "2026-03-04T05:06:07ZZ",
    "2026-03-04Z",
    "20260304",
    "20260304T050607Z",
    "2026-W10-3",
    "2026W103",
    "2026-063",
    "2026-3-4",
    "26-03-04",
    "+2026-03-04",
    "2026-02-29",
    "2026-13-01",
    "0000-01-01",
    " 2026-03-04",
    "2026-03-04 ",
    "2026-03-04\n",
    "２０２６-03-04",
    "2026-03-04T٠5:06:07",
    "",
)
EXECUTION = Execution(now=datetime(2026, 1, 1, tzinfo=UTC))
PROGRAM = program_of(vesper.load(NODE))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("text", TAKEN)
def test_a_moment_is_read(path, text):
    outcome = path(PROGRAM, {"moment": text, "moments": [text], "text": text}, EXECUTION)
    moment = datetime.fromisoformat(TAKEN[text])
    assert outcome.outputs == {"moment": moment, "count": 1, "read": moment}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("text", REFUSED)
def test_any_other_text_is_no_moment(path, text):
    """An input and an element are `invalid_input`; the function gives null."""
    right = {"moment": "2026-03-04", "moments": [], "text": text}
    assert path(PROGRAM, right, EXECUTION).outputs["read"] is None
    for wrong in ({"moment": text}, {"moments": [text]}):
        outcome = path(PROGRAM, {**right, **wrong}, EXECUTION)
        assert outcome.error is not None
        assert (outcome.error.code, outcome.error.phase) == ("invalid_input", "input")


def test_a_file_has_no_other_moments_either():
    node = NODE.replace("moment: timestamp,", 'moment: {type: timestamp, default: "0004-05-30000"},')
    with pytest.raises(LyraError):
        vesper.load(node)
        program_of(vesper.load(node))
