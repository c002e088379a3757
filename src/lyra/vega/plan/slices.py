"""The part of a stretch that one look ahead has to run.

For one level: the calls whose questions are put now, the assignments that these questions need, the branches and loops
around both, and what those need in turn: a backward slice, found by repeating until nothing is added. Calls of lower
levels in it are waited for; what belongs to higher levels is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lyra.vega.plan.names import Variable
from lyra.vega.plan.straight_line import Site, Stretch
from lyra.vega.syntax import ast
from lyra.vega.syntax.walk import children, parts

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

    # ------------------------------------------------------------ questions of the compiler

    def wants(self, node: Any) -> bool:
        """Whether the slice has anything of a statement."""
        if isinstance(node, ast.Continue):
            return True
        if isinstance(node, ast.Block):
            return any(map(self.wants, node.statements))
        if isinstance(node, ast.If):
            return self.wants(node.then) or (node.otherwise is not None and self.wants(node.otherwise))
        if isinstance(node, _LOOPS):
            return any(self._acts(part) for part in parts(node))
        return self._acts(node)

    def asked(self, node: Any) -> list[Site]:
        """The calls of a simple statement that are started now, in the order of the program."""
        sites = [self._sites[id(part)] for part in parts(node) if id(part) in self._sites]
        return sorted((site for site in sites if site.level == self.level), key=lambda site: site.number)

    def sets(self, node: Any) -> Variable | None:
        """The variable that an assignment of the slice gives a value."""
        if not isinstance(node, _VALUES) or self.stretch.levels.get(id(node), 99) > self.level:
            return None
        variable = self._meanings.get(id(node.target)) if isinstance(node, ast.Assign) else self._declared[id(node)]
        return variable if isinstance(variable, Variable) and id(variable) in self._needed else None

    # ------------------------------------------------------------ what is needed

    def _acts(self, node: Any) -> bool:
        if isinstance(node, (ast.Block, ast.If, *_LOOPS)):
            return False  # their statements are asked one by one
        if isinstance(node, _VALUES):
            return self.sets(node) is not None or bool(self.asked(node))
        return isinstance(node, (ast.ExpressionStatement, ast.Return)) and bool(self.asked(node))

    def _need(self, statement: Any) -> None:
        for node in parts(statement):
            if isinstance(node, ast.If) and self.wants(node):
                self._read(node.condition)
            elif isinstance(node, _LOOPS) and self.wants(node):
                self._read(node.source if isinstance(node, ast.ForIn) else node.condition)
            elif isinstance(node, (*_VALUES, ast.ExpressionStatement, ast.Return)):
                if self.sets(node) is not None:
                    self._read(node.value)
                for site in self.asked(node):
                    self._read_question(site.node)

    def _read_question(self, node: ast.Send | ast.Call) -> None:
        if isinstance(node, ast.Send):
            for part in (node.target, node.message, node.timeout, node.budget):
                self._read(part)
        else:
            for argument in node.arguments:
                self._read(argument.value)

    def _read(self, root: Any) -> None:
        """The variables that computing something reads; the answer of a call needs none."""
        todo: list[Any] = [root]
        while todo:
            node = todo.pop()
            if id(node) in self._sites:
                continue
            meaning = self._meanings.get(id(node)) if isinstance(node, (ast.Name, ast.Path)) else None
            if isinstance(meaning, Variable):
                self._needed[id(meaning)] = meaning
            todo.extend(children(node))
