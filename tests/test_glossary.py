"""The glossary is true: its words are in the code where it says, and its retired words are names of nothing."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_structure import SAME_IDEA
from verify.structure.source_tree import Module, SourceTree

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "glossary.md"
_CODE = re.compile(r"`([\w.]+)(?::(\w+))?`")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Term(NamedTuple):
    word: str
    module: str
    name: str | None


def _rows(columns: int) -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in rows if len(row) == columns and row[0] not in ("word", "retired")]


def _terms() -> list[Term]:
    terms = []
    for word, _, code, _ in _rows(4):
        match = _CODE.fullmatch(code)
        assert match, f"{word}: {code}"
        terms.append(Term(word, match[1], match[2]))
    return terms


TERMS = _terms()
RETIRED = {word: {match[1] + ":" + match[2] for match in _CODE.finditer(stays)} for word, _, stays in _rows(3)}


@pytest.fixture(scope="module")
def tree() -> SourceTree:
    return SourceTree()


def test_each_word_has_one_row() -> None:
    words = [term.word.lower() for term in TERMS]
    assert len(words) > 40
    assert sorted(set(words)) == sorted(words)
    assert not set(words) & set(RETIRED)
    assert len(RETIRED) > 15


@pytest.mark.parametrize("term", TERMS, ids=[term.word for term in TERMS])
def test_a_word_is_where_the_glossary_says(term: Term, tree: SourceTree) -> None:
    """Its module and name exist; a class of that name is defined once, or is the same idea twice."""
    assert term.module in tree.modules
    if term.name is None:
        return
    assert hasattr(import_module(term.module), term.name)
    homes = tree.files_by_class().get(term.name, [])
    if homes and term.name not in SAME_IDEA:
        assert homes == [term.module]


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_is_no_name(word: str, tree: SourceTree) -> None:
    """No word of the name of a module or a class, and no whole name of a public function."""
    used = {name for module in tree.modules.values() for name in _uses(word, module)}
    assert used <= RETIRED[word], "not retired yet"
    assert used >= RETIRED[word], "the last column names what is gone"


def _uses(word: str, module: Module) -> list[str]:
    uses = []
    if word in module.name.rpartition(".")[2].split("_"):
        uses.append(module.name)
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            is_used = word in [part.lower() for part in _WORD.findall(node.name)]
        else:
            is_used = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == word
        if is_used:
            uses.append(f"{module.name}:{getattr(node, 'name', '')}")
    return uses
