"""The tree of a changed text is the same, whether it was made from the one before or read as a whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lyra.vega.lsp.analysis import reparse
from lyra.vega.syntax.lexer import Lexed, lex
from lyra.vega.syntax.parser import parse_all
from lyra.vega.syntax.source import Source
from tests.cases import cases, first

EVERYTHING = (Path(__file__).parent.parent / "everything.vega").read_text()
PIECES = [
    *("x", " ", "\n", ";", "{", "}", '"', "//", "/*", "*/", "else { }", "\n// a remark\n", "let y = 1;\n", "(", "$"),
    *("fn f() { return 1; }\n", "if true { }\n", "else", "catch Error { }", "${", "\ufeff", "agent A { }\n", "é🙂"),
]


def whole(text: str):
    return parse_all(Source("", text))


def changed(text: str, dice: random.Random) -> str:
    start = dice.randrange(len(text) + 1)
    end = min(len(text), start + dice.choice([0, 0, 1, 3, 30]))
    return text[:start] + dice.choice(PIECES) + text[end:]


@pytest.mark.parametrize("seed", first(range(8), 4))
def test_a_changed_text_reads_the_same_either_way(seed):
    """Hundreds of random changes, one after another: trees, places and comments are equal, or there is no short way."""
    dice = random.Random(seed)
    text, quick = EVERYTHING, 0
    before = whole(text)
    for _ in range(max(60, cases(240))):
        new = changed(text, dice)
        full = whole(new)
        tree = reparse(before, text, new)
        if tree is None:
            before = whole(text)
        else:
            quick += 1
            assert tree.module == full.module, (text, new)
            assert full.problems == []
        if not full.problems:
            text, before = new, full
    assert quick > 5


def test_only_the_piece_around_the_change_is_read(monkeypatch):
    text = "".join(f"fn f{number}() {{ return {number}; }}\n" for number in range(100))
    before = whole(text)
    read = []

    def noted(source: Source) -> Lexed:
        read.append(source.text)
        return lex(source)

    monkeypatch.setattr("lyra.vega.lsp.analysis.lex", noted)
    tree = reparse(before, text, text.replace("return 50;", "return 50 + 1;"))
    assert tree is not None
    assert len(tree.module.statements) == 100
    assert read == ["fn f49() { return 49; }\nfn f50() { return 50 + 1; }\n"]


def test_an_else_that_is_added_behind_a_statement_belongs_to_it():
    old = "let a = 1;\nif a == 1 { }\n\nlet b = 2;\n"
    new = "let a = 1;\nif a == 1 { }\nelse { a = 3; }\nlet b = 2;\n"
    tree = reparse(whole(old), old, new)
    assert tree is not None
    assert tree.module == whole(new).module


def test_a_wrong_piece_is_left_to_who_reads_the_whole():
    old = "let a = 1;\nlet b = 2;\n"
    assert reparse(whole(old), old, 'let a = 1;\nlet b = "2;\n') is None
    assert reparse(whole(old), old, "let a = 1;\nlet b = ;\n") is None
