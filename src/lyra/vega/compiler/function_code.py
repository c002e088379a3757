"""One function while it is compiled: its code so far, what its names mean, and the rules that compile its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from lyra.vega.compiler.emitter import Emitter
from lyra.vega.plan.names import ModuleScope, Symbol, Unit, Variable, complaint
from lyra.vega.plan.notes import Notes
from lyra.vega.plan.straight_line import Site
from lyra.vega.plan.summaries import Summaries
from lyra.vega.syntax import ast


class ProgramParts(Protocol):
    """What the functions of one program share; `compiler.Linker` is it."""

    host_names: frozenset[str]
    keep: list[Any]  # nodes that the compiler made; meanings go by id, so none may be collected
    notes: Notes
    summaries: Summaries

    def file(self, module: ModuleScope) -> int: ...
    def slot(self, variable: Variable) -> int: ...
    def function_of(self, symbol: Symbol) -> int: ...
    def function(self, module: ModuleScope, node: Any, unit: Unit, name: str, *, is_hidden: bool = False) -> int: ...
    def configuration(self, symbol: Symbol) -> int: ...
    def prelude(self, full: str) -> tuple[int, int, int]: ...
    def wrapper(self, module: str, name: str, count: int) -> int: ...
    def may_overlap(self, symbol: Symbol) -> bool: ...


class CompileRules(NamedTuple):
    """How each kind of node is compiled: what expressions, statements and blocks reach one another through."""

    expressions: Mapping[type, Callable[[FunctionCode, Any, int | None], int]]
    statements: Mapping[type, Callable[[FunctionCode, Any], None]]
    sequence: Callable[[FunctionCode, list[ast.Statement]], None]  # the statements of a block


class FunctionCode(Emitter):
    """The state that the functions of the compiler work on. `group` to `stops` are about the stretch of statements
    whose calls are made ahead of their turn, see `early_calls`."""

    def __init__(
        self, linker: ProgramParts, module: ModuleScope, unit: Unit, name: str, rules: CompileRules, *, is_hidden: bool
    ) -> None:
        super().__init__(module.source, name, linker.file(module))
        self.linker = linker
        self.module = module
        self.unit = unit
        self.expression_rules, self.statement_rules, self.sequence = rules
        self.is_hidden = is_hidden  # the library's own code
        self.captured: dict[int, int] = {}  # id(Variable) → register, for what the function captured
        self.defers = -1  # the register of the list of deferred closures
        self.group = -1  # the register of the group of early calls; -1 outside a stretch
        self.sites: dict[int, Site] = {}  # the early calls, by id(node)
        self.spawns: dict[int, int] = {}  # the numbers of the spawns, by id(node)
        self.level = 0  # the level of the pass that looks ahead; 0 in the stretch itself
        self.copies: dict[int, int] | None = None  # id(Variable) → register of its copy, in a pass that looks ahead
        self.stops: list[int] = []  # jumps that end the look ahead

    def target(self, into: int | None) -> int:
        """The register for a value: the one that is asked for, or a fresh one."""
        return self.register() if into is None else into

    def home(self, variable: Variable) -> int:
        """The register of a variable, or of its cell, in this function; in a look ahead that of its copy."""
        copy = None if self.copies is None else self.copies.get(id(variable))
        return self.captured.get(id(variable), variable.register) if copy is None else copy

    def fail(self, node: ast.SyntaxNode, message: str, hint: str = "") -> Exception:
        return complaint(self.source, node, message, hint)
