"""The glossary is true: its words are in the code where it says, and its retired words are names of nothing."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_structure import SAME_IDEA
from verify.structure.source_tree import SourceTree

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "glossary.md"
_CODE = re.compile(r"`([\w.]+)(?::(\w+))?`")
_DEFINITION = re.compile(r"^(class|(?:async )?def) (\w+)", re.MULTILINE)  # at the top level of a module
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Definition(NamedTuple):
    kind: str
    name: str
    module: str


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


@pytest.fixture(scope="module")
def definitions(tree: SourceTree) -> list[Definition]:
    """The classes and functions of all modules. What stands in a text as a definition does counts as one."""
    modules = tree.modules.values()
    return [
        Definition(match[0], match[1], module.name) for module in modules for match in _DEFINITION.findall(module.text)
    ]


def test_each_word_has_one_row() -> None:
    words = [term.word.lower() for term in TERMS]
    assert len(words) > 40
    assert sorted(set(words)) == sorted(words)
    assert not set(words) & set(RETIRED)
    assert len(RETIRED) > 15


@pytest.mark.parametrize("term", TERMS, ids=[term.word for term in TERMS])
def test_a_word_is_where_the_glossary_says(term: Term, tree: SourceTree, definitions: list[Definition]) -> None:
    """Its module and name exist; a class of that name is defined once, or is the same idea twice."""
    assert term.module in tree.modules
    if term.name is None:
        return
    assert hasattr(import_module(term.module), term.name)
    homes = [thing.module for thing in definitions if thing.kind == "class" and thing.name == term.name]
    if homes and term.name not in SAME_IDEA:
        assert homes == [term.module]


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_is_no_name(word: str, tree: SourceTree, definitions: list[Definition]) -> None:
    """No word of the name of a module or a class, and no whole name of a public function."""
    used = {name for name in tree.modules if word in name.rpartition(".")[2].split("_")}
    used |= {f"{thing.module}:{thing.name}" for thing in definitions if _has_word(thing, word)}
    assert used <= RETIRED[word], "not retired yet"
    assert used >= RETIRED[word], "the last column names what is gone"


def _has_word(thing: Definition, word: str) -> bool:
    if thing.kind != "class":
        return thing.name == word
    return word in [part.lower() for part in _WORD.findall(thing.name)]
