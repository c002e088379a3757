"""One text, looked at: its tree, tokens and names, the kinds of its expressions. Each is made when it is asked for.

An `Analysis` never changes; a changed text is a new one. A text that breaks off inside a string or comment has no tree
at all: then questions about names are answered from the text before, as `project` keeps it.
"""

from __future__ import annotations

from functools import cached_property

from lyra.vega.checker.checker import RULES, Load
from lyra.vega.checker.scope import KindRule, ModuleCheck
from lyra.vega.checker.types import ANY, STR, ValueKind, of_type
from lyra.vega.lsp.imports import ImportingChecker, Imports
from lyra.vega.lsp.index import SymbolIndex
from lyra.vega.lsp.reparse import reparsed
from lyra.vega.lsp.symbols import SourceSymbol
from lyra.vega.syntax import ast
from lyra.vega.syntax.lexer import Lexed, lex
from lyra.vega.syntax.parser import Parsed, parse_all
from lyra.vega.syntax.source import Diagnostic, Source


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
        quick = reparsed(before.parsed, before.text, self.text) if before is not None else None
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
        """What the checker says of the tree."""
        return ImportingChecker(self.source, self.load, self._imports).run(self.module.statements)

    def forget_kinds(self) -> None:
        """Find them out again when they are asked for: what is imported has changed."""
        self.__dict__.pop("kinds", None)

    def kind_of(self, symbol: SourceSymbol) -> ValueKind:
        """What is known of a symbol's value."""
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
        return of_type(written, agents, lambda *_: None)

    def imports(self) -> list[ast.Import]:
        """The Vega files this one names."""
        return [node for node in self.module.statements if isinstance(node, ast.Import) and node.kind == "vega"]

    def node_imports(self) -> list[ast.Import]:
        """The nodes that the file imports."""
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
