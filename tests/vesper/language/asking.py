"""Values of expressions, as a node's file has them, on each evaluator."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from lyra import vesper
from lyra.vesper.check.judge import check_text

PATH_NAMES = ["python", "direct", "reference"]
NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)


def node_text(expression: str, inputs: str = "{}", output: str = "any") -> str:
    """A node whose answer is the expression; inputs are written as in a file."""
    return f"""\
node_id: asked_v1
type: function
intent: give the value of an expression
inputs: {inputs}
outputs: {{y: {json.dumps(output)}}}
flow:
  - step: compute
    operation: arithmetic
    expression: {json.dumps(expression, ensure_ascii=False)}
    output: y
"""


def ask(
    expression: str,
    path: str,
    values: dict[str, Any] | None = None,
    inputs: str = "{}",
    output: str = "any",
) -> Any:
    """The value of an expression, or the code of its error."""
    node = vesper.load(node_text(expression, inputs, output))
    outcome = vesper.execute(node, values or {}, path=path)
    return outcome.outputs.get("y") if outcome.error is None else outcome.error.code


def remarks(expression: str, inputs: str = "{}", output: str = "any") -> list[str]:
    """What the checker says about an expression: code, message and hint."""
    issues = check_text(node_text(expression, inputs, output))
    return [f"{issue.code}: {issue.message} ({issue.hint})" for issue in issues if issue.severity != "info"]
