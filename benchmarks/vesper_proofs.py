"""Which contracts are decided, and by whom: `vesper prove` beside CrossHair.

Each case is a node with one postcondition, and a function of Python with the same work and the same condition in its
docstring. Each is given to its tool in a process of its own with the same limit of CPU time, starting included; a tool
that reaches the limit, or eight times as much by the clock of a busy machine, has no verdict. What counts is the note:
both verdicts, and what is right where ours is not. CrossHair comes with the extra `bench`; without it our side alone is
shown.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.measure import Figure, Row, Size

__all__ = ["run"]

CPU_S: Final = 30
_WALL_FACTOR: Final = 8  # of the limit, on a busy machine
_VESPER: Final = "from lyra.cli.main import vesper; vesper()"
_HEAD: Final = "node_id: case_v1\ntype: function\nintent: be decided\n"
_IMPORTS: Final = "from decimal import ROUND_HALF_EVEN, Decimal\nfrom typing import List\n\n\n"


class Case(NamedTuple):
    """One contract, as a node and as a function; `holds` is the truth about it."""

    what: str
    holds: bool
    node: str  # with `{contract}` where the postcondition stands
    contract: str
    function: str


_DISCOUNT: Final = """\
inputs:
  price: {{type: decimal, scale: 2, constraints: [positive, max: 1000000]}}
  percent: {{type: integer, min: 0, max: 90}}
outputs: {{total: {{type: decimal, scale: 2}}, saved: {{type: decimal, scale: 2}}}}
contracts: {{postconditions: ["{contract}"]}}
flow:
  - {{step: save, operation: arithmetic, expression: price * percent / 100, scale: 2, output: saved}}
  - {{step: pay, operation: arithmetic, expression: price - saved, output: total}}
"""
_DISCOUNT_FUNCTION: Final = '''\
def discount(cents: int, percent: int) -> Decimal:
    """
    pre: 0 < cents <= 100_000_000 and 0 <= percent <= 90
    post: {contract}
    """
    price = Decimal(cents).scaleb(-2)
    saved = (price * percent / 100).quantize(Decimal("0.01"), ROUND_HALF_EVEN)
    return price - saved
'''
_SUM: Final = """\
inputs: {{numbers: array<integer>}}
outputs: {{total: integer}}
contracts:
  preconditions: ["FORALL number IN numbers: number >= 0 AND number <= 1000"]
  postconditions: ["{contract}"]
flow:
  - {{step: start, operation: arithmetic, expression: "0", output: total}}
  - step: add_all
    operation: for_each
    input: numbers
    as: number
    steps: [{{step: add, operation: arithmetic, expression: total + number, output: total}}]
