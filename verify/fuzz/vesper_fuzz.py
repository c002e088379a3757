"""Vesper nodes with damage: `.vsp` files whose text was changed, and expressions made of the language's pieces.

`node(rng)` and `expression(rng)` are targets of `fuzz`. A mutated file is checked and loaded: it is a node, or a
LyraError whose remarks stand inside the text; a node that is accepted is compiled for both paths. An expression is
read as such, as a condition of SQL and as a template; it is a tree, or a LyraError with an offset inside the text.
Nothing is executed.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from lyra.core.ids import ProcessRandom
from lyra.errors import LyraError, ParseError
from lyra.vesper.check import check_text, has_errors, program_of
from lyra.vesper.direct.run import compile_program as compile_direct
from lyra.vesper.expressions.parser import parse_expression, parse_template
from lyra.vesper.nodes import load
from lyra.vesper.python.run import compile_program as compile_python

__all__ = ["expression", "expression_text", "mutated", "node", "node_text"]

NODES: Final = Path(__file__).parents[2] / "tests" / "language" / "vesper"

# A node with every section, in case the corpus of tests is not there.
WHOLE: Final = """\
node_id: whole_v1.2
type: function
intent: have every section
metadata: {author: a, version: "1.2", description: all, tags: [x], changelog: [{version: "1", changes: [first]}]}
types:
  Line: {fields: {name: string, price: {type: decimal, scale: 2, min: 0}}, constraints: ["price < 1000"]}
inputs:
  lines: array<Line>
  kind: {type: enum, values: [a, b], required: false, default: a}
  limit: {type: integer, constraints: [positive, {max: 10}, "value % 2 == 0"]}
outputs:
  success: {total: decimal, groups: array<any>}
  error: {error_code: "enum[too_many]", message: string}
state_machines:
  order: {initial: open, states: [open, paid], transitions: [{from: open, to: paid, guard: "limit > 1"}]}
contracts:
  preconditions: ["FORALL line: line.price >= 0"]
  postconditions: ["success => total >= 0", "COUNT(lines) == old(COUNT(lines))"]
  invariants: ["limit IS NOT NULL"]
flow:
  - step: check
    operation: validation
    guards: ["COUNT(lines) <= limit"]
    on_failure: {return_error: {error_code: too_many, message: "{limit} at most"}}
  - {step: start, operation: arithmetic, expression: "0", output: total}
  - step: go
    operation: for_each
    input: lines
    as: line
    steps:
      - {operation: arithmetic, expression: total + line.price, scale: 2, rounding: half_up, output: total}
  - step: group
    operation: data_transform
    input: lines
    transform: group_by
    group_by: [name]
    aggregations: {sum: SUM(price), count: COUNT(*)}
    output: groups
error_handling:
  overflow: {action: map_to, map_to: too_many}
performance: {timeout_seconds: 5, memory_limit_mb: 64}
security: {sensitive_data: [kind], audit_level: basic}
testing:
  test_cases:
    - {name: none, inputs: {lines: [], limit: 2}, expected_output: {total: 0}}
