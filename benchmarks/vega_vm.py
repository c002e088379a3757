"""What Vega's machine costs: the same four programs in Vega and in Python.

The goal is 15 times CPython for each. Compiling is not measured; the programs call no library but `str::len`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.measure import Row, Size, Stopwatch, Timing, interleave, ratio_at_most
from lyra.vega.compiler.compiler import compile_module
from lyra.vega.machine.fiber import Done, Fiber
from lyra.vega.machine.link import link
from lyra.vega.machine.vm import run as run_fiber
from lyra.vega.syntax.parser import parse
from lyra.vega.syntax.source import Source

SOURCE = """
fn fib(n) { if n < 2 { return n; } return fib(n - 1) + fib(n - 2); }

fn loop(n) {
    let total = 0;
    let i = 0;
    while i < n { total = total + i % 7; i = i + 1; }
    return total;
}

fn strings(n) {
    let s = "";
    let i = 0;
    while i < n { s = s + "x"; i = i + 1; }
    return str::len(s);
}

fn lists(n) {
    let xs = [];
    let i = 0;
    while i < n { xs.push(i); i = i + 1; }
    let total = 0;
    for x in xs { total = total + x; }
    let j = 0;
    while j < n { total = total + xs[j]; j = j + 1; }
    return total;
}
"""


def fib(n: int) -> int:
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)


def loop(n: int) -> int:
    total = 0
    i = 0
    while i < n:
        total = total + i % 7
        i = i + 1
    return total


def strings(n: int) -> int:
    s = ""
    i = 0
    while i < n:
        s = s + "x"
        i = i + 1
    return len(s)


def lists(n: int) -> int:
    xs: list[int] = []
    i = 0
    while i < n:
        xs.append(i)
        i = i + 1
    total = 0
    for x in xs:
        total = total + x
    j = 0
    while j < n:
        total = total + xs[j]
        j = j + 1
    return total


def in_vega(name: str) -> Callable[[int], Any]:
    """The function of that name in SOURCE, as a Python function that runs it."""
    program = compile_module(parse(SOURCE, "bench.vega"), Source("bench.vega", SOURCE))
    linked = link(program)
    index = next(index for index, function in enumerate(program.functions) if function.name == name)

    def call(n: int) -> Any:
        done = run_fiber(Fiber.call(linked, index, [n], []), 1 << 60)
        assert isinstance(done, Done), done
        return done.value

    return call


def timed(function: Callable[[int], Any], n: int, wanted: Any) -> Timing:
    with Stopwatch(1) as watch:
        result = function(n)
    assert result == wanted
    return watch.timing


def run(size: Size) -> list[Row]:
    subjects: list[tuple[str, Callable[[int], Any], int]] = [
        ("fib({})", fib, size.of(22, 10)),
        ("{} turns of a loop", loop, size.of(200_000, 100)),
        ("{} strings joined one by one", strings, size.of(20_000, 100)),
        ("a list of {} built, walked and indexed", lists, size.of(50_000, 100)),
    ]
    rows = []
    for what, python, n in subjects:
        vega, wanted = in_vega(python.__name__), python(n)
        best = interleave(
            {
                "vega": lambda vega=vega, n=n, wanted=wanted: timed(vega, n, wanted),  # type: ignore[misc]
                "python": lambda python=python, n=n, wanted=wanted: timed(python, n, wanted),  # type: ignore[misc]
            },
            size.repeats,
        )
        rows.append(Row(what.format(n), best["vega"], "CPython", best["python"], goals=(ratio_at_most(15),)))
    return rows
