"""Vega as a `Language` of the language server: each question is asked of the module that answers it.

Mistakes are found here: the remarks of parser and checker, and what imports bring with them, told at the import.

A name leads to its declaration and all its uses across files, and may be given another.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final

from lyra.core.imported_node import NodeFile
from lyra.errors import SourceError
from lyra.lsp.language import (
    Coloured,
    Elsewhere,
    Fix,
    Hover,
    Item,
    Language,
    OutlineEntry,
    Remark,
    RenameRefused,
    SignatureHelp,
    word_fixes,
)
from lyra.lsp.texts import Place, format_edits
from lyra.vega.checker.checker import Load
from lyra.vega.checker.types import TYPES
from lyra.vega.format.formatter import format_source
from lyra.vega.lsp import completion, hover
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.index import SourceSymbol, SymbolIndex
from lyra.vega.lsp.project import Project
from lyra.vega.stdlib.table import GLOBALS, LIBRARY
from lyra.vega.syntax import ast
from lyra.vega.syntax.lexer import KEYWORDS, Tokens
from lyra.vega.syntax.source import Diagnostic, Source

COLOUR_TYPES: Final = (
    *("namespace", "type", "class", "parameter", "variable", "property", "function", "method", "keyword", "event"),
)
MODIFIERS: Final = ("declaration", "readonly", "defaultLibrary")

_ROLES: Final[dict[str, str]] = {
    "agent": "class",
    "supervisor": "class",
    "child": "property",
    "constant": "variable",
    "function": "function",
    "import": "namespace",
    "parameter": "parameter",
    "tool": "function",
    "variable": "variable",
}


class VegaLanguage(Language):
    name = "vega"
    triggers: ClassVar = (".", ":", '"', "/")
    colour_types: ClassVar = COLOUR_TYPES
    colour_modifiers: ClassVar = MODIFIERS

    def __init__(self, read_node: Callable[[str, str], NodeFile] | None = None) -> None:
        self.project = Project(read_node=read_node)
        super().__init__(self.project)
        self._lenses: dict[str, tuple[dict[str, str | None], list[tuple[int, str]]]] = {}

    def forget(self, path: str) -> None:
        self._lenses.pop(path, None)

    def depends_on(self, path: str, changed: str) -> bool:
        return changed in self.project.reach(path)

    def diagnose(self, path: str, *, thorough: bool) -> list[Remark]:
        known = self.project.analysis(path)
        return diagnose(known, thorough=thorough) if known is not None else []

    def fixes(self, path: str, remark: Remark) -> list[Fix]:
        return fixes_of(remark, self.project.text(path) or "")

    def hover(self, path: str, offset: int) -> Hover | None:
        return hover.hover(self.project, path, offset)

    def signature_help(self, path: str, offset: int) -> SignatureHelp | None:
        return hover.signature_help(self.project, path, offset)

    def definition(self, path: str, offset: int) -> Place | None:
        return definition(self.project, path, offset)

    def references(self, path: str, offset: int, *, with_declaration: bool) -> list[Place]:
        return references(self.project, path, offset, with_declaration=with_declaration)

    def outline(self, path: str) -> list[OutlineEntry]:
        known = self.project.analysis(path)
        return outline(known) if known is not None else []

    def colours(self, path: str) -> list[Coloured]:
        known = self.project.analysis(path)
        return colour_words(known) if known is not None else []

    def complete(self, path: str, offset: int) -> list[Item]:
        return completion.complete(self.project, path, offset)

    def format(self, path: str) -> list[tuple[int, int, str]]:
        return format_edits(self.project.text(path) or "", format_source)

    def find_name(self, path: str, offset: int) -> tuple[Place, str] | None:
        return prepare(self.project, path, offset)

    def rename(self, path: str, offset: int, name: str) -> list[Place]:
        return rename(self.project, path, offset, name)

    async def lenses(self, path: str) -> list[tuple[int, str]]:
        """Return what overlaps in a file, by line: the plan of a whole program, made in a thread and kept for its
        texts."""
        analysis = self.project.analysis(path)
        if analysis is None or analysis.parsed.problems:
            return []
        texts, load = self.project.snapshot_texts(path)
        known = self._lenses.get(path)
        if known is None or known[0] != texts:
            lines = await asyncio.to_thread(overlaps, analysis.text, path, load)
            known = self._lenses[path] = (texts, lines)
        return known[1]


# ---------------- Lines above calls that say what they overlap with, from the plan of automatic parallelism


def overlaps(text: str, name: str, load: Load | None = None) -> list[tuple[int, str]]:
    """(line from 1, text) for every call that may run beside others, in order of place. It takes a while for a long
    text, and it changes no shared state, so a thread may ask for it."""
    try:
        from lyra.vega.compiler.compiler import plan_of  # an editor asks for it when the first text is open

        groups = plan_of(text, name, load=load).to_data()["groups"]
    except (ImportError, SourceError):
        return []
    return sorted(
        {
            (int(call["line"]), _text(call, group["calls"]))
            for group in groups
            for call in group["calls"]
            if call["file"] == name
        }
    )


def _text(call: dict[str, Any], group: list[dict[str, Any]]) -> str:
    beside = ["the other turns of its loop"] if call["in_loop"] else []
    for file, line in sorted({(other["file"], other["line"]) for other in group} - {(call["file"], call["line"])}):
        beside.append(f"line {line}" if file == call["file"] else f"{file.rpartition('/')[2]}:{line}")
    return f"overlaps with {', '.join(beside or ['another call of this line'])}"


# ---------------- Colours that know the program: an agent is not a variable, a parameter no function
# Words alone: strings, numbers and comments are the grammar's. A token never spans lines.


def colour_words(analysis: Analysis) -> list[Coloured]:
    """Every word that has a meaning, in order of place."""
    index = analysis.index
    tokens: dict[int, Coloured] = {}

    def put(offset: int, length: int, kind: str, *modifiers: str) -> None:
        if offset >= 0 and length > 0:
            tokens[offset] = Coloured(offset, length, kind, modifiers)

    _keywords(analysis.lexed.tokens, put)
    for offset, (_, name) in index.settings.items():
        put(offset, len(name), "property")
    for offset, name in index.types:
        put(offset, len(name), "type", "defaultLibrary")
    for offset, name in index.errors:
        put(offset, len(name), "type")
    for offset, name in index.modules:
        put(offset, len(name), "namespace", *(("defaultLibrary",) if name in LIBRARY else ()))
    for node in index.methods:
        offset = analysis.text.find(node.name, node.target.end, node.end)
        put(offset, len(node.name), "method" if isinstance(node, ast.MethodCall) else "property")
    for member in index.members:
        kind = "parameter" if member.parameter else "function"
        put(member.at, member.end - member.at, kind, *(("defaultLibrary",) if member.module is None else ()))
    for use in index.uses:
        if analysis.text[use.at : use.end] == use.symbol.name:
            modifiers = ["declaration"] if use.at == use.symbol.at else []
            modifiers += ["readonly"] if use.symbol.role == "constant" else []
            put(use.at, use.end - use.at, _ROLES[use.symbol.role], *modifiers)
    return [tokens[offset] for offset in sorted(tokens)]


def _keywords(tokens: Tokens, put: object) -> None:
    assert callable(put)
    for kind, value, offset in zip(tokens.kinds, tokens.values, tokens.starts, strict=True):
        if kind in KEYWORDS:
            put(offset, len(kind), "keyword")
        elif kind == "template":
            for part in value:
                if isinstance(part, Tokens):
                    _keywords(part, put)


def diagnose(analysis: Analysis, *, thorough: bool = False) -> list[Remark]:
    """Every remark about a text, in order of place."""
    problems = list(analysis.parsed.problems)
    if not problems:
        problems = analysis.check()
        if thorough and not any(problem.is_error for problem in problems):
            problems += _compile_problems(analysis)
    own = [_remark(problem, analysis.source) for problem in problems if problem.file == analysis.name]
    others = [problem for problem in problems if problem.file != analysis.name]
    return sorted(own + _import_problems(analysis, others), key=lambda remark: remark.at)


def _remark(problem: Diagnostic, source: Source) -> Remark:
    offset = max(0, min(problem.at, len(source.text)))
    end = max(offset, min(problem.end, len(source.text)))
    line_end = source.text.find("\n", offset)
    if 0 <= line_end < end:  # an editor underlines the line it begins on, not the whole block behind it
        end = max(offset, line_end)
    return Remark(offset, end, problem.message, problem.hint, problem.severity)


def _compile_problems(analysis: Analysis) -> list[Diagnostic]:
    """Return the problems that only the compiler sees."""
    from lyra.vega.compiler.compiler import compile_module

    try:
        compile_module(analysis.module, analysis.source, load=analysis.load)
    except SourceError as error:
        fields = error.fields
        if fields.get("problems"):
            return list(fields["problems"])
        file, line, column = (str(fields.get("file")), int(fields.get("line") or 1), int(fields.get("column") or 1))
        starts = analysis.source.starts
        offset = starts[min(line, len(starts)) - 1] + column - 1 if file == analysis.name else 0
        return [
            Diagnostic(
                file=file,
                line=line,
                column=column,
                message=error.message,
                hint=error.hint or "",
                at=offset,
                end=offset + 1,
            )
        ]
    return []


def _import_problems(analysis: Analysis, problems: list[Diagnostic]) -> list[Remark]:
    """Return the mistakes of other files, at the imports that lead to them."""
    if not problems:
        return []
    by_file: dict[str, list[Diagnostic]] = {}
    for problem in problems:
        by_file.setdefault(problem.file, []).append(problem)
    imports = [(node, _find_reachable(node, analysis)) for node in analysis.imports()]
    remarks = []
    for file, told in by_file.items():
        node = next((node for node, names in imports if file in names), imports[0][0] if imports else None)
        offset = analysis.text.find('"', node.at) if node is not None else 0
        end = offset + len(node.target) + 2 if node is not None else 1
        count = f"{len(told)} mistakes" if len(told) > 1 else "a mistake"
        there = tuple(Elsewhere(file, mistake.line, mistake.column, mistake.message) for mistake in told[:5])
        remarks.append(
            Remark(offset, end, f"`{file.rpartition('/')[2]}` has {count}: {told[0].message}", elsewhere=there)
        )
    return remarks


def _find_reachable(node: ast.Import, analysis: Analysis) -> set[str]:
    """Return the files that one import leads to."""
    files: set[str] = set()
    todo: list[tuple[str, str]] = [(node.target, analysis.name)]
    while todo and analysis.load is not None:
        loaded = analysis.load(*todo.pop())
        if loaded is not None and loaded[0] not in files and loaded[0] != analysis.name:
            files.add(loaded[0])
            inner = Analysis(loaded[1], loaded[0], analysis.load)
            todo += [(import_node.target, loaded[0]) for import_node in inner.imports()]
    return files


def fixes_of(remark: Remark, text: str) -> list[Fix]:
    """Return what would mend it, where that is certain enough; of several words that may be meant, one fix each."""
    if remark.message.startswith("missing `;`"):
        return [Fix(remark.at, remark.at, ";", "Add `;`")]
    return word_fixes(remark, text)


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
