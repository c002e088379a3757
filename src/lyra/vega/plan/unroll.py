"""`list::map` with a lambda that asks, as the loop that it is: so its questions overlap like those of any loop.

    print(str::join(list::map(parts, |part| a <- part), ", "));

    let made = [];
    for part in parts { made.push(a <- part); }
    print(str::join(made, ", "));

The statement has to come to the `list::map` before anything else of it, so that everything happens in the order in
which it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from lyra.vega.plan.names import ModuleScope, Unit, Variable
from lyra.vega.plan.straight_line import ALLOWED, Site, Stretch
from lyra.vega.plan.summaries import Summaries
from lyra.vega.syntax import ast
from lyra.vega.syntax.facts import children, parts

_WITH_VALUE = (ast.Let, ast.Const, ast.Assign, ast.Return, ast.ExpressionStatement)


class Unroller:
    """For the statements of one function. `keep` holds the nodes made here: what they mean goes by their ids."""

    def __init__(self, summaries: Summaries, module: ModuleScope, unit: Unit, keep: list[Any]) -> None:
        self._summaries = summaries
        self._module = module
        self._unit = unit
        self._keep = keep

    def statements(self, statements: Sequence[ast.Statement]) -> Iterator[ast.Statement]:
        for statement in statements:
            last = statement
            while (unrolled := self._unroll(last)) is not None:
                *before, last = unrolled
                yield from before
            yield last

    def _unroll(self, statement: Any) -> list[ast.Statement] | None:
        """Return the loop of the `list::map` that a statement begins with, and the statement with the list in its
        place."""
        *path, call = self._beginning(statement.value) if isinstance(statement, _WITH_VALUE) else [None]
        if call is None:
            return None
        source, function = (argument.value for argument in call.arguments)
        place = {"at": call.at, "end": call.end}
        result = Variable("list::map", self._unit)
        value: Any = self._name(result, place)
        for node in reversed(path):
            value = _replace_beginning(node, value)
        question = ast.Argument(value=function.body.statements[0].value)
        push = ast.MethodCall(target=self._name(result, place), name="push", arguments=[question], **place)
        body = ast.Block(statements=[ast.ExpressionStatement(value=push, **place)], **place)
        first = ast.Let(name=result.name, value=ast.ListLiteral(items=[], **place), **place)
        loop = ast.ForIn(name=function.parameters[0].name, source=source, body=body, **place)
        last = replace(statement, value=value)
        declared = self._module.declared
        declared[id(first)], declared[id(loop)] = result, declared[id(function.parameters[0])]
        if id(statement) in declared:
            declared[id(last)] = declared[id(statement)]
        self._keep += [first, loop, last]
        self._summaries.aliases.learn_map(result, call, loop, self._module)
        return [first, loop, last]

    def _name(self, variable: Variable, place: dict[str, int]) -> ast.Name:
        name = ast.Name(name=variable.name, **place)
        self._module.meanings[id(name)] = variable
        self._keep.append(name)
        return name

    def _beginning(self, node: Any) -> list[Any]:
        """Return the parts of an expression down to the `list::map` that it begins with; a None at the end: it does
        not."""
        path = [node]
        while not self._is_meant(node):
            if isinstance(node, ast.Call) and isinstance(node.callee, (ast.Name, ast.Path)) and node.arguments:
                is_value = isinstance(self._module.meanings.get(id(node.callee)), Variable)
                node = None if is_value else node.arguments[0].value
            elif isinstance(node, ast.Binary) and node.operator not in ("&&", "||"):
                node = node.left
            else:
                node = node.target if isinstance(node, ast.MethodCall) else None
            path.append(node)
            if node is None:
                break
        return path

    def _is_meant(self, node: Any) -> bool:
        if not isinstance(node, ast.Call) or len(node.arguments) != 2 or any(given.name for given in node.arguments):
            return False
        callee, (source, function) = node.callee, (argument.value for argument in node.arguments)
        if not isinstance(callee, ast.Path) or (callee.module, callee.name) != ("list", "map"):
            return False
        return id(callee) not in self._module.meanings and _is_plain(function) and self._only_asks(source, function)

    def _only_asks(self, source: ast.Expression, function: Any) -> bool:
        """Return whether the lambda asks, and nothing happens that has to wait for its turn."""
        inside, around = (
            {effect_site.effect for effect_site in self._summaries.effects(node, self._module)}
            for node in (function.body.statements[0].value, source)
        )
        return bool(inside & {"ask", "asks"}) and inside | around <= ALLOWED


def _is_plain(function: Any) -> bool:
    """Return a lambda of one parameter and one expression, without another function in it."""
    if not isinstance(function, ast.Lambda) or len(function.parameters) != 1 or len(function.body.statements) != 1:
        return False
    (parameter,), (statement,) = function.parameters, function.body.statements
    if parameter.type is not None or parameter.default is not None or not isinstance(statement, ast.Return):
        return False
    return not any(isinstance(part, (ast.Lambda, ast.Match)) for part in parts(statement.value))


def _replace_beginning(node: Any, first: ast.Expression) -> Any:
    """Return an expression with another one in the place of the part that it begins with."""
    if isinstance(node, ast.Call):
        return replace(node, arguments=[replace(node.arguments[0], value=first), *node.arguments[1:]])
    return replace(node, left=first) if isinstance(node, ast.Binary) else replace(node, target=first)


# For one level: the calls whose questions are put now, the assignments these need, the branches and loops around both,
# and what those need in turn: a backward slice. Calls of lower levels are waited for; higher ones are left out.

_LOOPS = (ast.While, ast.For, ast.ForIn)
_VALUES = (ast.Let, ast.Const, ast.Assign)


class Slice:
    def __init__(self, stretch: Stretch, level: int) -> None:
        self.stretch = stretch
        self.level = level
        self._meanings = stretch.module.meanings
        self._declared = stretch.module.declared
        self._sites = {id(site.node): site for site in stretch.early}
        self._needed: dict[int, Variable] = {}
        size = -1
        while len(self._needed) != size:
            size = len(self._needed)
            for statement in stretch.statements:
                self._need(statement)

    @property
    def outer(self) -> list[Variable]:
        """Variables from before the stretch that the slice assigns: it needs copies of them."""
        inside = {id(self._declared[id(node)]) for node in self._nodes() if id(node) in self._declared}
        set_here = {id(variable) for node in self._nodes() if (variable := self.sets(node)) is not None}
        return [self._needed[key] for key in sorted(set_here, key=list(self._needed).index) if key not in inside]

    def _nodes(self) -> Iterator[Any]:
        for statement in self.stretch.statements:
            yield from parts(statement)

    def wants(self, node: Any) -> bool:
        """Return whether the slice has anything of a statement."""
        if isinstance(node, ast.Continue):
            return True
        if isinstance(node, ast.Block):
            return any(map(self.wants, node.statements))
        if isinstance(node, ast.If):
            return self.wants(node.then) or (node.otherwise is not None and self.wants(node.otherwise))
        if isinstance(node, _LOOPS):
            return any(self._acts(part) for part in parts(node))
        return self._acts(node)

    def find_started_calls(self, node: Any) -> list[Site]:
        """Return the calls of a simple statement that are started now, in the order of the program."""
        sites = [self._sites[id(part)] for part in parts(node) if id(part) in self._sites]
        return sorted((site for site in sites if site.level == self.level), key=lambda site: site.number)

    def sets(self, node: Any) -> Variable | None:
        """Return the variable that an assignment of the slice gives a value."""
        if not isinstance(node, _VALUES) or self.stretch.levels.get(id(node), 99) > self.level:
            return None
        variable = self._meanings.get(id(node.target)) if isinstance(node, ast.Assign) else self._declared[id(node)]
        return variable if isinstance(variable, Variable) and id(variable) in self._needed else None

    def _acts(self, node: Any) -> bool:
        if isinstance(node, (ast.Block, ast.If, *_LOOPS)):
            return False  # their statements are asked one by one
        if isinstance(node, _VALUES):
            return self.sets(node) is not None or bool(self.find_started_calls(node))
        return isinstance(node, (ast.ExpressionStatement, ast.Return)) and bool(self.find_started_calls(node))

    def _need(self, statement: Any) -> None:
        for node in parts(statement):
            if isinstance(node, ast.If) and self.wants(node):
                self._read(node.condition)
            elif isinstance(node, _LOOPS) and self.wants(node):
                self._read(node.source if isinstance(node, ast.ForIn) else node.condition)
            elif isinstance(node, (*_VALUES, ast.ExpressionStatement, ast.Return)):
                if self.sets(node) is not None:
                    self._read(node.value)
                for site in self.find_started_calls(node):
                    self._read_question(site.node)

    def _read_question(self, node: ast.Send | ast.Call) -> None:
        if isinstance(node, ast.Send):
            for part in (node.target, node.message, node.timeout, node.budget):
                self._read(part)
        else:
            for argument in node.arguments:
                self._read(argument.value)

    def _read(self, root: Any) -> None:
        """Collect the variables that computing something reads; the answer of a call needs none."""
        todo: list[Any] = [root]
        while todo:
            node = todo.pop()
            if id(node) in self._sites:
                continue
            meaning = self._meanings.get(id(node)) if isinstance(node, (ast.Name, ast.Path)) else None
            if isinstance(meaning, Variable):
                self._needed[id(meaning)] = meaning
            todo.extend(children(node))
