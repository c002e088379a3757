"""Regular expressions of nodes: one engine for all evaluators, and a strict end."""

from __future__ import annotations

import pytest

from lyra import vesper
from lyra.vesper.check.judge import check_text

NODE = """\
node_id: pattern_v1
type: function
intent: match a text
inputs:
  text: {type: string, constraints: [{pattern: '^[A-Z][0-9]+$'}]}
  other: string
outputs:
  success: {is_code: boolean}
flow:
  - {step: judge, operation: arithmetic, expression: "matches(other, '^[0-9]+$')", output: is_code}
"""


@pytest.mark.parametrize("path", ["python", "direct", "reference"])
def test_a_line_feed_after_the_end_is_refused(path):
    """By the constraint of an input and by `matches`; `$` is the end of the text on every evaluator."""
    node = vesper.load(NODE)
    for text, status in (("A1", "success"), ("A1\n", "error"), ("A1\nB2", "error")):
        assert vesper.execute(node, {"text": text, "other": ""}, path=path).status == status
    for other, is_code in (("12", True), ("12\n", False)):
        assert vesper.execute(node, {"text": "A1", "other": other}, path=path).outputs == {"is_code": is_code}


@pytest.mark.parametrize("pattern", [r"(a)\\1", "(?=a)", "a*+", r"(?a:\\w)"])
def test_what_cannot_agree_with_python_is_a_mistake_of_the_node(pattern):
    text = NODE.replace("^[0-9]+$", pattern)
    assert "bad_pattern" in [issue.code for issue in check_text(text, "pattern.vsp")]
