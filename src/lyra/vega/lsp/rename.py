"""Giving a symbol another name, everywhere at once, or saying why not.

A new name is refused when it is no name, when it is a keyword or belongs to the language, and when it would change what
the program means: the changed texts are read again, and every name in them must still mean the declaration it meant
before. So a word that is only reserved at some places (`async` behind `spawn`) is refused there and allowed elsewhere.
"""

from __future__ import annotations

import re
from typing import Final

from lyra.vega.checker.types import TYPES
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.index import SymbolIndex
from lyra.vega.lsp.navigation import meaning, references
from lyra.vega.lsp.project import Place, Project
from lyra.vega.lsp.symbols import SourceSymbol
from lyra.vega.stdlib.table import GLOBALS, LIBRARY
from lyra.vega.syntax import ast
from lyra.vega.syntax.tokens import KEYWORDS

_NAME: Final = re.compile(r"[^\W\d]\w*")


class RenameRefused(ValueError):
    """A name that cannot be given; its text says why."""


def prepare(project: Project, path: str, offset: int) -> tuple[Place, str] | None:
    """What would be renamed: its place under the offset and its name; None where nothing can be."""
    index = project.index(path)
    target = meaning(project, path, offset)
    if index is None or target is None or _has_no_name(target[1]):
        return None
    for written in (index.member_at(offset), index.use_at(offset)):
        if written is not None and index.text[written.at : written.end] == target[1].name:
            return Place(path, written.at, written.end), target[1].name
    return None


def rename(project: Project, path: str, offset: int, name: str) -> list[Place]:
    """Every place to write the new name at; Refused with the reason if it cannot be given."""
    target = meaning(project, path, offset)
    if target is None or prepare(project, path, offset) is None:
        raise RenameRefused(_nothing_here(project, path))
    file, symbol = target
    if name == symbol.name:
        return []
    _check_name(symbol, name)
    index = project.index(file)
    places = references(project, path, offset)
    if index is not None:
        _check_free(index, symbol, name, [place for place in places if place.path == file])
    for changed_file in dict.fromkeys(place.path for place in places):
        _check_same(project, changed_file, [place for place in places if place.path == changed_file], name)
    return places


def _nothing_here(project: Project, path: str) -> str:
    """Why nothing can be renamed at a place: in a text that cannot be read whole, perhaps only for that reason."""
    known = project.analysis(path)
    if known is not None and known.parsed.problems:
        first = known.parsed.problems[0]
        return f"the file cannot be read whole, mend it first: line {first.line}: {first.message}"
    return "there is no name here that can be changed; names of the library stay as they are"


def _has_no_name(symbol: SourceSymbol) -> bool:
    """An import without `as` takes its name from the file."""
    return isinstance(symbol.node, ast.Import) and symbol.end - symbol.at != len(symbol.name)


def _check_name(symbol: SourceSymbol, name: str) -> None:
    if not _NAME.fullmatch(name) or name == "_":
        raise RenameRefused(f"`{name}` is no name: letters, digits and `_`, with no digit first")
    if name in KEYWORDS:
        raise RenameRefused(f"`{name}` is a keyword; another name: `{name}_`")
    if name in GLOBALS and symbol.role != "child":
        raise RenameRefused(f"`{name}` is a function of the language")
    if name in LIBRARY and symbol.role == "import":
        raise RenameRefused(f"`{name}` is a module of the library")
    if name in TYPES and symbol.role == "agent":
        raise RenameRefused(f"`{name}` is a type, and an agent's name is one, too")


def _check_free(index: SymbolIndex, symbol: SourceSymbol, name: str, places: list[Place]) -> None:
    """Say who has the name already, where that can be said."""
    for place in places:
        other = index.visible(place.at).get(name)
        if other is not None and other is not symbol:
            article = "an" if other.role[0] in "aeiou" else "a"
            raise RenameRefused(
                f"`{name}` is already {article} {other.role} here, declared in line {_line(index, other.at)}"
            )


def _check_same(project: Project, path: str, places: list[Place], name: str) -> None:
    """Read the changed text: every name must mean what it meant."""
    before = project.analysis(path)
    assert before is not None, "a use was found in it"
    text = before.text
    for place in sorted(places, key=lambda place: -place.at):
        text = text[: place.at] + name + text[place.end :]
    after = Analysis(text, path)
    if len(after.parsed.problems) > len(before.parsed.problems) or _shape(after.index) != _shape(before.index):
        raise RenameRefused(f"`{name}` means something else at one of these places")


def _shape(index: SymbolIndex) -> tuple[list[int], int]:
    """Which declaration each name means, by number; and how many names there are of other files and the library."""
    order = {id(symbol): number for number, symbol in enumerate(sorted(index.symbols, key=lambda symbol: symbol.at))}
    return [order[id(use.symbol)] for use in index.uses], len(index.members)


def _line(index: SymbolIndex, offset: int) -> int:
    return index.text.count("\n", 0, offset) + 1
