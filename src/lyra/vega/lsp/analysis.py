"""One text, looked at: its tree, tokens and names, the kinds of its expressions. Each is made when it is asked for.

An `Analysis` never changes; a changed text is a new one. A text that breaks off inside a string or comment has no tree
at all: then questions about names are answered from the text before, as `project` keeps it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from lyra.core.limits import VEGA_SOURCE_CHARS_MAX
from lyra.vega.checker.checker import RULES, Checker, Load
from lyra.vega.checker.scope import Binding, KindRule, ModuleCheck
from lyra.vega.checker.types import ANY, STR, ValueKind, kind_from_type
from lyra.vega.lsp.index import SourceSymbol, SymbolIndex
from lyra.vega.syntax import ast
from lyra.vega.syntax.cursor import Cursor
from lyra.vega.syntax.facts import every_node
from lyra.vega.syntax.lexer import Lexed, lex
from lyra.vega.syntax.parser import GRAMMAR, Parsed, parse_all, parse_module
from lyra.vega.syntax.source import Diagnostic, Source

# ---------------- Checking a file without checking again what it imports, as long as that has not changed
# What a file declares depends on its text and those it imports, so it is found out once for these texts. Files that
# import each other in a circle depend on which was asked first: they are checked every time.

# A file → all texts that what is known of it depends on, by path.
Reach = Callable[[str], "dict[str, str]"]


class _Imported(NamedTuple):
    texts: dict[str, str]
    members: dict[str, Binding] | None
    problems: list[Diagnostic]
    thrown: frozenset[str]
    has_foreign_tools: bool
    has_foreign_errors: bool


class Imports:
    """What is known of imported files."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.kept: dict[str, _Imported] = {}


