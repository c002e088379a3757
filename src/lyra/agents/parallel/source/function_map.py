"""FunctionMap: a function as the lookahead reads it: its syntax tree, with its agent calls and loops numbered.

The rewritten function passes these numbers to the CallGroup that runs it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from types import CellType
from typing import Any

from lyra.agents.parallel.safe_values import StopLookahead
from lyra.agents.parallel.source.facts import (
    CHECKED,
    COMPREHENSIONS,
    LOOK,
    LOOP,
    SIMPLE,
    SITE,
    CallForm,
    Definition,
    find_bound_before,
    find_own_names,
    find_shared_names,
    inside,
    local_names,
)


class FunctionMap:
    """`names` are the variables that are bound at each call; empty for a call in a comprehension."""

    def __init__(
        self,
        tree: Definition,
        form: CallForm,
        shadowed: frozenset[str] = frozenset(),
        known: Mapping[str, Any] | None = None,
        cells: Mapping[str, CellType] | None = None,
    ) -> None:
        self.body = tree.body
        self.local = local_names(tree)
        self.shared = find_shared_names(tree)
        self.own = find_own_names(tree, shadowed)
        self.sites: list[ast.expr] = []
        self.names: list[tuple[str, ...]] = []
        self.statements: list[ast.stmt] = []
        self.statement_names: list[tuple[str, ...]] = []
        self.looped: dict[int, str] = {}  # loop number → the variable that the loop reads, if it reads one
        self._known = known if known is not None else {}
        self._cells = cells if cells is not None else {}
        self._above: dict[int, ast.AST] = {}
        self._form = form
        self._bound = find_bound_before(tree)
        self._loops = 0
        for node in tree.body:
            self._number(node, node, in_comprehension=False)

    def _number(self, node: ast.AST, statement: ast.stmt, *, in_comprehension: bool) -> bool:
        """Number the calls in a node; gives whether there are any."""
        is_deeper = in_comprehension or isinstance(node, COMPREHENSIONS)
        has_calls = False
        for part in inside(node):
            self._above[id(part)] = node
            within = part if isinstance(part, ast.stmt) else statement
            has_calls = self._number(part, within, in_comprehension=is_deeper) or has_calls
        if self._form.call(node) is not None:
            assert isinstance(node, ast.expr)
            setattr(node, SITE, len(self.sites))
            if isinstance(statement, SIMPLE):
                setattr(node, CHECKED, True)
            self.sites.append(node)
            self.names.append(() if in_comprehension else self._names_at(statement))
            return True
        if has_calls and isinstance(node, (ast.For, *COMPREHENSIONS)):
            self._mark_loops(node, statement)
        return has_calls

    def _mark_loops(self, node: ast.AST, statement: ast.stmt) -> None:
        loops = [node] if isinstance(node, ast.For) else node.generators  # type: ignore[attr-defined]
        if not isinstance(node, ast.For) and not isinstance(statement, SIMPLE):
            return
        for loop in loops:
            setattr(loop, LOOP, self._loops)
            if isinstance(loop.iter, ast.Name):
                self.looped[self._loops] = loop.iter.id
            self._loops += 1
        if not isinstance(node, ast.For) and not hasattr(statement, LOOK):
            setattr(statement, LOOK, len(self.statements))
            self.statements.append(statement)
            self.statement_names.append(self._names_at(statement))

    def _names_at(self, statement: ast.stmt) -> tuple[str, ...]:
        return tuple(sorted(self._bound.get(id(statement), frozenset())))

    def path_to(self, place: ast.AST) -> frozenset[int]:
        """Return the ids of a node and of all nodes around it."""
        path = {id(place)}
        while (above := self._above.get(id(place))) is not None:
            place = above
            path.add(id(place))
        return frozenset(path)

    def outer(self, name: str) -> Any:
        """Return the value of a name that is not the function's own: of an enclosing function, its module, or a
        builtin."""
        if name in self._cells:
            try:
                return self._cells[name].cell_contents
            except ValueError:
                raise StopLookahead(f"`{name}` has no value yet") from None
        if name in self._known:
            return self._known[name]
        if hasattr(builtins, name) and self._known.get("__builtins__", builtins) in (builtins, builtins.__dict__):
            return getattr(builtins, name)
        raise StopLookahead(f"`{name}` has no value yet")