"""
_WORDS: Final = (
    *("\n", "\n  ", "\n    - ", ": ", "- ", "{", "}", "[", "]", ",", '"', "'", "|", ">", "|2-", "#", "&a ", "*a", "!!"),
    *("!", "? ", "<<: *a", "---\n", "...\n", "%YAML 1.1\n", "\t", "\0", "\ufeff", "\u2028"),
    *("\ud800", "\U0001f600", "\\"),
    *("~", "null", "true", ".nan", ".inf", "-0", "1e9", "1e99999", "9" * 30, "0x10", "2026-01-01"),
    *("!!python/name:os.system ", "node_id: ", "type: ", "flow:", "inputs:", "outputs:", "steps:"),
    *("operation: ", "operation: loop"),
    *("guards: [", "array<", "map<string, ", "set<", "decimal(", "enum["),
    *("array<" * 40, "scale: 2000", "required: false"),
    *("expression: ", "template: ", "{x}", "{{", "}}", "{a.b[0]}", "old(", "FORALL x IN xs: ", "SUM(", "__class__"),
    *("transform: reduce", "on_error: [{error_type: '*'}]", "parameters:", "condition: ", "max_iterations: 0"),
)  # fmt: skip
PIECES: Final = (
    *("a", "b", "xs", "user", "x", "_", "__class__", "old", "SUM", "COUNT", "AVG", "MIN", "MAX", "all", "any", "len"),
    *("round", "matches", "current_year", "AND", "OR", "NOT", "IN", "CONTAINS", "IS", "NULL", "FORALL", "EXISTS"),
    *("true", "false", "null", "0", "1", "-", "1.50", "0.", ".5", "1e5"),
    *("9" * 40, "'a'", '"b"', "''", "'\\''", "'", '"'),
    *("\\", "+", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "=>", "=", "(", ")", "[", "]"),
    *(".", ",", ":", "{", "}"),
    *("{{", "}}", " ", " ", " ", "\n", "\t", "&&", "||", "!", ";", "@", "é", "\0", "\ud800"),
    *("\U0001f600", "`", "$", "#"),
    *("a + b * 2", "FORALL x IN xs: x > 0", "old(a) == b", "SUM(xs.price)", "a IS NOT NULL", "b NOT IN [1, 'x']"),
    *("round(a / b, 2)", "{a} of {b}", "xs[0].name.length", "NOT (a OR b) => c", "(" * 70, "-" * 70, "[" * 70),
    *("a." * 90, "a+" * 200, "'" + "x" * 5_000 + "'"),
)  # fmt: skip


# ---------------------------------------------------------------- files
@cache
def _texts() -> tuple[str, ...]:
    return (WHOLE, *(path.read_text() for path in sorted(NODES.glob("**/*.vsp"))))


def mutated(text: str, rng: ProcessRandom) -> str:
    """The text with one to six changes: of characters, words, lines or whole parts."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        place = rng.randrange(len(text) + 1)
        end = min(len(text), place + rng.choice((1, 1, 3, 10, 60)))
        change = rng.randrange(8)
        if change == 0:
            text = text[:place] + text[end:]
        elif change == 1:
            text = text[:place] + rng.choice(_WORDS) + text[place:]
        elif change == 2:
            text = text[:place] + rng.choice(_WORDS) + text[end:]
        elif change == 3:
            text = text[:place] + rng.choice(_WORDS) * rng.choice((2, 20, 200)) + text[place:]
        elif change == 4:
            text = _moved_line(text, rng)
        elif change == 5:
            other = rng.choice(_texts())
            start = rng.randrange(len(other) + 1)
            text = text[:place] + other[start : start + rng.randint(1, 300)] + text[place:]
        elif change == 6:
            text = text[:place] + expression_text(rng) + text[end:]
        else:
            text = text[:place] + chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x110000)))) + text[end:]
    return text


def _moved_line(text: str, rng: ProcessRandom) -> str:
    """The text with a line taken out and put in elsewhere, indented by more or less."""
    lines = text.split("\n")
    line = lines.pop(rng.randrange(len(lines)))
    moved = " " * rng.randrange(9) + line.lstrip()
    lines.insert(rng.randrange(len(lines) + 1), rng.choice((line, moved)))
    return "\n".join(lines)


def node_text(rng: ProcessRandom) -> str:
    """A file with damage."""
    return mutated(rng.choice(_texts()), rng) + "\n"


def node(rng: ProcessRandom) -> None:
    """One damaged file through the checker, the loader and, if it is accepted, both compilers."""
    text = node_text(rng)
    issues = check_text(text)
    lines = text.count("\n") + len(text.splitlines()) + 1
    for issue in issues:
        assert 1 <= issue.line <= lines and issue.column >= 1, f"{issue} stands outside the text"  # noqa: PT018
    try:
        program = program_of(load(text))
    except LyraError:
        assert has_errors(issues), "refused without an error among the remarks"
        raise
    assert not has_errors(issues), f"accepted with errors: {issues}"
    compile_python(program)
    compile_direct(program)


# ---------------------------------------------------------------- expressions
def expression_text(rng: ProcessRandom) -> str:
    """Pieces of the language in any order."""
    separator = rng.choice(("", " ", " "))
    return separator.join(rng.choice(PIECES) for _ in range(rng.randint(1, rng.choice((4, 12, 40)))))


def expression(rng: ProcessRandom) -> None:
    """One text, read in every way in which a file may hold an expression."""
    text = expression_text(rng)
    refusal: LyraError | None = None
    readers: tuple[tuple[Any, dict[str, Any]], ...] = (
        (parse_expression, {}),
        (parse_expression, {"sql": True}),
        (parse_template, {}),
    )
    for read, options in readers:
        try:
            read(text, **options)
        except ParseError as error:
            offset = error.fields["offset"]
            assert 0 <= offset <= len(text), f"offset {offset} is outside {text!r}"
            refusal = error
    if refusal is not None:
        raise refusal
