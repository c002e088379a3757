"""Which variables may hold parts of one list or map: those whose content may change when another's does.

Variables are put together, whatever the order of statements, when one is given the other, a part of it, or something
that holds it; a push or a store puts what is stored together with where. Values that cannot be changed (texts, numbers,
answers of agents) hold nothing, and keep variables apart that would otherwise all hang together.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.vega import ast
from lyra.vega.facts import every_node
from lyra.vega.plan.targets import Targets
from lyra.vega.plan.walk import children
from lyra.vega.scopes import ModuleScope, Symbol, Variable
from lyra.vega.stdlib.table import LIBRARY, Entry

__all__ = ["CHANGING", "Aliases"]

CHANGING: Final = frozenset({"push", "pop", "insert", "remove", "set", "add"})  # what changes the value it is given
_SCALARS: Final = frozenset({"str", "int", "float", "bool", "null", "duration", "money", "process"})
_OF_SCALARS: Final = frozenset({"range", "split", "lines", "keys", "find_all"})  # library functions that list such
_DEPTH_MAX: Final = 50  # functions that return what others return: further ones may return anything
_PLAIN: Final = (ast.Literal, ast.Interpolation, ast.Send, ast.Spawn, ast.Unary)


class Aliases:
    """The classes of one file."""

    def __init__(self, module: ModuleScope, targets: Targets) -> None:
        self._module = module
        self._targets = targets
        self._above: dict[int, int] = {}  # id(Variable) → another of its class
        self._scalar: dict[int, bool] = {}
        self._depth = 0
        nodes = list(every_node([module.module]))
        self._items = {id(module.declared[id(node)]): node.source for node in nodes if isinstance(node, ast.ForIn)}
        for node in nodes:
            self._read(node)

    def of(self, variable: Variable) -> int:
        """What all variables of a class have in common."""
        at = id(variable)
        while at in self._above:
            at = self._above[at]
        return at

    def _join(self, one: Variable, other: Variable) -> None:
        first, second = self.of(one), self.of(other)
        if first != second:
            self._above[second] = first

    def learn(self, node: ast.ForIn) -> None:
        """A loop that is not in the file."""
        self._items[id(self._module.declared[id(node)])] = node.source
        self._read(node)

    # ------------------------------------------------------------ reading

    def _read(self, node: ast.Node) -> None:
        module = self._module
        if isinstance(node, (ast.Let, ast.Const)) and id(node) in module.declared:
            self._give(module.declared[id(node)], node.value)
        elif isinstance(node, ast.ForIn):
            self._give(module.declared[id(node)], node.source)
        elif isinstance(node, ast.Assign):
            for variable in self._holders(node.target):
                self._give(variable, node.value)
        elif isinstance(node, ast.MethodCall) and node.name in CHANGING:
            self._put(node.target, [argument.value for argument in node.arguments])
        elif isinstance(node, ast.Call):
            self._read_call(node)
        elif isinstance(node, ast.Match):
            for part in every_node([arm.pattern for arm in node.arms]):
                if id(part) in module.declared:
                    self._give(module.declared[id(part)], node.subject)

    def _read_call(self, node: ast.Call) -> None:
        meaning = self._module.meanings.get(id(node.callee))
        if isinstance(meaning, Symbol):
            parameters = getattr(meaning.node, "parameters", [])
            names = [parameter.name for parameter in parameters]
            for position, argument in enumerate(node.arguments):
                index = names.index(argument.name) if argument.name in names else position
                if meaning.module is self._module and index < len(parameters):
                    self._give(self._module.declared[id(parameters[index])], argument.value)
        elif isinstance(node.callee, ast.Path) and node.callee.name in CHANGING and node.arguments:
            self._put(node.arguments[0].value, [argument.value for argument in node.arguments[1:]])

    def _put(self, whole: Any, items: list[Any]) -> None:
        for variable in self._holders(whole):
            for item in items:
                self._give(variable, item)

    def _give(self, variable: Variable, value: Any) -> None:
        for source in self._holders(value):
            self._join(variable, source)

    def _holders(self, root: Any) -> list[Variable]:
        """The variables whose lists and maps a value may be, be in, or hold."""
        found: list[Variable] = []
        todo = [root]
        while todo:
            node = todo.pop()
            if node is None or isinstance(node, _PLAIN):
                continue
            if isinstance(node, (ast.Name, ast.Path)):
                meaning = self._module.meanings.get(id(node))
                if isinstance(meaning, Variable) and not self._is_scalar_variable(meaning):
                    found.append(meaning)
            elif isinstance(node, ast.Binary):
                if node.operator == "+" and not self.is_scalar(node):
                    todo += [node.left, node.right]
            elif isinstance(node, (ast.Index, ast.Field)):
                todo.append(node.target)
            elif not (isinstance(node, ast.Call) and self.is_scalar(node)):
                todo.extend(children(node))
        return found

    # ------------------------------------------------------------ values that hold nothing

    def is_scalar(self, root: Any) -> bool:
        """Whether a value can surely not be changed."""
        node = root
        while True:
            if node is None or isinstance(node, _PLAIN):
                return not (isinstance(node, ast.Send) and node.is_stream)
            if isinstance(node, ast.Binary):
                if node.operator != "+":
                    return True
                if self.is_scalar(node.right):  # a long sum is deep on its left side
                    return True
                node = node.left
                continue
            if isinstance(node, (ast.Name, ast.Path)):
                meaning = self._module.meanings.get(id(node))
                return isinstance(meaning, Variable) and self._is_scalar_variable(meaning)
            return isinstance(node, ast.Call) and self._gives_scalar(node)

    def _gives_scalar(self, node: ast.Call) -> bool:
        meaning = self._module.meanings.get(id(node.callee))
        if isinstance(meaning, Symbol):
            return meaning.module is self._module and self._returns_scalars(meaning.node)
        row = self._library(node) if meaning is None else None
        return row is not None and row.result in _SCALARS

    def _library(self, node: ast.Call) -> Entry | None:
        callee = node.callee
        return LIBRARY.get(callee.module, {}).get(callee.name) if isinstance(callee, ast.Path) else None

    def _returns_scalars(self, function: Any) -> bool:
        body = getattr(function, "body", None)
        if body is None:
            return False
        if id(function) not in self._scalar:
            if self._depth == _DEPTH_MAX:
                return False
            self._scalar[id(function)] = True  # while it is examined
            self._depth += 1
            returns = [node.value for node in every_node([body]) if isinstance(node, ast.Return)]
            self._scalar[id(function)] = all(map(self.is_scalar, returns))
            self._depth -= 1
        return self._scalar[id(function)]

    def _has_scalar_items(self, source: Any) -> bool:
        """Whether a loop over a value gives what cannot be changed, as far as one sees where it is made."""
        if isinstance(source, ast.ListLiteral):
            return all(map(self.is_scalar, source.items))
        if isinstance(source, ast.Call) and id(source.callee) not in self._module.meanings:
            return getattr(source.callee, "name", "") in _OF_SCALARS
        meaning = self._module.meanings.get(id(source)) if isinstance(source, ast.Name) else None
        if not isinstance(meaning, Variable) or meaning.is_parameter:
            return False
        values = self._targets.values(meaning)
        return bool(values) and all(
            not isinstance(value, ast.Name) and self._has_scalar_items(value) for _, value in values
        )

    def _is_scalar_variable(self, variable: Variable) -> bool:
        key = id(variable)
        known = self._scalar.get(key)
        if known is None:
            if self._depth == _DEPTH_MAX:
                return False
            self._scalar[key] = True  # while it is examined: `x = x + 1` says nothing against it
            self._depth += 1
            values = self._targets.values(variable)
            of_items = key not in self._items or self._has_scalar_items(self._items[key])
            known = (bool(values) or key in self._items) and of_items
            known = known and all(
                module is self._module and value is not None and self.is_scalar(value) for module, value in values
            )
            self._depth -= 1
            self._scalar[key] = known or variable.literal is not None
        return self._scalar[key]
