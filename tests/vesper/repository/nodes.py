"""Small nodes for tests: texts of files, and folders of them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["CALLER", "DOUBLE", "caller", "double", "write"]

DOUBLE = """\
node_id: double_v1
type: function
intent: double a number

metadata:
  description: Doubles.

inputs:
  number: integer

outputs:
  success:
    result: integer

flow:
  - step: calculate
    operation: arithmetic
    expression: number * 2
    output: result
"""

CALLER = """\
node_id: caller_v1
type: function
intent: double a number by another node

metadata:
  description: Calls.

inputs:
  number: integer

outputs:
  success:
    answer: integer

flow:
  - step: ask
    operation: call_node
    node_id: double
    parameters:
      number: "{number}"
    output: reply
  - step: answer
    operation: return
    return_success:
      answer: "{reply.result}"
"""


def double(version: str, factor: int = 2) -> str:
    return DOUBLE.replace("double_v1", f"double_v{version}").replace("* 2", f"* {factor}")


def caller(name: str, target: str) -> str:
    return CALLER.replace("caller_v1", name).replace("node_id: double\n", f"node_id: {target}\n")


def write(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.vsp").write_text(text, encoding="utf-8")
    return folder