class ImportingChecker(Checker):
    def __init__(
        self, source: Source, load: Load | None, imports: Imports | None = None, outer: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(source, load, {source.name: {}}, ())
        self.imports = imports
        self.outer = outer | {source.name}  # the files whose imports led here

    def check_import(self, source: Source) -> dict[str, Binding] | None:
        texts: dict[str, str] = self.imports.reach(source.name) if self.imports is not None else {}
        if self.imports is None or self.outer & texts.keys():
            return super().check_import(source)
        known = self.imports.kept.get(source.name)
        if known is None or not _is_same_text(known.texts, texts):
            known = self.imports.kept[source.name] = self._check_alone(source, texts)
        self.check.thrown |= known.thrown
        self.check.has_foreign_tools |= known.has_foreign_tools
        self.check.has_foreign_errors |= known.has_foreign_errors
        self.others += [problem for problem in known.problems if problem not in self.others]
        self.files[source.name] = known.members or {}
        return known.members

    def _check_alone(self, source: Source, texts: dict[str, str]) -> _Imported:
        """Return the file by itself, as if no file had been checked before it."""
        alone = ImportingChecker(Source(source.name, ""), self.load, self.imports, self.outer)
        alone.depth = self.depth
        members = Checker.check_import(alone, source)
        check = alone.check
        return _Imported(texts, members, alone.others, check.thrown, check.has_foreign_tools, check.has_foreign_errors)


def _is_same_text(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether these are the very same texts; equal ones in other places are read again, which is harmless."""
    return before.keys() == now.keys() and all(before[name] is now[name] for name in before)


class Analysis:
    """What can be said of one text; `load` finds the texts of its imports. `before` is the analysis of the text before
    the last change: its tree is used up."""

    def __init__(
        self,
        text: str,
        name: str,
        load: Load | None = None,
        *,
        imports: Imports | None = None,
        before: Analysis | None = None,
    ) -> None:
        self.source = Source(name, text)
        self.load = load
        self._imports = imports
        self._before = before

    @property
    def text(self) -> str:
        return self.source.text

    @property
    def name(self) -> str:
        return self.source.name

    @cached_property
    def lexed(self) -> Lexed:
        return lex(self.source)

    @cached_property
    def parsed(self) -> Parsed:
        before, self._before = self._before, None
        quick = reparse(before.parsed, before.text, self.text) if before is not None else None
        return quick or parse_all(self.source)

    @property
    def module(self) -> ast.Module:
        return self.parsed.module

    @cached_property
    def index(self) -> SymbolIndex:
        return SymbolIndex(self.text, self.lexed.tokens, self.module)

    @cached_property
    def kinds(self) -> dict[int, ValueKind]:
        """The kind of every expression, by the node's id; what is wrong with the program does not matter here."""
        checker = _KindRecorder(self.source, self.load, self._imports)
        checker.run(self.module.statements)
        return checker.kinds

    def check(self) -> list[Diagnostic]:
        """Run the checker over the tree."""
        return ImportingChecker(self.source, self.load, self._imports).run(self.module.statements)

    def forget_kinds(self) -> None:
        """Find them out again when they are asked for: what is imported has changed."""
        self.__dict__.pop("kinds", None)

    def kind_of(self, symbol: SourceSymbol) -> ValueKind:
        """Return what is known of a symbol's value."""
        node = symbol.node
        if isinstance(node, (ast.Let, ast.Const, ast.Parameter)) and node.type is not None:
            return self._kind_of_type(node.type)
        if isinstance(node, (ast.Let, ast.Const)) and node.value is not None:
            return self.kinds.get(id(node.value), ANY)
        if isinstance(node, ast.ForIn):
            kind = self.kinds.get(id(node.source), ANY)
            return STR if kind.name == "str" else kind.inner[0] if kind.name == "list" and kind.inner else ANY
        if isinstance(node, ast.Catch):
            return STR
        return ValueKind("function") if symbol.role in ("function", "tool") else ANY

    def _kind_of_type(self, written: ast.Type) -> ValueKind:
        agents = {node.name for node in self.module.statements if isinstance(node, ast.Agent)}
        return kind_from_type(written, agents, lambda *_: None)

    def imports(self) -> list[ast.Import]:
        """Return the Vega files this one names."""
        return [node for node in self.module.statements if isinstance(node, ast.Import) and node.kind == "vega"]

    def node_imports(self) -> list[ast.Import]:
        """Return the nodes that the file imports."""
        return [node for node in self.module.statements if isinstance(node, ast.Import) and node.kind == "node"]


class _KindRecorder(ImportingChecker):
    """A checker that keeps the kind of each expression, by the node's id."""

    def __init__(self, source: Source, load: Load | None, imports: Imports | None) -> None:
        super().__init__(source, load, imports)
        self.kinds: dict[int, ValueKind] = {}
        self.check.kind_rules = {node: self._recording(rule) for node, rule in RULES.kinds.items()}

    def _recording(self, rule: KindRule) -> KindRule:
        def record(check: ModuleCheck, node: ast.Expression) -> ValueKind:
            kind = self.kinds[id(node)] = rule(check, node)
            return kind

        return record


# ---------------------------------------------------------------- reparse
# The tree of a changed text, made from the one before: only the statements around the change are read again.
# Statements before the change stay, those behind it move. If the piece between is wrong in any way, the whole text is
# read, so that mistakes are told as ever. The old tree becomes part of the new one and is not to be used again.


def reparse(before: Parsed, old: str, new: str) -> Parsed | None:
    """Return the tree of `new`, or None where it has to be read as a whole."""
    statements = before.module.statements
    if before.problems or not statements or len(new) > VEGA_SOURCE_CHARS_MAX:
        return None
    # Count the characters both begin with; by halving, since slices compare quicker than characters in a loop.
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    same = low
    same_end = _common_end(old, new, same)
    # The statement before the change is read again, too: an `else` may follow it now.
    first = max(0, bisect_left(statements, same, key=lambda node: node.end) - 1)
    last = bisect_left(statements, len(old) - same_end + 1, key=lambda node: node.at)
    while last < len(statements) and old[statements[last].at - 1] != "\n":
        last += 1  # so that no word, string or comment of the piece can reach into it
    start = statements[first].at if first < min(last, len(statements)) and first else 0
    kept = first if start else 0
    old_end = statements[last].at if last < len(statements) else len(old)
    moved = len(new) - len(old)
    piece = Source("", new[start : old_end + moved])
    lexed = lex(piece)
    if lexed.problems or lexed.cut_off:
        return None
    cursor = Cursor(piece, lexed.tokens, GRAMMAR)
    read_again = parse_module(cursor)
    if cursor.problems:
        return None
    _move(read_again, start)
    _move(statements[last:], moved)
    comments = [
        *(comment for comment in before.module.comments if comment[0] < start),
        *((offset + start, text) for offset, text in lexed.comments),
        *((offset + moved, text) for offset, text in before.module.comments if offset >= old_end),
    ]
    module = ast.Module([*statements[:kept], *read_again, *statements[last:]], comments, at=0, end=len(new))
    return Parsed(module, [])


def _common_end(old: str, new: str, start: int) -> int:
    """Count the characters both end with, behind the common start."""
    low, high = 0, min(len(old), len(new)) - start
    while low < high:
        middle = (low + high + 1) // 2
        if old[len(old) - middle :] == new[len(new) - middle :]:
            low = middle
        else:
            high = middle - 1
    return low


def _move(nodes: Sequence[ast.SyntaxNode], by: int) -> None:
    if by == 0:
        return
    for node in every_node(nodes):
        node.at += by
        node.end += by
        places: dict[str, int] | None = getattr(node, "places", None)
        if places:
            for name in places:
                places[name] += by
