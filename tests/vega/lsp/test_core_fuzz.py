"""Whatever the text and wherever the cursor: the core answers, and what it says lies inside the text."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from lyra.lsp.language import RenameRefused
from lyra.lsp.texts import Document, TextChange, format_edits
from lyra.vega.format.formatter import format_source
from lyra.vega.lsp.completion import complete
from lyra.vega.lsp.hover import hover, signature_help
from lyra.vega.lsp.language import colour_words, definition, diagnose, fixes_of, outline, references, rename
from lyra.vega.lsp.project import Project
from tests.cases import ALL

HERE = Path(__file__).parent.parent
TEXTS = [
    (HERE / "everything.vega").read_text(),
    *(path.read_text() for path in sorted((HERE.parent / "language").rglob("*.vega"))[::7]),
]
PIECES = [
    *("x", "\0", "\n", ";", "{", "}", '"', '"""', "//", "/*", "${", "::", ".", "spawn ", "agent ", "(", "[", "|", "🙂"),
    *("supervised by {", "match x {", "tool t(", 'import "', "catch ", "let x: ", "\r\n", "\ufeff", "=>", "<-"),
]
PATH = "/work/main.vega"


@pytest.mark.parametrize("seed", range(6))
def test_no_text_and_no_place_is_too_strange(seed):
    dice = random.Random(seed)
    project = Project()
    document = Document("file:///work/main.vega", PATH, dice.choice(TEXTS))
    project.put(document)
    for turn in range(25 if ALL else 9):
        text = document.text
        start = dice.randrange(len(text) + 1)
        end = min(len(text), start + dice.choice([0, 0, 2, 200]))
        document.apply(TextChange(text[:start] + dice.choice(PIECES) + text[end:]))
        project.forget_derived()
        ask(project, dice)
        if turn % 8 == 7:
            document.apply(TextChange(dice.choice(TEXTS)))
            project.forget_derived()


def ask(project: Project, dice: random.Random) -> None:
    known = project.analysis(PATH)
    assert known is not None
    text, size = known.text, len(known.text)
    for remark in diagnose(known, thorough=dice.random() < 0.2):
        assert 0 <= remark.at <= remark.end <= size
        for fix in fixes_of(remark, text):
            assert 0 <= fix.at <= fix.end <= size
    for token in colour_words(known):
        assert 0 <= token.at <= token.at + token.length <= size
    for entry in outline(known):
        assert 0 <= entry.at <= entry.name_at <= entry.name_end <= entry.end <= size
    format_edits(text, format_source)
    for _ in range(6):
        offset = dice.randrange(size + 1)
        complete(project, PATH, offset)
        signature_help(project, PATH, offset)
        shown = hover(project, PATH, offset)
        assert shown is None or 0 <= shown.at <= shown.end <= size
        definition(project, PATH, offset)
        for place in references(project, PATH, offset):
            assert 0 <= place.at < place.end <= size
        with contextlib.suppress(RenameRefused):
            rename(project, PATH, offset, "fresh_name")
