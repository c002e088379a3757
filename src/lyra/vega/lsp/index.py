"""Which name means what: questions about the names of one file.

`walk` finds them. Who looks into other files is `project`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeVar

from lyra.vega.lsp.symbols import MemberReference, SourceSymbol, SymbolScope, Use
from lyra.vega.lsp.walk import Walk

_Written = TypeVar("_Written", Use, MemberReference)


class SymbolIndex(Walk):
    """All names of one file."""

    def use_at(self, offset: int) -> Use | None:
        """The name under an offset, or just before it."""
        return _under(self.uses, offset)

    def member_at(self, offset: int) -> MemberReference | None:
        return _under(self.members, offset)

    def places(self, symbol: SourceSymbol) -> list[tuple[int, int]]:
        """Everywhere in this file where a symbol of it is written, its declaration first in order of place."""
        return [(use.at, use.end) for use in self.uses if use.symbol is symbol]

    def exported(self, name: str) -> SourceSymbol | None:
        """What `name` means to who imports this file."""
        symbol = self.top.names.get(name)
        return None if symbol is None or symbol.role == "import" else symbol

    def scope_at(self, offset: int) -> SymbolScope:
        inside = [scope for scope in self.scopes if scope.at <= offset <= scope.end]
        return min(inside, key=lambda scope: scope.end - scope.at, default=self.top)

    def visible(self, offset: int) -> dict[str, SourceSymbol]:
        """What can be named at an offset."""
        symbols: dict[str, SourceSymbol] = {}
        scope: SymbolScope | None = self.scope_at(offset)
        in_body = scope is not None and scope.owner is not None
        while scope is not None:
            anywhere = scope is self.top and in_body
            for start, symbol in reversed(scope.entries):
                if anywhere or start <= offset:
                    symbols.setdefault(symbol.name, symbol)
            scope = scope.parent
        return symbols


def _under(node: list[_Written], offset: int) -> _Written | None:
    index = bisect_right(node, offset, key=lambda child: child.at) - 1
    return node[index] if index >= 0 and node[index].at <= offset <= node[index].end else None
