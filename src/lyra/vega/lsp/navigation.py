"""From a name to its declaration and to all its uses, across files; the outline of a file; giving a name another."""

from __future__ import annotations

import re
from typing import Final

from lyra.lsp.language import OutlineEntry, RenameRefused
from lyra.lsp.texts import Place
from lyra.vega.checker.types import TYPES
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.index import SourceSymbol, SymbolIndex
from lyra.vega.lsp.project import Project
from lyra.vega.stdlib.table import GLOBALS, LIBRARY
from lyra.vega.syntax import ast
from lyra.vega.syntax.lexer import KEYWORDS


def meaning(project: Project, path: str, offset: int) -> tuple[str, SourceSymbol] | None:
    """Return the symbol under an offset and the file that declares it."""
    index = project.index(path)
    if index is None:
        return None
    member = index.member_at(offset)
    if member is not None:
        target = project.meaning(member, path)
        if target is not None:
            return target
    use = index.use_at(offset)
    return None if use is None else (path, use.symbol)


def definition(project: Project, path: str, offset: int) -> Place | None:
    """Find where the name under an offset is declared; of an import, the file."""
    known = project.analysis(path)
    for node in known.imports() if known is not None else ():
        if node.at <= offset <= node.end:
            target = project.target(node.target, path)
            return Place(target, 0, 0) if project.text(target) is not None else None
    meant = meaning(project, path, offset)
    if meant is None:
        return None
    file, symbol = meant
    return Place(file, symbol.at, symbol.end)


def references(project: Project, path: str, offset: int, *, with_declaration: bool = True) -> list[Place]:
    """Everywhere a symbol is written, in this file and in those that import it."""
    target = meaning(project, path, offset)
    if target is None:
        return []
    file, symbol = target
    index = project.index(file)
    places = [Place(file, *span) for span in index.places(symbol)] if index is not None else []
    if not with_declaration:
        places = [place for place in places if place.at != symbol.at]
    owner = symbol.owner if symbol.role == "parameter" else symbol
    if owner is not None and owner.is_top and owner.role != "import":
        for other in project.files():
            if other != file:
                places += _elsewhere(project, other, file, symbol, owner)
    return places


def _elsewhere(project: Project, path: str, file: str, symbol: SourceSymbol, owner: SourceSymbol) -> list[Place]:
    """Return the uses in one other file; one that does not even hold the word is not read closely."""
    text = project.text(path)
    if text is None or symbol.name not in text or "import" not in text:
        return []
    index = project.index(path)
    parameter = symbol.name if symbol is not owner else ""
    return [
        Place(path, member.at, member.end)
        for member in (index.members if index is not None else ())
        if member.module is not None
        and member.name == owner.name
        and member.parameter == parameter
        and project.find_imported_file(member.module, path) == file
    ]


# ---------------- What a file declares, as a tree: the outline of an editor


def outline(analysis: Analysis) -> list[OutlineEntry]:
    return _entries(analysis.index, analysis.module.statements)


def _entries(index: SymbolIndex, nodes: list[ast.Statement]) -> list[OutlineEntry]:
    entries: list[OutlineEntry] = []
    for node in nodes:
        if isinstance(node, ast.Parallel):
            entries += _entries(index, node.body.statements)
        elif isinstance(node, ast.Test):
            entries.append(
                OutlineEntry(node.name or "test", "test", node.at, node.end, node.at, node.at + len("test"), [])
            )
        else:
            entry = _entry(index, node)
            if entry is not None:
                entries.append(entry)
    return entries


def _entry(index: SymbolIndex, node: ast.SyntaxNode) -> OutlineEntry | None:
    symbol = index.symbol_of(node)
    if symbol is None or not symbol.name:
        return None
    inside: list[OutlineEntry] = []
    parts: list[ast.SyntaxNode] = []
    if isinstance(node, ast.Agent):
        parts = list(node.tools)
    elif isinstance(node, ast.Supervisor):
        parts = list(node.children)
    elif isinstance(node, ast.Function):
        parts = [statement for statement in node.body.statements if isinstance(statement, ast.Function)]
    for part in parts:
        entry = _entry(index, part)
        if entry is not None:
            inside.append(entry)
    return OutlineEntry(symbol.name, symbol.role, node.at, node.end, symbol.at, symbol.end, inside)


# ---------------- Giving a symbol another name, everywhere at once, or saying why not
# A name is refused where it would change what the program means: the changed texts are read again, and every name in
# them must still mean the declaration it meant before.

_NAME: Final = re.compile(r"[^\W\d]\w*")


def prepare(project: Project, path: str, offset: int) -> tuple[Place, str] | None:
    """Return what would be renamed: its place under the offset and its name; None where nothing can be."""
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
    index = project.index(file)
    places = references(project, path, offset)
    if index is not None:
        _check_free(index, symbol, name, [place for place in places if place.path == file])
    for changed_file in dict.fromkeys(place.path for place in places):
        _check_same(project, changed_file, [place for place in places if place.path == changed_file], name)
    return places


def _nothing_here(project: Project, path: str) -> str:
    """Return why nothing can be renamed at a place: in a text that cannot be read whole, perhaps only for that
    reason."""
    known = project.analysis(path)
    if known is not None and known.parsed.problems:
        first = known.parsed.problems[0]
        return f"the file cannot be read whole, mend it first: line {first.line}: {first.message}"
    return "there is no name here that can be changed; names of the library stay as they are"


def _has_no_name(symbol: SourceSymbol) -> bool:
    """Tell whether a symbol is an import without `as`, which takes its name from the file."""
    return isinstance(symbol.node, ast.Import) and symbol.end - symbol.at != len(symbol.name)


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
