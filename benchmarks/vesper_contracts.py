"""What inline contracts cost: those of nodes beside the decorators of `icontract` and `deal`.

Each shape is a node whose text is compiled with and without its contracts, and a function of Python with the same work,
bare and decorated with the same conditions. Compared is what the contracts add to a call, in CPU time; the goal is a
fifth of what each library adds. The shapes are numbers, a text, a list whose every element is checked, and a
postcondition about the value before the call. The decorators come with the extra `bench`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from benchmarks.measure import Figure, Row, Size, Stopwatch, Timing, interleave, ratio_at_most
from lyra import vesper
from lyra.vesper.check.judge import program_of
from lyra.vesper.python.run import compile_program

__all__ = ["run"]

Check = Callable[..., bool]


class Shape(NamedTuple):
    """`requires` and `ensures` are the contracts as Python: of the inputs, and of these and the result."""

    what: str
    node: str
    function: Callable[..., Any]
    requires: Sequence[Check]
    ensures: Sequence[Check]
    words: dict[str, Any]
    calls: int


def _add(a: int, b: int) -> int:
    return a + b


def _tag(name: str, mark: str) -> str:
    return name + mark


def _sum(numbers: list[int]) -> int:
    total = 0
    for number in numbers:
        total += number
    return total


def _pay(balance: int, amount: int) -> int:
    return balance - amount


_HEAD: Final = "node_id: shape_v1\ntype: function\nintent: a shape\n"
SHAPES: Final = (
    Shape(
        "two contracts about numbers",
        _HEAD
        + """\
inputs: {a: integer, b: integer}
outputs: {result: integer}
contracts:
  preconditions: ["a >= 0"]
  postconditions: ["result >= a"]
flow:
  - {step: add, operation: arithmetic, expression: a + b, output: result}
""",
        _add,
        [lambda a, b: a >= 0],
        [lambda a, b, result: result >= a],
        {"a": 3, "b": 4},
        100_000,
    ),
    Shape(
        "three contracts about a text",
        _HEAD
        + """\
inputs: {name: string, mark: string}
outputs: {result: string}
contracts:
  preconditions: ["len(name) > 0", "len(mark) < 10"]
  postconditions: ["len(result) == len(name) + len(mark)"]
flow:
  - {step: join, operation: arithmetic, expression: name + mark, output: result}
""",
        _tag,
        [lambda name, mark: len(name) > 0, lambda name, mark: len(mark) < 10],
        [lambda name, mark, result: len(result) == len(name) + len(mark)],
        {"name": "a name of some length", "mark": "!"},
        100_000,
    ),
    Shape(
        "every element of a list of 20",
        _HEAD
        + """\
inputs: {numbers: array<integer>}
outputs: {result: integer}
contracts:
  preconditions: ["FORALL number IN numbers: number >= 0"]
  postconditions: ["result >= 0"]
flow:
  - {step: start, operation: arithmetic, expression: "0", output: result}
  - step: add
    operation: for_each
    input: numbers
    as: number
    steps:
      - {step: next, operation: arithmetic, expression: result + number, output: result}
""",
        _sum,
        [lambda numbers: all(number >= 0 for number in numbers)],
        [lambda numbers, result: result >= 0],
        {"numbers": list(range(20))},
        20_000,
    ),
    Shape(
        "four contracts, one about the value before",
        _HEAD
        + """\
inputs: {balance: integer, amount: integer}
outputs: {result: integer}
contracts:
  preconditions: ["amount > 0", "amount <= balance"]
  postconditions: ["result == old(balance) - amount", "result >= 0"]
flow:
  - {step: pay, operation: arithmetic, expression: balance - amount, output: result}
""",
        _pay,
        [lambda balance, amount: amount > 0, lambda balance, amount: amount <= balance],
        [lambda balance, amount, result: result == balance - amount, lambda balance, amount, result: result >= 0],
        {"balance": 100, "amount": 30},
        100_000,
    ),
)


def run(size: Size) -> list[Row]:
    return [row for shape in SHAPES for row in _rows(size, shape)]


def _rows(size: Size, shape: Shape) -> list[Row]:
    functions: dict[str, Callable[..., Any]] = {
        "plain": _compiled(_without_contracts(shape.node)),
        "checked": _compiled(shape.node),
        "undecorated": shape.function,
    }
    for library, decorate in (("icontract", _with_icontract), ("deal", _with_deal)):
        try:
            functions[library] = decorate(importlib.import_module(library), shape)
        except ImportError:
            continue
    for name, function in functions.items():
        result = function(**shape.words)
        expected = shape.function(**shape.words)
        assert result in (expected, {"result": expected}), name
    count = size.of(shape.calls, 10)
    best = interleave(
        {name: partial(_timed, function, shape.words, count) for name, function in functions.items()},
        size.repeats,
    )
    ours = _overhead(best["checked"], best["plain"])
    libraries = [name for name in ("icontract", "deal") if name in best]
    rows = [
        Row(shape.what, ours, name, _overhead(best[name], best["undecorated"]), goals=(ratio_at_most(0.2),))
        for name in libraries
    ]
    return rows or [Row(shape.what, ours, note="icontract and deal are not installed")]


def _compiled(text: str) -> Callable[..., Any]:
    return compile_program(program_of(vesper.load(text))).function


def _without_contracts(text: str) -> str:
    """The same node; lines from `contracts:` to `flow:` are left out."""
    head, _, rest = text.partition("contracts:\n")
    return f"{head}flow:{rest.partition('flow:')[2]}" if rest else text


def _with_icontract(icontract: Any, shape: Shape) -> Callable[..., Any]:
    function = shape.function
    for check in shape.ensures:
        function = icontract.ensure(check)(function)
    for check in shape.requires:
        function = icontract.require(check)(function)
    return function


def _with_deal(deal: Any, shape: Shape) -> Callable[..., Any]:
    function = shape.function
    for check in shape.ensures:
        function = deal.ensure(check)(function)
    for check in shape.requires:
        function = deal.pre(check)(function)
    return function


def _timed(function: Callable[..., Any], words: dict[str, Any], count: int) -> Timing:
    with Stopwatch(count) as watch:
        for _ in range(count):
            function(**words)
    return watch.timing


def _overhead(with_contracts: Figure, without: Figure) -> Figure:
    return Figure(max(with_contracts.value - without.value, 0.0), "µs")
