"""Which variables may hold parts of one list or map: those whose content may change when another's does.

Variables are put together, whatever the order of statements and whichever file they stand in, when one is given the
other, a part of it, or something that holds it; a push or a store puts what is stored together with where. What a
function returns is its own variable, and so is whatever is handed to functions that are not known by name. Values
that cannot be changed (texts, numbers, answers of agents that are texts) hold nothing, and keep variables apart that
would otherwise all hang together.

`hands_back` asks the other way round: whether the value of a function may hold something that its caller has too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from lyra.vega.plan.names import ModuleScope, Symbol, Variable
from lyra.vega.stdlib.table import LIBRARY, LibraryEntry
from lyra.vega.syntax import ast
from lyra.vega.syntax.facts import children, every_node, walk_own_parts

CHANGING: Final = frozenset({"push", "pop", "insert", "remove", "set", "add"})  # what changes the value it is given
_SCALARS: Final = frozenset({"str", "int", "float", "bool", "null", "duration", "money", "process"})
_OF_SCALARS: Final = frozenset({"range", "split", "lines", "keys", "find_all"})  # library functions that list such
_DEPTH_MAX: Final = 50  # functions that return what others return: further ones may return anything
_PLAIN: Final = (ast.Literal, ast.Interpolation, ast.Spawn, ast.Unary)
_FUNCTIONS: Final = ("function", "tool")
_ANYWHERE: Final = 0  # what functions that are not known by name are given; no id() is 0


class Aliases:
    """The classes of a whole program. A key is the id of a Variable, or of a function: what that returns."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._above: dict[int, int] = {}  # key → another of its class
        self._scalar: dict[int, bool] = {}
        self._items: dict[int, tuple[Any, ModuleScope]] = {}  # what a loop's variable goes over
        self._given: dict[int, list[int]] = {}  # key → keys whose list or map, or an item of it, was assigned to it
        self._put: list[tuple[int, int]] = []  # what a list or map is put into, and what
        self._alone: set[int] = (
            set()
        )  # ids of variables whose list no other variable has, though its items may be shared
        self._foreign: set[int] = {_ANYWHERE}  # keys of what a function has not made itself
        self._owned: dict[int, bool] = {}
        self._depth = 0
        self._assumed: list[int] = []  # what was found to be scalar since the outermost question began

    def learn(self, modules: Iterable[ModuleScope]) -> None:
        nodes = [(node, module) for module in modules for node in every_node([module.module])]
        for node, module in nodes:
            if isinstance(node, ast.ForIn):
                self._items[id(module.declared[id(node)])] = (node.source, module)
        for node, module in nodes:
            self._read(node, module)

    def get_class_key(self, variable: Variable) -> int:
        """Return the key that all variables of an alias class share."""
        return self._class(id(variable))

    def get_change_key(self, variable: Variable) -> int:
        """Return the key that changes with a variable's list or map: its class, or that list alone where no other
        variable has it."""
        return -id(variable) if id(variable) in self._alone else self.get_class_key(variable)

    def read_with(self, variable: Variable) -> frozenset[int]:
        """Return the keys that must not change while a variable is read: those of its list or map and of the items."""
        return frozenset((self.get_class_key(variable), self.get_change_key(variable)))

    def hands_back(self, function: Symbol) -> bool:
        """Return whether what a function returns may hold a list or map that it was given, or that others know."""
        key = id(function.node)
        if key not in self._owned:
            self._owned[key] = self._is_owned(key)
        return not self._owned[key]

    def _is_owned(self, key: int) -> bool:
        put: dict[int, list[int]] = {}
        for whole, item in self._put:
            put.setdefault(self._class(whole), []).append(item)
        seen: set[int] = set()
        todo = [key]
        while todo:
            holder = todo.pop()
            if holder in self._foreign:
                return False
            if holder not in seen:
                seen.add(holder)
                todo += self._given.get(holder, ())
                todo += put.get(self._class(holder), ())
        return True

    def _class(self, key: int) -> int:
        while key in self._above:
            key = self._above[key]
        return key

    def learn_map(self, result: Variable, value: ast.Call, node: ast.ForIn, module: ModuleScope) -> None:
        """Learn a loop that is not in the file, and the list that it makes, which has what was in the call it
        represents."""
        self._alone.add(id(result))
        self._hold(id(result), value, module)
        self._items[id(module.declared[id(node)])] = (node.source, module)
        self._read(node, module)

    # ------------------------------------------------------------ reading

    def _read(self, node: ast.SyntaxNode, module: ModuleScope) -> None:
        declared = module.declared
        if isinstance(node, (ast.Let, ast.Const)) and id(node) in declared:
            self._give(declared[id(node)], node.value, module)
        elif isinstance(node, ast.ForIn):
            self._give(declared[id(node)], node.source, module)
        elif isinstance(node, ast.Assign):
            self._assign(node, module)
        elif isinstance(node, ast.MethodCall):
            self._method(node, module)
        elif isinstance(node, ast.Call):
            self._call(node, module)
        elif isinstance(node, ast.Match):
            for part in every_node([arm.pattern for arm in node.arms]):
                if id(part) in declared:
                    self._give(declared[id(part)], node.subject, module)
        elif isinstance(node, (ast.Function, ast.Tool)):
            self._function(node, module)
        elif isinstance(node, ast.Parameter) and id(node) in declared and node.default is not None:
            self._give(declared[id(node)], node.default, module)
        elif isinstance(node, ast.Lambda):
            self._anywhere(node, module)

    def _function(self, node: ast.Function | ast.Tool, module: ModuleScope) -> None:
        for part in walk_own_parts(node.body):
            if isinstance(part, ast.Return):
                self._hold(id(node), part.value, module)
        if id(node) in module.declared:  # inside another function: a value that holds what it sees
            self._give(module.declared[id(node)], node.body, module)
            self._anywhere(node, module)

    def _anywhere(self, node: ast.Lambda | ast.Function | ast.Tool, module: ModuleScope) -> None:
        for parameter in node.parameters:
            self._link(id(module.declared[id(parameter)]), [_ANYWHERE])

    def _assign(self, node: ast.Assign, module: ModuleScope) -> None:
        meaning = module.meanings.get(id(node.target))
        if isinstance(meaning, Variable):
            self._give(meaning, node.value, module)
        else:
            self._put_in(node.target, [node.value], module)

    def _method(self, node: ast.MethodCall, module: ModuleScope) -> None:
        values = [argument.value for argument in node.arguments]
        if node.name in CHANGING:
            self._put_in(node.target, values, module)
        self._higher([node.target, *values], module)

    def _call(self, node: ast.Call, module: ModuleScope) -> None:
        meaning = module.meanings.get(id(node.callee))
        values = [argument.value for argument in node.arguments]
        if isinstance(meaning, Symbol):
            parameters = getattr(meaning.node, "parameters", [])
            names = [parameter.name for parameter in parameters]
            for position, argument in enumerate(node.arguments):
                index = names.index(argument.name) if argument.name in names else position
                if index < len(parameters):
                    self._give(meaning.module.declared[id(parameters[index])], argument.value, module)
        elif meaning is not None or not isinstance(node.callee, (ast.Name, ast.Path)):
            for value in values:
                self._hold(_ANYWHERE, value, module)
        else:
            if isinstance(node.callee, ast.Path) and node.callee.name in CHANGING and values:
                self._put_in(values[0], values[1:], module)
            self._higher(values, module)

    def _higher(self, values: list[Any], module: ModuleScope) -> None:
        """Link the arguments of a library function: it may call the functions among them with what is in the others."""
        if any(self._is_function(value, module) for value in values):
            for value in values:
                self._hold(_ANYWHERE, value, module)

    def _is_function(self, value: Any, module: ModuleScope) -> bool:
        meaning = module.meanings.get(id(value)) if isinstance(value, (ast.Name, ast.Path)) else None
        if isinstance(meaning, Symbol):
            return meaning.kind in _FUNCTIONS
        return isinstance(value, ast.Lambda) or (
            isinstance(meaning, Variable)
            and not self._is_scalar_variable(meaning)
            and not any(isinstance(given, ast.ListLiteral) for _, given in self._targets.values(meaning))
        )

    def _put_in(self, whole: Any, items: list[Any], module: ModuleScope) -> None:
        for key in self._holders(whole, module):
            for item in items:
                holders = self._holders(item, module)
                self._put += [(key, holder) for holder in holders]
                self._link(key, holders, is_part=True)

    def _give(self, variable: Variable, value: Any, module: ModuleScope) -> None:
        if not self._is_scalar_variable(variable):
            self._hold(id(variable), value, module)

    def _hold(self, key: int, value: Any, module: ModuleScope) -> None:
        self._link(key, self._holders(value, module))

    def _link(self, key: int, sources: list[int], *, is_part: bool = False) -> None:
        for source in sources:
            first, second = self._class(key), self._class(source)
            if first != second:
                self._above[second] = first
            if not is_part:
                self._given.setdefault(key, []).append(source)

    def _holders(self, root: Any, module: ModuleScope) -> list[int]:
        """Return the keys of those whose lists and maps a value may be, be in, or hold."""
        holders: list[int] = []
        todo = [root]
        while todo:
            node = todo.pop()
            if node is None or isinstance(node, (*_PLAIN, ast.Send)):
                continue  # what an agent answers, it has made
            if isinstance(node, (ast.Name, ast.Path)):
                holders += self._resolve_keys(module.meanings.get(id(node)))
            elif isinstance(node, ast.Binary):
                if node.operator == "+" and not self.is_scalar(node, module):
                    todo += [node.left, node.right]
            elif isinstance(node, (ast.Index, ast.Field)):
                todo.append(node.target)
            elif isinstance(node, ast.Call):
                holders += self._result(node, module, todo)
            else:
                todo.extend(children(node))
        return holders

    def _resolve_keys(self, meaning: Variable | Symbol | None) -> list[int]:
        if isinstance(meaning, Variable) and not self._is_scalar_variable(meaning):
            if meaning.is_top or meaning.is_parameter or meaning.is_captured:
                self._foreign.add(id(meaning))
            return [id(meaning)]
        if isinstance(meaning, Symbol) and meaning.kind in _FUNCTIONS:
            for parameter in meaning.node.parameters:  # it may be called from any place in the program
                self._link(id(meaning.module.declared[id(parameter)]), [_ANYWHERE])
            return [id(meaning.node)]
        return []

    def _result(self, node: ast.Call, module: ModuleScope, todo: list[Any]) -> list[int]:
        """Return what the value of a call may hold; its arguments, where one cannot see into it, continue the list."""
        if self.is_scalar(node, module):
            return []
        meaning = module.meanings.get(id(node.callee))
        if isinstance(meaning, Symbol):
            if meaning.kind in _FUNCTIONS:
                return [id(meaning.node)]
            todo.extend(node.arguments)
            return []
        todo.extend(children(node))
        return [] if meaning is None and isinstance(node.callee, (ast.Name, ast.Path)) else [_ANYWHERE]

    # ------------------------------------------------------------ values that hold nothing

    def is_scalar(self, root: Any, module: ModuleScope) -> bool:
        """Return whether a value can surely not be changed."""
        node = root
        while True:
            if node is None or isinstance(node, _PLAIN):
                return True
            if isinstance(node, ast.Send):
                return self._answers_text(node, module)
            if isinstance(node, ast.Binary):
                if node.operator != "+":
                    return True
                if self.is_scalar(node.right, module):  # a long sum is deep on its left side
                    return True
                node = node.left
                continue
            if isinstance(node, (ast.Name, ast.Path)):
                meaning = module.meanings.get(id(node))
                return isinstance(meaning, Variable) and self._is_scalar_variable(meaning)
            return isinstance(node, ast.Call) and self._gives_scalar(node, module)

    def _answers_text(self, node: ast.Send, module: ModuleScope) -> bool:
        """Tell whether the answer is a text; an agent with `output` may answer with a list."""
        if node.is_stream:
            return False
        agents = self._targets.agents(node.target, module)
        return agents is not None and all(_is_text(agent.node.fields.get("output")) for agent in agents)

    def _gives_scalar(self, node: ast.Call, module: ModuleScope) -> bool:
        meaning = module.meanings.get(id(node.callee))
        if isinstance(meaning, Symbol):
            function = meaning.node
            body = getattr(function, "body", None)
            if body is None:
                return False
            returns = [(meaning.module, node.value) for node in walk_own_parts(body) if isinstance(node, ast.Return)]
            return self._all_scalar(id(function), returns)
        row = _library(node) if meaning is None else None
        return row is not None and row.result in _SCALARS

    def _all_scalar(self, key: int, values: Iterable[Given]) -> bool:
        """Return whether all that a key is given is scalar. While it is examined it is taken to be: `x = x + 1` says
        nothing against it. Where that was wrong, what was found on the strength of it is forgotten."""
        if key not in self._scalar:
            if self._depth == _DEPTH_MAX:
                return False
            self._scalar[key] = True
            mark = len(self._assumed)
            self._depth += 1
            are_scalar = all(value is not None and self.is_scalar(value, module) for module, value in values)
            self._depth -= 1
            if are_scalar:
                self._assumed.append(key)
            else:
                for assumption in self._assumed[mark:]:
                    del self._scalar[assumption]
                del self._assumed[mark:]
                self._scalar[key] = False
            if not self._depth:
                self._assumed.clear()
        return self._scalar[key]

    def _has_scalar_items(self, source: Any, module: ModuleScope) -> bool:
        """Return whether a loop over a value gives what cannot be changed, as far as one sees where it is made."""
        if isinstance(source, ast.ListLiteral):
            return all(self.is_scalar(item, module) for item in source.items)
        if isinstance(source, ast.Call) and id(source.callee) not in module.meanings:
            return getattr(source.callee, "name", "") in _OF_SCALARS
        return False

    def _is_scalar_variable(self, variable: Variable) -> bool:
        if variable.literal is not None:
            return True
        key, values = id(variable), self._targets.values(variable)
        if key in self._items:
            if not self._has_scalar_items(*self._items[key]):
                return False
        elif not values or self._targets.is_bound(variable):
            return False
        return self._all_scalar(key, values)


