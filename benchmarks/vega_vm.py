"""The Vega interpreter beside CPython: the same four programs in both, in one run.

    python benchmarks/vega_vm.py [--rounds 5]

Prints, for each program, the best CPU time of both and their ratio. The bound of the design is 15×.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from lyra.vega.compiler import compile_module
from lyra.vega.fiber import Done, Fiber
from lyra.vega.link import link
from lyra.vega.parser import parse
from lyra.vega.source import Source
from lyra.vega.vm import run

BOUND = 15.0

PROGRAMS = {
    "fib(22)": """
        fn fib(n) { if n < 2 { return n; } return fib(n - 1) + fib(n - 2); }
        fn main() { return fib(22); }
    """,
    "loop 200 000": """
        fn main() {
            let total = 0;
            let i = 0;
            while i < 200000 { total = total + i % 7; i = i + 1; }
            return total;
        }
    """,
    "strings 20 000": """
        fn main() {
            let s = "";
            let i = 0;
            while i < 20000 { s = s + "x"; i = i + 1; }
            return str::len(s);
        }
    """,
    "lists 50 000": """
        fn main() {
            let xs = [];
            let i = 0;
            while i < 50000 { xs.push(i); i = i + 1; }
            let total = 0;
            for x in xs { total = total + x; }
            let j = 0;
            while j < 50000 { total = total + xs[j]; j = j + 1; }
            return total;
        }
    """,
}


def fib(n: int) -> int:
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)


def loop() -> int:
    total = 0
    i = 0
    while i < 200000:
        total = total + i % 7
        i = i + 1
    return total


def strings() -> int:
    s = ""
    i = 0
    while i < 20000:
        s = s + "x"
        i = i + 1
    return len(s)


def lists() -> int:
    xs: list[int] = []
    i = 0
    while i < 50000:
        xs.append(i)
        i = i + 1
    total = 0
    for x in xs:
        total = total + x
    j = 0
    while j < 50000:
        total = total + xs[j]
        j = j + 1
    return total


PYTHON: dict[str, Callable[[], int]] = {
    "fib(22)": lambda: fib(22),
    "loop 200 000": loop,
    "strings 20 000": strings,
    "lists 50 000": lists,
}


def best(function: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """The shortest CPU time of some rounds, and the result."""
    times, result = [], None
    for _ in range(rounds):
        start = time.process_time()
        result = function()
        times.append(time.process_time() - start)
    return min(times), result


def vega(source: str) -> Callable[[], Any]:
    linked = link(compile_module(parse(source, "bench.vega"), Source("bench.vega", source)))

    def once() -> Any:
        done = run(Fiber.start(linked), 1 << 60)
        assert isinstance(done, Done), done
        return done.value

    return once


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    rounds = arguments.parse_args().rounds
    print(f"{'program':<16} {'CPython ms':>11} {'Vega ms':>9} {'ratio':>7}")
    worst = 0.0
    for name, source in PROGRAMS.items():
        python_s, expected = best(PYTHON[name], rounds)
        vega_s, result = best(vega(source), rounds)
        assert result == expected, (name, result, expected)
        worst = max(worst, vega_s / python_s)
        print(f"{name:<16} {python_s * 1000:>11.2f} {vega_s * 1000:>9.2f} {vega_s / python_s:>6.1f}×")
    print(f"worst {worst:.1f}×, bound {BOUND:.0f}×: {'ok' if worst <= BOUND else 'MISSED'}")


if __name__ == "__main__":
    main()
