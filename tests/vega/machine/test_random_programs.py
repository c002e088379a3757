"""Compiler and machine against a tree walker, on random programs."""

from __future__ import annotations

import os

from lyra.vega.bytecode import file as bytecode
from lyra.vega.compiler.compiler import compile_module
from lyra.vega.syntax.parser import parse
from lyra.vega.syntax.source import Source
from tests.cases import ALL
from tests.vega.local_host import LocalHost
from tests.vega.random_programs import random_program
from tests.vega.reference import TooLong, Walker

COUNT = int(os.environ.get("VEGA_PROGRAMS") or (50 if ALL else 12))
SEED = int(os.environ.get("VEGA_SEED", "6"))


def compiled_outcome(text: str) -> tuple[list[str], str | None]:
    program = compile_module(parse(text, "random.vega"), Source("random.vega", text))
    lines: list[str] = []
    end = LocalHost(bytecode.load(bytecode.dump(program)), lines.append).run()
    return lines, None if end.error is None else f"{end.error.name}: {end.error.text}"


def test_random_programs_do_what_the_tree_says():
    """Prints and the error that ends it are those of the tree walker, whatever is nested in whatever."""
    compared = 0
    for number in range(COUNT):
        text = random_program(SEED * 1_000_000 + number)
        try:
            wanted = Walker().run(parse(text, "random.vega"))
        except TooLong:
            continue
        compared += 1
        assert compiled_outcome(text) == wanted, f"program {number} of seed {SEED}:\n{text}"
    assert compared > COUNT * 0.7