def _library(node: ast.Call) -> LibraryEntry | None:
    callee = node.callee
    return LIBRARY.get(callee.module, {}).get(callee.name) if isinstance(callee, ast.Path) else None


def _is_text(output: Any) -> bool:
    return output is None or getattr(getattr(output, "type", None), "name", "") in _SCALARS


# Which agents a process value may represent: found by following variables and parameters back to `spawn`.
# A variable represents what every value given to it represents, a parameter for what every call gives it, and its
# default; anything else is not known. When a process was started is seen only where it is *held*: printed, compared,
# kept in a list, handed on. One that is only asked may as well be another.

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
        """Return whether a variable gets values that are no part of the source: items of a loop, what a pattern
        fits, …"""
        return id(variable) in self._bound

    def is_timed(self, agent: Symbol) -> bool:
        """Return whether a question to an agent may have its own time-out."""
        receivers = (self.agents(target, module) for module, target in self._timed)
        return any(agents is None or agent in agents for agents in receivers)

    def agents(self, node: Any, module: ModuleScope) -> frozenset[Symbol] | None:
        """Return the agents that an expression may represent; None when that is not known."""
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
        """Return what tells one process from another: the `spawn` it comes from, under whatever names; None where
        several may be meant."""
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
        """Return whether the process of a spawn is seen by others than those who ask it."""
        return id(spawn) not in self._holders or id(self._holders[id(spawn)]) in self._used

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
