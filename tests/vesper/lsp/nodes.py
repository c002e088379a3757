"""Nodes with a cursor in them, for tests of the answers."""

from __future__ import annotations

from pathlib import Path

from lyra.lsp.texts import Document, uri_of
from lyra.vesper.lsp.language import VesperLanguage

CURSOR = "‸"
HERE = "/work/nodes/fee.vsp"
FEE = """\
# What a payment costs.
node_id: fee_v1
type: function
intent: Add up the fee of a payment

metadata: {author: lyra, version: "1.0", description: Adds lines and takes a share of them.}

types:
  Line: {fields: {name: string, price: {type: decimal, scale: 2}}}

inputs:
  lines: {type: array<Line>, description: what is paid}
  percent: {type: decimal, default: "2", min: 0, max: 10}

outputs:
  success: {sum: decimal, fee: decimal}
  error: {error_code: "enum[nothing_to_pay]"}

contracts:
  preconditions: [percent >= 0]
  postconditions:
    - success => fee <= sum
    - "FORALL one IN lines: one.price >= 0"

flow:
  - step: check
    operation: validation
    guards: [COUNT(lines) > 0]
    on_failure: {return_error: {error_code: nothing_to_pay}}
  - {step: sum, operation: arithmetic, expression: "0"}
  - step: add
    operation: for_each
    input: lines
    as: line
    steps:
      - {step: more, operation: arithmetic, expression: sum + line.price, output: sum}
  - step: take
    operation: arithmetic
    expression: round(sum * percent / 100, 2)
    output: fee
  - step: log
    operation: call_node
    node_id: note
    inputs: {text: "a fee of {fee}"}

testing:
  test_cases:
    - name: one
      inputs: {lines: [{name: pen, price: "1.00"}], percent: 10}
      expected_output: {sum: "1.00", fee: "0.10"}
"""
NOTE = """\
node_id: note_v2
type: function
intent: Keep a note
inputs: {text: {type: string, description: the note}}
outputs: {kept: boolean}
metadata: {author: lyra, version: "2.0", description: Keeps it.}
flow:
  - {step: kept, operation: arithmetic, expression: "true"}
"""


def opened(text: str = FEE, path: str = HERE, **others: str) -> tuple[VesperLanguage, int]:
    """A language with one open file, beside other open ones by their names, and the offset of the cursor in it. What
    stood there before the cursor came has been looked at, as in an editor."""
    language = VesperLanguage()
    folder = Path(path).parent
    for name, other in others.items():
        file = str(folder / f"{name}.vsp")
        language.texts.put(Document(uri_of(file), file, other))
    if CURSOR in text:
        language.texts.put(Document(uri_of(path), path, FEE))
        language.analysis(path)
    language.texts.put(Document(uri_of(path), path, text.replace(CURSOR, "")))
    return language, max(0, text.find(CURSOR))


def at(part: str, *, nth: int = 0, inside: int = 0, text: str = FEE) -> int:
    """The offset of a part of a text."""
    offset = -1
    for _ in range(nth + 1):
        offset = text.index(part, offset + 1)
    return offset + inside


def replaced(old: str, new: str) -> str:
    assert FEE.count(old) == 1, old
    return FEE.replace(old, new)
