"""What each word of a text is, for colours that know the program: an agent is not a variable, a parameter no function.

Words alone: strings, numbers and comments are the grammar's. A token never spans lines.
"""

from __future__ import annotations

from typing import Final

from lyra.lsp.language import Coloured
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.stdlib.table import LIBRARY
from lyra.vega.syntax import ast
from lyra.vega.syntax.lexer import KEYWORDS, Tokens

TYPES: Final = (
    *("namespace", "type", "class", "parameter", "variable", "property", "function", "method", "keyword", "event"),
)
MODIFIERS: Final = ("declaration", "readonly", "defaultLibrary")

_ROLES: Final[dict[str, str]] = {
    "agent": "class",
    "supervisor": "class",
    "child": "property",
    "constant": "variable",
    "function": "function",
    "import": "namespace",
    "parameter": "parameter",
    "tool": "function",
    "variable": "variable",
}


def coloured(analysis: Analysis) -> list[Coloured]:
    """Every word that has a meaning, in order of place."""
    index = analysis.index
    tokens: dict[int, Coloured] = {}

    def put(offset: int, length: int, kind: str, *modifiers: str) -> None:
        if offset >= 0 and length > 0:
            tokens[offset] = Coloured(offset, length, kind, modifiers)

    _keywords(analysis.lexed.tokens, put)
    for offset, (_, name) in index.settings.items():
        put(offset, len(name), "property")
    for offset, name in index.types:
        put(offset, len(name), "type", "defaultLibrary")
    for offset, name in index.errors:
        put(offset, len(name), "type")
    for offset, name in index.modules:
        put(offset, len(name), "namespace", *(("defaultLibrary",) if name in LIBRARY else ()))
    for node in index.methods:
        offset = analysis.text.find(node.name, node.target.end, node.end)
        put(offset, len(node.name), "method" if isinstance(node, ast.MethodCall) else "property")
    for member in index.members:
        kind = "parameter" if member.parameter else "function"
        put(member.at, member.end - member.at, kind, *(("defaultLibrary",) if member.module is None else ()))
    for use in index.uses:
        if analysis.text[use.at : use.end] == use.symbol.name:
            modifiers = ["declaration"] if use.at == use.symbol.at else []
            modifiers += ["readonly"] if use.symbol.role == "constant" else []
            put(use.at, use.end - use.at, _ROLES[use.symbol.role], *modifiers)
    return [tokens[offset] for offset in sorted(tokens)]


def _keywords(tokens: Tokens, put: object) -> None:
    assert callable(put)
    for kind, value, offset in zip(tokens.kinds, tokens.values, tokens.starts, strict=True):
        if kind in KEYWORDS:
            put(offset, len(kind), "keyword")
        elif kind == "template":
            for part in value:
                if isinstance(part, Tokens):
                    _keywords(part, put)
