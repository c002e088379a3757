"""Library functions and operators given anything at all: an answer or an error with a sentence, no crash inside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lyra import vega
from lyra.core.ids import ProcessRandom, make_random
from lyra.vega.stdlib.table import LIBRARY, METHODS
from tests.cases import cases, first

VALUES = (
    *("0", "1", "-1", "9223372036854775807", "-9223372036854775808", "2.5", "-0.0", "(1e308 * 10)", "1e300", "100000"),
    *("(1e308 * 10 - 1e308 * 10)", '""', '"abc"', '"é😀"', '"["', '"(a+)+$"', '"{\\"a\\": [1]}"', '","', '"a,b,c"'),
    *("null", "true", "[]", "[1, 2, 3]", '["a", 1, null]', "[[1], [2]]", "[1.5, 2]", "[$1.00, $2.00]", "{}"),
    *('{"a": 1, 2: 3}', "$0.50", "-$1.00", "5s", "-100ms", "Ok(1)", 'Err("e")', "|x| x", "|a, b| a", "|| 1"),
    *("process::self()", "str::builder()", "|x| [][1]"),
)
SIGNS = ("+", "-", "*", "/", "%", "<", "<=", "==", "!=", "&&", "||")
INSIDE = "what no compiler makes"  # how the machine says that it met an error of Python's


def some(rng: ProcessRandom, count: int) -> str:
    return ", ".join(rng.choice(VALUES) for _ in range(count))


def expressions(rng: ProcessRandom) -> Iterator[str]:
    for module, rows in LIBRARY.items():
        for name, row in rows.items():
            if row.how != "effect":
                for _ in range(8):
                    yield f"{module}::{name}({some(rng, rng.randint(row.required, row.most))})"
    for kind, names in METHODS.items():
        for name in (*names, *LIBRARY.get(kind, ())):
            yield f"({rng.choice(VALUES)}).{name}({some(rng, rng.randint(0, 2))})"
    for _ in range(cases(300)):
        yield f"({rng.choice(VALUES)}) {rng.choice(SIGNS)} ({rng.choice(VALUES)})"
        yield f"({rng.choice(VALUES)})[{rng.choice(VALUES)}]"


@pytest.mark.parametrize("seed", first([1, 2], 1))
def test_whatever_they_are_given(seed):
    tried = [
        f"try {{ {expression}; }} catch Error(reason) {{ print(reason); }}"
        for expression in expressions(make_random(seed))
    ]
    while wrong := {problem.line - 1 for problem in vega.check("\n".join(tried)) if problem.is_error}:
        tried = [line for index, line in enumerate(tried) if index not in wrong]
    assert len(tried) > cases(2_400)
    lines: list[str] = []
    vega.run("\n".join(tried), stdout=lines.append)
    assert [line for line in lines if INSIDE in line] == []
