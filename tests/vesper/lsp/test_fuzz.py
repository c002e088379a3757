"""Whatever is in a text, each question is answered: hostile texts, and every way to break a real one."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from lyra.lsp.language import RenameRefused
from lyra.lsp.texts import Document, uri_of
from lyra.vesper.lsp.language import VesperLanguage
from tests import cases

from .nodes import FEE, HERE, NOTE

CORPUS = sorted((Path(__file__).parents[2] / "language" / "vesper").rglob("*.vsp"))
HOSTILE = [
    "",
    "\ufeff" + FEE,
    "\x00\x01",
    "\ud800",
    "- " * 500,
    "{" * 5_000,
    "[" * 5_000,
    "a:\n" + "".join(f"{' ' * depth}a:\n" for depth in range(300)),
    "node_id: &a [*a]",
    "node_id: !!python/object/apply:os.system [ls]",
    "metadata: {x: 1}\nflow: [{step: metadata, operation: arithmetic, expression: metadata}]",
    "flow: [{operation: arithmetic, expression: '" + "(" * 3_000 + "'}]",
    "flow: [{operation: arithmetic, expression: '" + "a+" * 30_000 + "a'}]",
    "flow:\n" + "- {operation: loop, condition: 'true', steps: [" * 40,
    "inputs: {? [a] : b, 1: 2, null: 3, true: x}\nflow: [{1: 2}]",
    "inputs:\n" + "".join(f"  a{number}: string\n" for number in range(3_000)),
    "node_id: a_v1\nnode_id: b_v1\n",
    "a: |\n  x\n\x85y\u2028z: {\n",
    FEE.replace("\n", "\r\n"),
    FEE.replace("\n", "\r"),
    FEE.replace("  ", "\t"),
]


def ask_everything(text: str, offsets: list[int]) -> None:
    language = VesperLanguage()
    language.texts.put(Document(uri_of("/work/nodes/note.vsp"), "/work/nodes/note.vsp", NOTE))
    language.texts.put(Document(uri_of(HERE), HERE, text))
    for remark in language.diagnose(HERE, thorough=True):
        assert 0 <= remark.at <= remark.end <= len(text)
        language.fixes(HERE, remark)
    language.outline(HERE)
    language.format(HERE)
    for offset in offsets:
        language.complete(HERE, offset)
        language.hover(HERE, offset)
        place = language.definition(HERE, offset)
        assert place is None or place.path != HERE or 0 <= place.at <= place.end <= len(text)
        language.references(HERE, offset, with_declaration=True)
        language.find_name(HERE, offset)
        with suppress(RenameRefused):
            language.rename(HERE, offset, "another_name")


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_has_answers(text):
    ask_everything(text, [0, len(text) // 2, len(text)])


def test_every_node_of_the_language_tests_has_answers():
    """At five places; `make test` takes one of them for every third node, by turns."""
    for number, path in enumerate(CORPUS if cases.ALL else CORPUS[::3]):
        text = path.read_text(encoding="utf-8")
        ask_everything(text, [len(text) * part // 4 for part in (range(5) if cases.ALL else (number % 5,))])


def test_a_broken_text_has_answers():
    """Cut off, with a piece taken out, with a piece put in twice."""
    draw = random.Random(33)
    for _ in range(60):
        start, end = sorted(draw.randrange(len(FEE)) for _ in range(2))
        text = draw.choice((FEE[:start], FEE[:start] + FEE[end:], FEE[:end] + FEE[start:]))
        ask_everything(text, [min(start, len(text)), len(text)])
