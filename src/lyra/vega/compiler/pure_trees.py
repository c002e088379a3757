"""The tree of a pure function: what the compiler keeps of its source beside the register code.

A tree is lists of plain values, so that it travels in a `.vgb`. Statements:

    ["set", slot, value]                      ["store", slot, index, value]
    ["if", condition, then, otherwise]        ["while", condition, body, step]
    ["each", slot, source, body]              ["return", value]
    ["do", value]   ["break"]   ["continue"]  ["give up"]          a throw, say

and values:

    ["constant", value]    ["slot", slot]     ["binary", operator, left, right]   ["not", value]   ["negate", value]
    ["list", values]       ["map", pairs]     ["index", whole, index]             ["length", value]
    ["join", values]       ["call", function, values]     ["library", name, values]     ["push", slot, value]
    ["variant", is_error, value]

Slots are the function's variables, parameters first. A list or map is changed only through a slot that never holds
anything but what the function made itself: that is the mutation check, and what fails it has no tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.core.limits import VEGA_TREE_DEPTH_MAX, VEGA_TREE_NODES_MAX
from lyra.vega.bytecode.pure_shapes import CHANGING, CONSTANTS, LEFT_OUT, changes_only_its_own
from lyra.vega.compiler.emitter import ProgramParts
from lyra.vega.plan.names import ModuleScope, Symbol, Unit, Variable
from lyra.vega.stdlib.table import GLOBALS, LIBRARY
from lyra.vega.syntax import ast


class _Unfit(Exception):
    """This function has no tree."""


def tree_of(linker: ProgramParts, module: ModuleScope, unit: Unit, node: Any) -> list[Any] | None:
    """Return the tree of a function: [how many parameters, how many slots, statements, the functions it calls, whether
    it has a loop], or None."""
    if not isinstance(node, (ast.Function, ast.Lambda)) or unit.captures or unit.has_defer:
        return None
    if any(parameter.default is not None for parameter in node.parameters):
        return None
    try:
        return _Tree(linker, module).function(node)
    except _Unfit:
        return None


class _Tree:
    def __init__(self, linker: ProgramParts, module: ModuleScope) -> None:
        self.linker = linker
        self.module = module
        self.slots: dict[int, int] = {}
        self.calls: set[int] = set()
        self.has_loop = False
        self.depth = 0
        self.left = VEGA_TREE_NODES_MAX

    def function(self, node: ast.Function | ast.Lambda) -> list[Any]:
        for parameter in node.parameters:
            self.slot(self.module.declared[id(parameter)])
        body = self.block(node.body)
        if not changes_only_its_own(len(node.parameters), body):
            raise _Unfit
        return [len(node.parameters), len(self.slots), body, sorted(self.calls), self.has_loop]

    def slot(self, variable: Variable) -> int:
        if variable.is_global or variable.is_cell or variable.is_captured:
            raise _Unfit
        return self.slots.setdefault(id(variable), len(self.slots))

    # ------------------------------------------------------------ statements

    def block(self, block: ast.Block) -> list[Any]:
        self.depth += 1
        if self.depth > VEGA_TREE_DEPTH_MAX:
            raise _Unfit
        statements = [part for statement in block.statements for part in self.statement(statement)]
        self.depth -= 1
        return statements

    def statement(self, node: ast.Statement) -> list[Any]:
        rule = _STATEMENTS.get(type(node))
        self.left -= 1
        if rule is None or self.left < 0:
            raise _Unfit
        return rule(self, node)

    def let(self, node: ast.Let | ast.Const) -> list[Any]:
        variable = self.module.declared[id(node)]
        if variable.literal is not None:
            return []
        if variable.is_const:
            raise _Unfit  # may be read above its place
        value = ["constant", None] if node.value is None else self.value(node.value)
        return [["set", self.slot(variable), value]]

    def assign(self, node: ast.Assign) -> list[Any]:
        target = node.target
        if type(target) is ast.Name:
            meaning = self.module.meanings.get(id(target))
            if not isinstance(meaning, Variable):
                raise _Unfit
            return [["set", self.slot(meaning), self.value(node.value)]]
        if type(target) is not ast.Index:
            raise _Unfit
        slot = self.require_own_slot(target.target)
        return [["store", slot, self.value(target.index), self.value(node.value)]]

    def require_own_slot(self, node: ast.Expression) -> int:
        """Return the slot of something that is about to be changed."""
        meaning = self.module.meanings.get(id(node))
        if type(node) is not ast.Name or not isinstance(meaning, Variable) or meaning.literal is not None:
            raise _Unfit
        return self.slot(meaning)

    def if_(self, node: ast.If) -> list[Any]:
        otherwise: list[Any] = []
        if node.otherwise is not None:
            self.depth += 1
            if self.depth > VEGA_TREE_DEPTH_MAX:
                raise _Unfit
            otherwise = self.if_(node.otherwise) if type(node.otherwise) is ast.If else self.block(node.otherwise)  # type: ignore[arg-type]
            self.depth -= 1
        return [["if", self.value(node.condition), self.block(node.then), otherwise]]

    def while_(self, node: ast.While) -> list[Any]:
        self.has_loop = True
        return [["while", self.value(node.condition), self.block(node.body), []]]

    def for_(self, node: ast.For) -> list[Any]:
        self.has_loop = True
        start = [] if node.start is None else self.statement(node.start)
        condition = ["constant", True] if node.condition is None else self.value(node.condition)
        body = self.block(node.body)
        step = [] if node.step is None else self.statement(node.step)
        return [*start, ["while", condition, body, step]]

    def for_in(self, node: ast.ForIn) -> list[Any]:
        self.has_loop = True
        source = self.value(node.source)
        slot = self.slot(self.module.declared[id(node)])
        return [["each", slot, source, self.block(node.body)]]

    def return_(self, node: ast.Return) -> list[Any]:
        return [["return", ["constant", None] if node.value is None else self.value(node.value)]]

    def expression_statement(self, node: ast.ExpressionStatement) -> list[Any]:
        return [["do", self.value(node.value)]]

    def throw(self, _: ast.Throw) -> list[Any]:
        return [["give up"]]

    # ------------------------------------------------------------ values

    def value(self, node: ast.Expression) -> list[Any]:
        rule = _VALUES.get(type(node))
        self.left -= 1
        if rule is None or self.left < 0:
            raise _Unfit
        self.depth += 1
        if self.depth > VEGA_TREE_DEPTH_MAX:
            raise _Unfit
        tree = rule(self, node)
        self.depth -= 1
        return tree

    def values(self, nodes: list[ast.Expression]) -> list[Any]:
        return [self.value(node) for node in nodes]

    def literal(self, node: ast.Literal) -> list[Any]:
        if type(node.value) not in CONSTANTS:
            raise _Unfit
        return ["constant", node.value]

    def name(self, node: ast.Name | ast.Path) -> list[Any]:
        meaning = self.module.meanings.get(id(node))
        if not isinstance(meaning, Variable):
            raise _Unfit
        if meaning.literal is not None:
            return self.literal(meaning.literal)
        return ["slot", self.slot(meaning)]

    def unary(self, node: ast.Unary) -> list[Any]:
        if node.operator == "-" and type(node.operand) is ast.Literal and type(node.operand.value) in (int, float):
            return ["constant", -node.operand.value]
        return ["negate" if node.operator == "-" else "not", self.value(node.operand)]

    def binary(self, node: ast.Binary) -> list[Any]:
        return ["binary", node.operator, self.value(node.left), self.value(node.right)]

    def index(self, node: ast.Index) -> list[Any]:
        return ["index", self.value(node.target), self.value(node.index)]

    def list_(self, node: ast.ListLiteral) -> list[Any]:
        return ["list", self.values(node.items)]

    def map_(self, node: ast.MapLiteral) -> list[Any]:
        return ["map", [[self.value(key), self.value(value)] for key, value in node.entries]]

    def join(self, node: ast.Interpolation) -> list[Any]:
        parts = [["constant", part] if isinstance(part, str) else self.value(part) for part in node.parts]
        return ["join", parts]

    def method(self, node: ast.MethodCall) -> list[Any]:
        if any(argument.name for argument in node.arguments):
            raise _Unfit
        if node.name == "len" and not node.arguments:
            return ["length", self.value(node.target)]
        if node.name == "push" and len(node.arguments) == 1:
            return ["push", self.require_own_slot(node.target), self.value(node.arguments[0].value)]
        raise _Unfit

    def call(self, node: ast.Call) -> list[Any]:
        if any(argument.name for argument in node.arguments):
            raise _Unfit
        meaning = self.module.meanings.get(id(node.callee))
        arguments = [argument.value for argument in node.arguments]
        if isinstance(meaning, Symbol):
            if meaning.kind != "function" or len(arguments) != len(meaning.node.parameters):
                raise _Unfit
            function = self.linker.function_of(meaning)
            self.calls.add(function)
            return ["call", function, self.values(arguments)]
        if meaning is not None or not isinstance(node.callee, (ast.Name, ast.Path)):
            raise _Unfit
        return self.library(node.callee, arguments)

    def library(self, callee: ast.Name | ast.Path, arguments: list[ast.Expression]) -> list[Any]:
        module = callee.module if isinstance(callee, ast.Path) else ""
        full = f"{module}::{callee.name}" if module else callee.name
        entry = (LIBRARY.get(module, {}) if module else GLOBALS).get(callee.name)
        if full in self.linker.host_names or entry is None or entry.how != "pure" or full in LEFT_OUT:
            raise _Unfit
        if not entry.required <= len(arguments) <= entry.most:
            raise _Unfit
        if full in ("str::len", "list::len", "map::len"):
            return ["length", self.value(arguments[0])]
        if full == "list::push":
            return ["push", self.require_own_slot(arguments[0]), self.value(arguments[1])]
        if full in ("Ok", "Err"):
            inner = self.value(arguments[0]) if arguments else ["constant", None]
            return ["variant", full == "Err", inner]
        if full in CHANGING:
            slot = self.require_own_slot(arguments[0])
            return ["library", full, [["slot", slot], *self.values(arguments[1:])]]
        return ["library", full, self.values(arguments)]


Rule = Callable[[Any, Any], list[Any]]
_STATEMENTS: Final[dict[type, Rule]] = {
    ast.Block: _Tree.block,
    ast.Let: _Tree.let,
    ast.Const: _Tree.let,
    ast.Assign: _Tree.assign,
    ast.If: _Tree.if_,
    ast.While: _Tree.while_,
    ast.For: _Tree.for_,
    ast.ForIn: _Tree.for_in,
    ast.Return: _Tree.return_,
    ast.Throw: _Tree.throw,
    ast.ExpressionStatement: _Tree.expression_statement,
    ast.Break: lambda _, __: [["break"]],
    ast.Continue: lambda _, __: [["continue"]],
}
_VALUES: Final[dict[type, Rule]] = {
    ast.Literal: _Tree.literal,
    ast.Name: _Tree.name,
    ast.Path: _Tree.name,
    ast.Unary: _Tree.unary,
    ast.Binary: _Tree.binary,
    ast.Index: _Tree.index,
    ast.ListLiteral: _Tree.list_,
    ast.MapLiteral: _Tree.map_,
    ast.Interpolation: _Tree.join,
    ast.MethodCall: _Tree.method,
    ast.Call: _Tree.call,
}