"""
_SUM_FUNCTION: Final = '''\
def add_all(numbers: List[int]) -> int:
    """
    pre: all(0 <= number <= 1000 for number in numbers)
    post: {contract}
    """
    total = 0
    for number in numbers:
        total += number
    return total
'''
_HALF: Final = """\
inputs: {{n: {{type: integer, min: 0, max: 1000000}}}}
outputs: {{half: integer}}
contracts: {{postconditions: ["{contract}"]}}
flow: [{{step: halve, operation: arithmetic, expression: "div(n, 2)", output: half}}]
"""
_HALF_FUNCTION: Final = '''\
def halve(n: int) -> int:
    """
    pre: 0 <= n <= 1_000_000
    post: {contract}
    """
    return n // 2
'''
_CARD: Final = """\
inputs: {{card: {{type: string, constraints: [{{pattern: "^[0-9]{{16}}$"}}]}}}}
outputs: {{shown: string}}
contracts: {{postconditions: ["{contract}"]}}
flow: [{{step: mask, operation: arithmetic, expression: "'************' + slice(card, -4)", output: shown}}]
"""
_CARD_FUNCTION: Final = '''\
def mask(card: str) -> str:
    """
    pre: len(card) == 16 and all(char in "0123456789" for char in card)
    post: {contract}
    """
    return "************" + card[-4:]
'''
CASES: Final = (
    Case(
        "a rounded discount: both parts are the price",
        True,
        _DISCOUNT,
        "total + saved == price",
        _DISCOUNT_FUNCTION.format(contract="__return__ + (Decimal(cents) / 100 - __return__) == Decimal(cents) / 100"),
    ),
    Case(
        "a rounded discount: something is left to pay",
        False,
        _DISCOUNT,
        "total > 0",
        _DISCOUNT_FUNCTION.format(contract="__return__ > 0"),
    ),
    Case(
        "a sum over a list: its bounds",
        True,
        _SUM,
        "total >= 0 AND total <= 1000 * COUNT(numbers)",
        _SUM_FUNCTION.format(contract="0 <= __return__ <= 1000 * len(numbers)"),
    ),
    Case(
        "a sum over a list: it is the sum",
        True,
        _SUM,
        "total == SUM(numbers)",
        _SUM_FUNCTION.format(contract="__return__ == sum(numbers)"),
    ),
    Case(
        "a sum over a list: the list is short",
        False,
        _SUM,
        "COUNT(numbers) <= 3",
        _SUM_FUNCTION.format(contract="len(numbers) <= 3"),
    ),
    Case(
        "half of a number: it is never seven",
        False,
        _HALF,
        "half != 7",
        _HALF_FUNCTION.format(contract="__return__ != 7"),
    ),
    Case(
        "half of a number: twice it is one less at most",
        True,
        _HALF,
        "n - half * 2 <= 1 AND half * 2 <= n",
        _HALF_FUNCTION.format(contract="0 <= n - __return__ * 2 <= 1"),
    ),
    Case(
        "a masked card: as long, with the same end",
        True,
        _CARD,
        "len(shown) == 16 AND ends_with(card, slice(shown, 12))",
        _CARD_FUNCTION.format(contract="len(__return__) == 16 and card.endswith(__return__[12:])"),
    ),
)


def run(size: Size) -> list[Row]:
    limit_s = size.of(CPU_S, 5)
    cases = CASES[: size.of(len(CASES), 1)]
    with tempfile.TemporaryDirectory() as folder:
        return [_row(case, Path(folder), limit_s) for case in cases]


def _row(case: Case, folder: Path, limit_s: int) -> Row:
    node = folder / "case.vsp"
    node.write_text(_HEAD + case.node.format(contract=case.contract))
    ours, text = _run(["-c", _VESPER, "prove", str(node), "--json"], folder, limit_s)
    found = [row for row in _results(text) if row["expression"] == case.contract]
    own = found[0]["verdict"] if found else "no verdict"
    truth = "proved" if case.holds else "refuted"
    is_right = own == truth
    note = f"{own}{'' if is_right else f', but {truth} is right'}"
    if find_spec("crosshair") is None:
        return Row(case.what, ours, note=f"{note}; CrossHair is not installed")
    module = folder / "case.py"
    module.write_text(_IMPORTS + case.function)
    options = ["--analysis_kind=PEP316", "--report_all", f"--per_condition_timeout={limit_s * _WALL_FACTOR}"]
    theirs, text = _run(["-m", "crosshair", "check", *options, str(module)], folder, limit_s)
    return Row(case.what, ours, "CrossHair", theirs, note=f"{note}; CrossHair: {_crosshair_verdict(text)}")


def _results(text: str) -> list[dict[str, str]]:
    try:
        rows: list[dict[str, str]] = json.loads(text)["results"]
    except (ValueError, KeyError):
        return []
    return rows


def _crosshair_verdict(text: str) -> str:
    if re.search(r": error: .*\bwhen calling\b", text):
        return "refuted"
    return "proved" if "Confirmed over all paths" in text else "unknown" if "Not confirmed" in text else "no verdict"


def _run(arguments: list[str], folder: Path, limit_s: int) -> tuple[Figure, str]:
    """Return the CPU time of a command with a limit of it, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s * _WALL_FACTOR,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s)),
        )
        printed = done.stdout + ("" if arguments[0] == "-c" else done.stderr)
    except subprocess.TimeoutExpired:
        printed = ""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Figure(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, "s"), printed
