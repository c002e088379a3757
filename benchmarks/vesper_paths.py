"""The direct path beside generated Python: ten nodes without effects, one accepted input each, in one process.

Both paths take the same inputs and give the same outcome. The nodes are those of `vesper_modes`, the examples, and the
smaller files of the tests. Compiling has a row of its own: both paths are compiled once for a node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, Size, Stopwatch, Timing, interleave
from benchmarks.vesper_modes import BASKET, DISCOUNT, ITEMS, NUMBERS, SUM
from lyra import vesper
from lyra.vesper.direct.run import DirectProgram
from lyra.vesper.direct.run import run as direct
from lyra.vesper.python.run import PythonProgram
from lyra.vesper.python.run import run as python
from lyra.vesper.values.outcome import new_execution

__all__ = ["run"]

_ROOT = Path(__file__).parents[1]
_EXAMPLES, _FILES = _ROOT / "examples" / "nodes", _ROOT / "tests" / "vesper" / "files"
_SALES = [
    {"category": f"kind {index % 3}", "quantity": index, "price": "2.50", "sold": f"2026-01-{index + 1:02d}T12:00:00Z"}
    for index in range(8)
]
NODES: tuple[tuple[str, str | Path, Mapping[str, Any]], ...] = (
    ("a sum", SUM, NUMBERS),
    ("a discount", DISCOUNT, {"price": "99.90", "percent": 15}),
    ("a basket of eight items", BASKET, ITEMS),
    ("a greeting", _FILES / "hello_world.vsp", {"name": "Ada"}),
    ("a calculator", _FILES / "calculator.vsp", {"left": "2", "right": "3", "operator": "divide"}),
    ("a shipping quote", _EXAMPLES / "shipping_quote.vsp", {"weight": "4.2", "country": "FR", "is_express": True}),
    (
        "an order of eight lines",
        _EXAMPLES / "order_total.vsp",
        {"lines": [{"name": f"line {index}", "quantity": index, "price": "9.99"} for index in range(1, 9)]},
    ),
    (
        "points of eight purchases",
        _EXAMPLES / "loyalty_points.vsp",
        {"tier": "gold", "purchases": [{"kind": "books", "amount": f"{index}.50"} for index in range(5, 13)]},
    ),
    (
        "loops over twenty numbers",
        _FILES / "loops.vsp",
        {"numbers": list(range(20)), "matrix": [["1", "2"], ["3", "4"]]},
    ),
    (
        "eight sales in groups",
        _FILES / "sales_pipeline.vsp",
        {"sales": _SALES, "start": "2026-01-01T00:00:00Z", "end": "2026-02-01T00:00:00Z"},
    ),
)


def _timed(work: Callable[[], object], count: int) -> Callable[[], Timing]:
    def measure() -> Timing:
        with Stopwatch(count) as watch:
            for _ in range(count):
                work()
        return watch.timing

    return measure


def _row(name: str, node: str | Path, inputs: Mapping[str, Any], size: Size) -> Row:
    with vesper.Runtime() as runtime:
        program, execution = runtime.program(vesper.load(node)), new_execution()
    outcomes = [path(program, inputs, execution) for path in (python, direct)]
    assert all(outcome.status == "success" for outcome in outcomes), outcomes
    assert outcomes[0].outputs == outcomes[1].outputs
    count = size.of(2_000, 20)
    best = interleave(
        {
            "python": _timed(lambda: python(program, inputs, execution), count),
            "direct": _timed(lambda: direct(program, inputs, execution), count),
        },
        size.repeats,
    )
    return Row(f"{name}, direct path", best["direct"], "generated Python", best["python"])


def _row_of_compiling(size: Size) -> Row:
    """What it takes before the first execution, for the ten nodes together."""
    with vesper.Runtime() as runtime:
        programs = [runtime.program(vesper.load(node)) for _, node, _ in NODES]
    count = size.of(10, 1)
    best = interleave(
        {
            "python": _timed(lambda: [PythonProgram(program) for program in programs], count),
            "direct": _timed(lambda: [DirectProgram(program) for program in programs], count),
        },
        size.repeats,
    )
    return Row("compiling the ten nodes, direct path", best["direct"], "generated Python", best["python"])


def run(size: Size) -> list[Row]:
    return [*(_row(name, node, inputs, size) for name, node, inputs in NODES), _row_of_compiling(size)]
