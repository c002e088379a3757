"""Vega as a `Language` of the language server: each question is asked of the module that answers it.

Mistakes are found here: the remarks of parser and checker, and what imports bring with them, told at the import."""

from __future__ import annotations

import asyncio
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
    SignatureHelp,
    word_fixes,
)
from lyra.lsp.texts import Place, format_edits
from lyra.vega.checker.checker import Load
from lyra.vega.format.formatter import format_source
from lyra.vega.lsp import completion, hover, navigation
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.project import Project
from lyra.vega.stdlib.table import LIBRARY
from lyra.vega.syntax import ast
from lyra.vega.syntax.lexer import KEYWORDS, Tokens
from lyra.vega.syntax.source import Diagnostic, Source

TYPES: Final = (
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
    colour_types: ClassVar = TYPES
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
        return navigation.definition(self.project, path, offset)

    def references(self, path: str, offset: int, *, with_declaration: bool) -> list[Place]:
        return navigation.references(self.project, path, offset, with_declaration=with_declaration)

    def outline(self, path: str) -> list[OutlineEntry]:
        known = self.project.analysis(path)
        return navigation.outline(known) if known is not None else []

    def colours(self, path: str) -> list[Coloured]:
        known = self.project.analysis(path)
        return colour_words(known) if known is not None else []

    def complete(self, path: str, offset: int) -> list[Item]:
        return completion.complete(self.project, path, offset)

    def format(self, path: str) -> list[tuple[int, int, str]]:
        return format_edits(self.project.text(path) or "", format_source)

    def find_name(self, path: str, offset: int) -> tuple[Place, str] | None:
        return navigation.prepare(self.project, path, offset)

    def rename(self, path: str, offset: int, name: str) -> list[Place]:
        return navigation.rename(self.project, path, offset, name)

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
