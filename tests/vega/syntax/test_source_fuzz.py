"""Mutated sources: whatever a text holds, the front end answers with a tree or with a SourceError, and soon.

`fuzz(count, seed)` may be called with more: `python -m tests.vega.syntax.test_source_fuzz 100000`.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

from lyra.core.ids import make_random
from lyra.errors import CheckError, ParseError
from lyra.vega.checker.checker import parse_and_check
from lyra.vega.format.formatter import format_source
from lyra.vega.syntax.parser import parse
from lyra.vega.syntax.source import Diagnostic
from tests.cases import cases
from tests.vega.programs import DOCUMENTS, ROOT, Programs, blocks_of, shape
from verify.fuzz.vega_fuzz import mutated_text

SECONDS_MAX = 2.0  # of CPU, for one source of a few thousand characters


class Outcome(NamedTuple):
    good: int
    refused: int
    slowest_s: float


def corpus() -> list[str]:
    """Good sources to start from."""
    texts = [block for name in ("000.md", "001.md") for block in blocks_of((DOCUMENTS / name).read_text())]
    texts += [path.read_text() for path in sorted(ROOT.glob("tests/language/**/*.vega"))]
    for seed in range(40):
        programs = Programs.seeded(seed)
        texts.append(programs.spaced(programs.program(8))[0])
    return [text for text in texts if len(text) < 20_000]


def judged(text: str) -> bool:
    """True for a good source; a bad one must say so with places inside it. Anything else is a failure."""
    try:
        tree = parse(text)
    except ParseError as error:
        return _refused(text, error.fields["problems"])
    once = format_source(text)
    assert shape(parse(once)) == shape(tree)
    assert format_source(once) == once
    try:
        parse_and_check(text)
    except CheckError as error:
        return _refused(text, error.fields["problems"])
    return True


def _refused(text: str, problems: list[Diagnostic]) -> bool:
    assert problems
    for problem in problems:
        assert 0 <= problem.at <= len(text)
        assert problem.render()
    return False


def fuzz(count: int, seed: int = 1) -> Outcome:
    """Judge so many mutated sources; a failure names the seed and prints the source."""
    rng = make_random(seed)
    sources = corpus()
    good, slowest_s = 0, 0.0
    for number in range(count):
        text = mutated_text(rng.choice(sources), rng, sources)
        began = time.process_time()
        try:
            good += judged(text)
        except BaseException:
            print(f"seed {seed}, number {number}:\n{text!r}", file=sys.stderr)
            raise
        spent_s = time.process_time() - began
        slowest_s = max(slowest_s, spent_s)
        assert spent_s < SECONDS_MAX, f"{spent_s:.1f} s for seed {seed}, number {number}: {text!r}"
    return Outcome(good, count - good, slowest_s)


def test_mutated_sources_give_a_tree_or_a_source_error():
    """Both outcomes occur."""
    count = cases(2_000)
    outcome = fuzz(count)
    assert outcome.refused > count // 2
    assert outcome.good > 0


def test_hostile_sources_take_bounded_time():
    """Long runs of one thing: nothing is quadratic."""
    for piece in (
        " ",
        "\n",
        "(",
        "{",
        '"',
        "${",
        '"${',
        "/*",
        "//",
        "a ",
        "1",
        "-",
        "a.",
        "a(",
        "let ",
        "};",
        "\\",
        "|",
        "<-",
    ):
        began = time.process_time()
        judged(piece * (40_000 // len(piece)))
        assert time.process_time() - began < 5 * SECONDS_MAX, piece


if __name__ == "__main__":
    print(fuzz(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
