"""Any file is a program or an error of Lyra's: nothing else is raised, and nothing is run."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from lyra.errors import LyraError
from lyra.vesper.check import check_text, program_of
from lyra.vesper.nodes import load
from tests.cases import cases

FILES = sorted((Path(__file__).parent.parent / "files").glob("*.vsp"))
PIECES = [
    "",
    " ",
    "  ",
    "\n",
    ":",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "'",
    '"',
    "|",
    ">",
    "&a",
    "*a",
    "!!x",
    "#",
    "null",
    "true",
    "1.5",
    "-1",
    "99999999999999999999",
    "1e5",
    "[]",
    "{}",
    "{x: 1}",
    "NOT ",
    "FORALL x: ",
    "old(",
    "SUM(",
    "{n}",
    "{{",
    "\0",
    "\t",
    "é",
    "\u2028",
    "\ud800",
    "__import__('os')",
    "step",
    "operation",
    "then:",
    "array<",
    ".length",
    "=> ",
    "enum[",
]
ROUNDS = cases(700)


def mutated(text: str, source: random.Random) -> str:
    for _ in range(source.randrange(1, 4)):
        kind = source.randrange(5)
        start = source.randrange(len(text) + 1)
        end = min(len(text), start + source.randrange(12))
        lines = text.split("\n")
        if kind == 0:
            text = text[:start] + source.choice(PIECES) + text[start:]
        elif kind == 1:
            text = text[:start] + text[end:]
        elif kind == 2:
            text = text[:start] + source.choice(PIECES) + text[end:]
        elif kind == 3:
            first, second = source.randrange(len(lines)), source.randrange(len(lines))
            lines[first], lines[second] = lines[second], lines[first]
            text = "\n".join(lines)
        else:
            index = source.randrange(len(lines))
            key, colon, _value = lines[index].partition(":")
            if colon:
                lines[index] = f"{key}: {source.choice(PIECES)}"
            text = "\n".join(lines)
    return text


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_mutated_file_gives_only_errors_of_lyra(file: Path) -> None:
    source = random.Random(file.stem)
    text = file.read_text()
    lines = text.count("\n") + 3
    for _ in range(ROUNDS // len(FILES)):
        wrong = mutated(text, source)
        for issue in check_text(wrong):
            assert issue.message
            assert 1 <= issue.line <= lines + wrong.count("\n") + wrong.count("\u2028")
            assert issue.column >= 1
        with contextlib.suppress(LyraError):
            program_of(load(wrong + "\n"))


def test_hostile_texts_are_data() -> None:
    """A template or an expression runs nothing: a call of an unknown function is an error."""
    for hostile in (
        "{__import__('os').getcwd()}",
        "{().__class__}",
        "{open('/etc/passwd').read()}",
        "{n.__class__.__mro__}",
    ):
        text = (
            "node_id: a_v1\ntype: function\nintent: hostile\ninputs: {n: integer}\noutputs: {r: any}\n"
            f'flow:\n  - {{step: r, operation: string_template, template: "{hostile}"}}\n'
        )
        assert [issue for issue in check_text(text) if issue.severity == "error"]
