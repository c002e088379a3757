"""Which agents a process value may stand for: found by following variables and parameters back to `spawn`.

A variable stands for what every value given to it stands for, a parameter of a function for what every call of the
function gives it, and its default. Anything else (an item of a list, a message, an imported name that was computed) is
not known.

When a process was started, and as the how-manieth, is seen only where it is *held*: printed, compared, kept in a list,
handed on. One that is only asked may as well be another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from lyra.vega.plan.names import ModuleScope, Symbol, Variable
from lyra.vega.syntax import ast
from lyra.vega.syntax.facts import every_node

_NAMES_MAX: Final = 20  # names for one process, one given to the next: more are not followed
Given = tuple[ModuleScope, ast.Expression | None]  # where a value comes from; None: it is not known


class Targets:
    def __init__(self) -> None:
        self._values: dict[int, list[Given]] = {}  # id(Variable) → what is given to it
        self._holders: dict[
            int, Variable | None
        ] = {}  # id(Spawn) → the variable that has its process; None: no variable has it
        self._used: set[int] = set()  # ids of variables that are used otherwise than to ask
        self._bound: set[int] = set()  # ids of variables that also get values from places that are not analysed
        self._timed: list[tuple[ModuleScope, Any]] = []  # the receivers of sends that have a time-out
        self._seen: set[int] = set()
        self._modules: list[ModuleScope] = []

    def learn(self, modules: Iterable[ModuleScope]) -> None:
        """Read the assignments and calls of files not yet read."""
        for module in modules:
            if id(module) not in self._seen:
                self._seen.add(id(module))
                self._modules.append(module)
                self._read(module)

    def values(self, variable: Variable) -> list[Given]:
        """Everything a variable is given; empty when that is not known."""
        return self._values.get(id(variable), [])

    def is_bound(self, variable: Variable) -> bool:
        """Whether a variable gets values that are no part of the source: items of a loop, what a pattern fits, …"""
        return id(variable) in self._bound

    def is_timed(self, agent: Symbol) -> bool:
        """Whether a question to an agent may have a time-out of its own."""
        receivers = (self.agents(target, module) for module, target in self._timed)
        return any(agents is None or agent in agents for agents in receivers)

    def agents(self, node: Any, module: ModuleScope) -> frozenset[Symbol] | None:
        """The agents that an expression may stand for; None when that is not known."""
        agents: set[Symbol] = set()
        todo: list[Given] = [(module, node)]
        visited: set[int] = set()
        while todo:
            scope, value = todo.pop()
            if isinstance(value, ast.Await):
                value = value.operand
            if isinstance(value, ast.Spawn) and not value.is_function:
                meaning = scope.meanings.get(id(value.target))
                if not isinstance(meaning, Symbol) or meaning.kind != "agent":
                    return None
                agents.add(meaning)
                continue
            meaning = scope.meanings.get(id(value)) if isinstance(value, (ast.Name, ast.Path)) else None
            if not isinstance(meaning, Variable) or id(meaning) in self._bound:
                return None
            if id(meaning) not in visited:
                visited.add(id(meaning))
                todo.extend(self._values.get(id(meaning)) or [(scope, None)])
        return frozenset(agents) or None

    def process(self, node: Any, module: ModuleScope) -> int | None:
        """What tells one process from another: the `spawn` it comes from, under whatever names; None where several may
        be meant."""
        value: Any = node
        for _ in range(_NAMES_MAX):
            meaning = module.meanings.get(id(value)) if isinstance(value, (ast.Name, ast.Path)) else None
            if not isinstance(meaning, Variable) or id(meaning) in self._bound:
                break
            values = self._values.get(id(meaning), [])
            if len(values) != 1:
                break
            module, value = values[0]
        while isinstance(value, ast.Await):
            value = value.operand
        return id(value) if isinstance(value, ast.Spawn) else None

    def is_held(self, spawn: ast.Spawn) -> bool:
        """Whether the process of a spawn is seen by others than those who ask it."""
        return id(spawn) not in self._holders or id(self._holders[id(spawn)]) in self._used

    # ------------------------------------------------------------ reading a file

    def _read(self, module: ModuleScope) -> None:
        callees: set[int] = set()
        asked: set[int] = set()
        for node in every_node([module.module]):
            if isinstance(node, (ast.Let, ast.Const)) and id(node) in module.declared:
                self._give(module.declared[id(node)], module, node.value)
                if isinstance(node.value, ast.Spawn):
                    self._holders[id(node.value)] = module.declared[id(node)]
            elif isinstance(node, ast.Send):
                asked.add(id(node.target))
                if node.timeout is not None:
                    self._timed.append((module, node.target))
                if isinstance(node.target, ast.Spawn):
                    self._holders[id(node.target)] = None
            elif isinstance(node, ast.Assign):
                meaning = module.meanings.get(id(node.target))
                if isinstance(meaning, Variable):
                    self._give(meaning, module, node.value)
            elif isinstance(node, ast.Call):
                callees.add(id(node.callee))
                self._arguments(module, node)
            elif isinstance(node, ast.Parameter) and node.default is not None:
                self._give(module.declared[id(node)], module, node.default)
            else:
                self._bind(module, node)
        for node in every_node([module.module]):
            meaning = module.meanings.get(id(node)) if isinstance(node, (ast.Name, ast.Path)) else None
            if isinstance(meaning, Variable) and id(node) not in asked:
                self._used.add(id(meaning))
            if isinstance(meaning, Symbol) and meaning.kind in ("function", "tool") and id(node) not in callees:
                for parameter in meaning.node.parameters:
                    self._give(meaning.module.declared[id(parameter)], module, None)

    def _bind(self, module: ModuleScope, node: ast.SyntaxNode) -> None:
        """Variables that get values from elsewhere: loops, patterns, errors, parameters of what has no name."""
        if isinstance(node, (ast.ForIn, ast.NamePattern, ast.Catch)):
            if id(node) in module.declared:
                self._bound.add(id(module.declared[id(node)]))
        elif isinstance(node, (ast.Lambda, ast.Tool, ast.Function)):
            is_called = isinstance(node, ast.Function) and id(node) not in module.declared and node.name != "main"
            if not is_called:
                self._bound.update(id(module.declared[id(parameter)]) for parameter in node.parameters)

    def _arguments(self, module: ModuleScope, call: ast.Call) -> None:
        meaning = module.meanings.get(id(call.callee))
        if not isinstance(meaning, Symbol) or meaning.kind not in ("function", "tool"):
            return
        parameters = meaning.node.parameters
        names = [parameter.name for parameter in parameters]
        for position, argument in enumerate(call.arguments):
            if argument.name in names or (not argument.name and position < len(names)):
                parameter = parameters[names.index(argument.name) if argument.name else position]
                self._give(meaning.module.declared[id(parameter)], module, argument.value)

    def _give(self, variable: Variable, module: ModuleScope, value: ast.Expression | None) -> None:
        self._values.setdefault(id(variable), []).append((module, value))
