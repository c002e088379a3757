"""How many lines of Vega a second are lexed, parsed, checked and formatted: a generated file of ten thousand lines.

The baseline is CPython's own parser, written in C, on a Python file of the same shape: a figure to look at, no goal.
"""

from __future__ import annotations

import ast
import textwrap

from benchmarks.measure import Row, Size, Stopwatch, Timing, at_most, interleave
from lyra.vega.checker.checker import check_module
from lyra.vega.format.formatter import format_source
from lyra.vega.syntax.lexer import lex
from lyra.vega.syntax.parser import parse
from lyra.vega.syntax.source import Source

PIECE = """
// Worker number {n} and what it needs.
agent Coder{n} {{
    model "claude-sonnet-4-20250514"
    system "You write clean, efficient code."
    temperature 0.3
    budget $0.50
    retry {{
        max_attempts 3
        backoff exponential(100ms, 2.0, 5s)
        on [rate_limit, overloaded, timeout]
    }}

    tool read_file(path: str) -> str capabilities [fs::read] {{
        return file::read(path);
    }}
}}

const LIMIT{n} = {n};

fn total{n}(items: list, start: int = 0) -> int {{
    let sum = start;
    for item in items {{
        if item % 2 == 0 && item < LIMIT{n} {{
            sum = sum + item * 2;
        }} else {{
            sum = sum - 1;
        }}
    }}
    let i = 0;
    while i < 10 {{
        i = i + 1;
    }}
    return sum;
}}

fn review{n}(task) {{
    let coder = spawn Coder{n} supervised by {{ strategy restart max_restarts 3 window 60s }};
    try {{
        let code = coder <- "Write " + task timeout 30s;
        print("done: ${{code}}");
        return Ok(code);
    }} catch AgentFailed(reason) {{
        print("failed: " + reason);
    }}
    let names = {{"a": 1, "b": [1, 2, 3]}};
    names["c"] = list::map([1, 2], |x| x + {n});
    match total{n}([1, 2, 3]) {{
        0 => print("none"),
        n => print(n),
    }}
    return Err("no answer");
}}
"""

PYTHON = """
# Worker number {n} and what it needs.
class Coder{n}:
    model = "claude-sonnet-4-20250514"
    temperature = 0.3

    def read_file(self, path: str) -> str:
        return read(path)

LIMIT{n} = {n}

def total{n}(items, start=0):
    sum = start
    for item in items:
        if item % 2 == 0 and item < LIMIT{n}:
            sum = sum + item * 2
        else:
            sum = sum - 1
    return sum
"""


def program(lines: int) -> str:
    """A Vega file of about that many lines, all of whose names are known."""
    piece_lines = PIECE.count("\n")
    return "".join(PIECE.format(n=number) for number in range(max(1, lines // piece_lines)))


def _python(lines: int) -> str:
    piece_lines = PYTHON.count("\n")
    return "".join(textwrap.dedent(PYTHON).format(n=number) for number in range(max(1, lines // piece_lines)))


def run(size: Size) -> list[Row]:
    text, other = program(size.of(10_000, 100)), _python(size.of(10_000, 100))
    lines, other_lines = text.count("\n"), other.count("\n")
    module = parse(text)

    def timed(work, count: int = lines) -> Timing:
        with Stopwatch(count) as watch:
            work()
        return watch.timing

    best = interleave(
        {
            "lex": lambda: timed(lambda: lex(Source("bench", text))),
            "parse": lambda: timed(lambda: parse(text)),
            "check": lambda: timed(lambda: check_module(module, Source("bench", text))),
            "format": lambda: timed(lambda: format_source(text)),
            "python": lambda: timed(lambda: ast.parse(other), other_lines),
        },
        size.repeats,
    )
    goal = at_most(25, "µs")  # 40 000 lines a second
    return [
        Row("a line lexed", best["lex"]),
        Row("a line lexed and parsed", best["parse"], "CPython's `ast.parse`", best["python"], goals=(goal,)),
        Row("a line checked", best["check"], note="after parsing"),
        Row("a line formatted", best["format"], note="parsing included"),
    ]
