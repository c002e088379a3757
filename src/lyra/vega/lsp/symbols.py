"""What names stand for: a declaration, the uses of it, names of other files, and the scopes they are seen in.

`index` finds them in a tree.
"""

from __future__ import annotations

from typing import NamedTuple

from lyra.vega.syntax import ast


class SourceSymbol:
    """One declaration. `at` and `end` are where its name is written, `node` is all of it."""

    __slots__ = ("at", "end", "is_top", "name", "node", "owner", "role")

    def __init__(
        self, name: str, role: str, place: tuple[int, int], node: ast.SyntaxNode, *, owner: SourceSymbol | None
    ) -> None:
        self.name = name
        self.role = role  # variable constant parameter function tool agent supervisor child import
        self.at, self.end = place
        self.node = node
        self.owner = owner  # of a parameter or an agent's tool
        self.is_top = False


class Use(NamedTuple):
    """A name that means a symbol of this file; its declaration is one, too."""

    at: int
    end: int
    symbol: SourceSymbol


class MemberReference(NamedTuple):
    """A name of another file (`module` is the import), of the library, or, without a module's name, a function that is
    always there. With `parameter`, `at` is where a named argument of it is written."""

    at: int
    end: int
    module: SourceSymbol | None
    module_name: str
    name: str
    parameter: str = ""


class SymbolScope:
    """The names of a block. Each is seen from an offset on; those of the top level, inside functions, from anywhere."""

    __slots__ = ("at", "end", "entries", "names", "owner", "parent")

    def __init__(self, parent: SymbolScope | None, offset: int, end: int, owner: SourceSymbol | None = None) -> None:
        self.parent = parent
        self.at = offset
        self.end = end
        self.owner: SourceSymbol | None = owner if owner is not None or parent is None else parent.owner
        self.names: dict[str, SourceSymbol] = {}  # as the walk has reached it
        self.entries: list[tuple[int, SourceSymbol]] = []

    def find(self, name: str) -> SourceSymbol | None:
        scope: SymbolScope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None
