"""Nodes in their modes: the router, an execution on both paths, comparisons a second.

A node that adds two numbers shows what the modes cost where the work is nearly nothing; one that works on eight items
shows what they cost beside ordinary work. `dual_verify` is held against the slower of the two modes with one path: the
same runtime, which counts and measures every execution; the row beside it has the bare path as its baseline. What
`vesper verify` takes for one input is measured with generated inputs: 25 µs are 40 000 inputs a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.measure import Figure, Goal, Row, Size, Stopwatch, Timing, at_most, interleave, ratio_at_most
from lyra import vesper
from lyra.vesper.direct.run import run as direct
from lyra.vesper.evidence.differential import test
from lyra.vesper.evidence.modes import mode_named, route
from lyra.vesper.python.run import run as python
from lyra.vesper.values.outcome import new_execution

__all__ = ["run"]

SUM = """\
node_id: add_v1
type: function
intent: add two numbers
inputs:
  a: integer
  b: integer
outputs:
  total: integer
contracts:
  postconditions: ["total - b == a"]
flow:
  - {step: add, operation: arithmetic, expression: "a + b", output: total}
"""
BASKET = """\
node_id: basket_v1
type: function
intent: the total of a basket
types:
  Item:
    fields:
      price: {type: decimal, scale: 2}
      quantity: integer
inputs:
  items: {type: "array<Item>", constraints: [non_empty]}
  rate: {type: decimal, scale: 4}
outputs:
  net: {type: decimal, scale: 2}
  tax: {type: decimal, scale: 2}
contracts:
  preconditions: ["FORALL item IN items: item.quantity > 0"]
  postconditions: ["net >= 0"]
flow:
  - step: lines
    operation: data_transform
    input: items
    transform: map
    function: "record.price * record.quantity"
    output: lines
  - {step: net, operation: arithmetic, expression: "SUM(lines)", output: net}
  - {step: tax, operation: arithmetic, expression: "net * rate", scale: 2, output: tax}
"""
DISCOUNT = """\
node_id: discount_v1
type: function
intent: lower the price of an order by its discount
inputs:
  price: {type: decimal, scale: 2, constraints: [positive]}
  percent: {type: integer, constraints: [{min: 0}, {max: 90}]}
outputs:
  success:
    total: {type: decimal, scale: 2}
    saved: {type: decimal, scale: 2}
  error: {error_code: "enum[too_much]", message: string}
contracts:
  preconditions: ["price > 0"]
  postconditions: ["success => total + saved == price", "success => total > 0"]
flow:
  - step: check_percent
    operation: validation
    guards: ["percent <= 90"]
    on_failure: {return_error: {error_code: too_much, message: "{percent} percent is more than we give"}}
  - {step: find_discount, operation: arithmetic, expression: "price * percent / 100", scale: 2, output: saved}
  - {step: find_total, operation: arithmetic, expression: "price - saved", output: total}
"""
NUMBERS = {"a": 20, "b": 22}
ITEMS = {"items": [{"price": "9.99", "quantity": number} for number in range(1, 9)], "rate": "0.1900"}


def _timed(work: Callable[[], object], count: int) -> Callable[[], Timing]:
    def measure() -> Timing:
        with Stopwatch(count) as watch:
            for _ in range(count):
                work()
        return watch.timing

    return measure


def _rows(name: str, text: str, inputs: Mapping[str, Any], count: int, repeats: int) -> list[Row]:
    node = vesper.load(text)
    with vesper.Runtime() as runtime:
        program, execution = runtime.program(node), new_execution()
        best = interleave(
            {
                "python": _timed(lambda: python(program, inputs, execution), count),
                "direct": _timed(lambda: direct(program, inputs, execution), count),
                "python_only": _timed(lambda: runtime.execute(node, inputs, "python_only"), count),
                "dual_verify": _timed(lambda: runtime.execute(node, inputs, "dual_verify"), count),
                "direct_only": _timed(lambda: runtime.execute(node, inputs, "direct_only"), count),
            },
            repeats,
        )
    slower = max(("python", "direct"), key=lambda path: best[path].value)
    mode = max(("python_only", "direct_only"), key=lambda name: best[name].value)
    return [
        Row(f"{name}, direct path", best["direct"], "generated Python", best["python"]),
        Row(f"{name}, python_only", best["python_only"], "generated Python alone", best["python"]),
        Row(f"{name}, direct_only", best["direct_only"], "the direct path alone", best["direct"]),
        Row(f"{name}, dual_verify", best["dual_verify"], mode, best[mode], (ratio_at_most(2.5),)),
        Row(f"{name}, dual_verify", best["dual_verify"], f"the {slower} path without a runtime", best[slower]),
    ]


def _compared(name: str, text: str, size: Size, goals: tuple[Goal, ...] = ()) -> Row:
    """What one generated input costs: drawing it, both paths, and the comparison."""
    count = size.of(20_000, 100)
    with vesper.Runtime() as runtime:
        program = runtime.program(vesper.load(text))
    divergences = test(program, count, 1).divergences
    figure = interleave({name: _timed(lambda: test(program, count, 1), 1)}, size.repeats)[name]
    wall = None if figure.wall is None else figure.wall / count
    ours = Figure(figure.value / count, figure.unit, wall)
    note = f"{1e6 / ours.value:.0f} inputs in a second of CPU time, {divergences} divergences"
    return Row(f"an input compared by `vesper verify`, {name}", ours, goals=goals, note=note)


def run(size: Size) -> list[Row]:
    count = size.of(5_000, 50)
    mode = mode_named("direct_only")
    routed = interleave(
        {"route": _timed(lambda: route(mode, "add_v1", NUMBERS, 0.5), size.of(50_000, 50))}, size.repeats
    )
    return [
        Row("the router", routed["route"], goals=(at_most(0.5, "µs"),)),
        *_rows("a sum", SUM, NUMBERS, count, size.repeats),
        *_rows("a basket of eight items", BASKET, ITEMS, size.of(1_000, 20), size.repeats),
        _compared("a sum", SUM, size, (at_most(25, "µs"),)),
        _compared("a discount", DISCOUNT, size),
        _compared("a basket", BASKET, size),
    ]
