"""Which name means what: questions about the names of one file.

One walk over the tree notes them. `project` looks into other files.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import Any, Final, NamedTuple, TypeVar

from lyra.vega.checker.settings import AGENT_FIELDS, BLOCKS, SUPERVISION, TOOL_SETTINGS
from lyra.vega.stdlib.table import GLOBALS
from lyra.vega.syntax import ast
from lyra.vega.syntax.facts import parts_of
from lyra.vega.syntax.lexer import Tokens

# What names represent: a declaration, the uses of it, names of other files, and the scopes they are seen in.


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


# Scopes are those of the resolver, but nothing is complained about: a tree with holes, as while it is typed, gives the
# names that are there.

# Settings whose values are words of their own, not names.
_WORD_FORMS: Final = frozenset({"word", "words", "memory", "backoff", "capabilities"})
_DECLARED: Final[dict[type, str]] = {
    ast.Function: "function",
    ast.Tool: "tool",
    ast.Agent: "agent",
    ast.Supervisor: "supervisor",
    ast.Import: "import",
}


class Walk:
    """What is found on the way."""

    def __init__(self, text: str, tokens: Tokens, module: ast.Module) -> None:
        self.text = text
        self.tokens = tokens
        self.top = SymbolScope(None, 0, len(text))
        self.scopes = [self.top]
        self.symbols: list[SourceSymbol] = []
        self.uses: list[Use] = []
        self.members: list[MemberReference] = []
        self.settings: dict[int, tuple[str, str]] = {}  # where the name of a setting stands → its table, its name
        self.modules: list[tuple[int, str]] = []  # where the name of a library module stands
        self.errors: list[tuple[int, str]] = []  # where the name of an error stands
        self.types: list[tuple[int, str]] = []  # where the name of a type stands
        self.methods: list[ast.MethodCall | ast.Field] = []
        self.sends: list[ast.Send] = []
        self._declared: dict[int, SourceSymbol] = {}
        self._later: list[tuple[Any, SymbolScope]] = []
        self._calls: list[tuple[ast.Call, SourceSymbol | MemberReference | None]] = []
        self._statements(module.statements, self.top)
        while self._later:
            node, scope = self._later.pop()
            self._body(node, scope)
        for call, callee in self._calls:
            self._visit_arguments(call, callee)
        self.uses.sort(key=lambda use: use.at)
        self.members.sort(key=lambda member: member.at)

    # ---------------------------------------------------------------- places

    def symbol_of(self, node: ast.SyntaxNode) -> SourceSymbol | None:
        """Return what a node declares."""
        return self._declared.get(id(node))

    def word_from(self, offset: int, name: str) -> tuple[int, int]:
        """Find where a word first stands at or behind an offset; in a string's `${…}` it is looked for in the text."""
        starts, values = self.tokens.starts, self.tokens.values
        index = bisect_left(starts, offset)
        if index < len(starts) and starts[index] == offset:
            for i in range(index, min(index + 12, len(starts))):
                if values[i] == name and self.tokens.kinds[i] not in ("string", "template"):
                    return starts[i], starts[i] + len(name)
        word = re.compile(rf"\b{re.escape(name)}\b").search(self.text, offset)
        start = word.start() if word is not None else offset
        return start, start + len(name)

    # ---------------------------------------------------------------- declaring

    def _declare(
        self,
        node: ast.SyntaxNode,
        name: str,
        role: str,
        place: tuple[int, int],
        scope: SymbolScope,
        *,
        since: int = 0,
        owner: SourceSymbol | None = None,
    ) -> SourceSymbol:
        symbol = SourceSymbol(name, role, place, node, owner=owner)
        symbol.is_top = scope is self.top
        scope.names[name] = symbol
        scope.entries.append((since, symbol))
        self.symbols.append(symbol)
        self._declared[id(node)] = symbol
        self.uses.append(Use(*place, symbol))
        return symbol

    def _import_place(self, node: ast.Import) -> tuple[int, int]:
        """Return the name behind `as`; without one, the text it was taken from."""
        alias = re.compile(rf"\bas\s+({re.escape(node.name)})\b").search(self.text, node.at, node.end)
        if alias is not None and alias.start() > self.text.find('"', node.at):
            return alias.span(1)
        offset = self.text.find('"', node.at)
        return offset, min(node.end, offset + len(node.target) + 2)

    def _scope(self, parent: SymbolScope, node: ast.SyntaxNode, owner: SourceSymbol | None = None) -> SymbolScope:
        scope = SymbolScope(parent, node.at, node.end, owner)
        self.scopes.append(scope)
        return scope

    # ---------------------------------------------------------------- statements

    def _statements(self, statements: list[ast.Statement], scope: SymbolScope) -> None:
        for node in statements:
            role = _DECLARED.get(type(node))
            if isinstance(node, ast.Const):
                self._declare(node, node.name, "constant", self.word_from(node.at, node.name), scope)
            elif isinstance(node, ast.Import):
                if node.name:
                    self._declare(node, node.name, "import", self._import_place(node), scope)
            elif role is not None:
                name = getattr(node, "name", "")
                self._declare(node, name, role, self.word_from(node.at, name), scope)
        for statement in statements:
            self._walk(statement, scope)

    def _walk(self, node: Any, scope: SymbolScope) -> None:
        rule = _RULES.get(type(node))
        if rule is not None:
            rule(self, node, scope)
        elif isinstance(node, ast.SyntaxNode):
            for part in parts_of(node):
                self._walk(part, scope)
        elif isinstance(node, (list, tuple)):
            for part in node:
                self._walk(part, scope)
        elif isinstance(node, dict):
            for part in node.values():
                self._walk(part, scope)

    def _block(self, node: ast.Block, parent: SymbolScope) -> None:
        self._statements(node.statements, self._scope(parent, node))

    def _binary(self, node: ast.Binary, scope: SymbolScope) -> None:
        spine: list[ast.Expression] = []
        left: ast.Expression = node
        while isinstance(left, ast.Binary):
            spine.append(left.right)
            left = left.left
        self._walk(left, scope)
        for right in reversed(spine):
            self._walk(right, scope)

    def _if(self, node: ast.If, scope: SymbolScope) -> None:
        branch: ast.Block | ast.If | None = node
        while isinstance(branch, ast.If):
            self._walk(branch.condition, scope)
            self._block(branch.then, scope)
            branch = branch.otherwise
        self._walk(branch, scope)

    def _let(self, node: ast.Let, scope: SymbolScope) -> None:
        self._walk(node.type, scope)
        place = self.word_from(node.at, node.name)
        if isinstance(node.value, ast.Lambda) and scope.find(node.name) is None:  # it may call itself
            self._declare(node, node.name, "variable", place, scope, since=node.at)
            self._walk(node.value, scope)
            return
        self._walk(node.value, scope)
        self._declare(node, node.name, "variable", place, scope, since=node.end)

    def _for(self, node: ast.For, parent: SymbolScope) -> None:
        scope = self._scope(parent, node)
        for part in (node.start, node.condition, node.step):
            self._walk(part, scope)
        self._block(node.body, scope)

    def _for_in(self, node: ast.ForIn, parent: SymbolScope) -> None:
        self._walk(node.source, parent)
        scope = self._scope(parent, node.body)
        self._declare(node, node.name, "variable", self.word_from(node.at, node.name), scope)
        self._block(node.body, scope)

    def _catch(self, node: ast.Catch, parent: SymbolScope) -> None:
        offset, end = self.word_from(node.at, node.error)
        self.errors.append((offset, node.error))
        scope = self._scope(parent, node)
        if node.binding:
            place = self.word_from(end + self.text[end : node.end].find("(") + 1, node.binding)
            self._declare(node, node.binding, "variable", place, scope)
        self._block(node.body, scope)

    def _throw(self, node: ast.Throw, scope: SymbolScope) -> None:
        if node.value is None or node.error != "Error":
            self.errors.append((self.word_from(node.at, node.error)[0], node.error))
        self._walk(node.value, scope)

    def _parallel(self, node: ast.Parallel, scope: SymbolScope) -> None:
        self._statements(node.body.statements, scope)  # its names are seen after it

    def _arm(self, node: ast.Arm, parent: SymbolScope) -> None:
        scope = self._scope(parent, node)
        self._walk(node.pattern, scope)
        self._block(node.body, scope)

    def _name_pattern(self, node: ast.NamePattern, scope: SymbolScope) -> None:
        self._declare(node, node.name, "variable", (node.at, node.at + len(node.name)), scope)

    def _mock(self, node: ast.Mock, scope: SymbolScope) -> None:
        offset, end = self.word_from(node.at + len("mock"), node.agent)
        self._resolve(node.agent, offset, end, scope)
        self._walk(node.replies, scope)

    # ---------------------------------------------------------------- declarations

    def _declaration(self, node: Any, scope: SymbolScope) -> None:
        """Read a declaration. The insides of those of the top level come last: they may use everything there."""
        if scope is self.top:
            self._later.append((node, scope))
        else:
            self._body(node, scope)

    def _body(self, node: Any, parent: SymbolScope) -> None:
        symbol = self.symbol_of(node)
        scope = self._scope(parent, node, symbol or SourceSymbol("", "test", (node.at, node.at), node, owner=None))
        if isinstance(node, ast.Agent):
            self._agent(node, symbol, scope)
        elif isinstance(node, ast.Supervisor):
            self._settings("supervisor", node.settings, node.places, SUPERVISION, scope)
            for child in node.children:
                place = self.word_from(child.at + len("child"), child.name)
                self._declare(child, child.name, "child", place, SymbolScope(None, 0, 0), owner=symbol)
                self._walk(child.target, scope)
        else:
            if isinstance(node, ast.Tool):
                self._settings("tool", node.settings, node.places, TOOL_SETTINGS, scope)
            self._parameters(getattr(node, "parameters", ()), scope, symbol)
            self._walk(getattr(node, "result", None), scope)
            self._block(node.body, scope)

    def _parameters(self, parameters: Any, scope: SymbolScope, owner: SourceSymbol | None) -> None:
        for parameter in parameters:
            self._walk(parameter.type, scope)
            self._walk(parameter.default, scope)
            place = (parameter.at, parameter.at + len(parameter.name))
            self._declare(parameter, parameter.name, "parameter", place, scope, owner=owner)

    def _lambda(self, node: ast.Lambda, parent: SymbolScope) -> None:
        scope = self._scope(parent, node)
        self._parameters(node.parameters, scope, None)
        self._block(node.body, scope)

    def _agent(self, node: ast.Agent, symbol: SourceSymbol | None, scope: SymbolScope) -> None:
        tools = SymbolScope(scope, node.at, node.end)
        for tool in node.tools:
            place = self.word_from(tool.at + len("tool"), tool.name)
            self._declare(tool, tool.name, "tool", place, tools, owner=symbol)
        plain: dict[str, ast.Expression] = {}
        for name, value in node.fields.items():
            if isinstance(value, dict):
                self.settings[node.places[name]] = ("agent", name)
                places = {setting: node.places.get(f"{name}.{setting}", -1) for setting in value}
                self._settings(name, value, places, BLOCKS.get(name, {}), scope)
            else:
                plain[name] = value
        self._settings("agent", plain, node.places, AGENT_FIELDS, tools)
        for tool in node.tools:
            self._body(tool, scope)

    def _settings(
        self, what: str, settings: dict[str, Any], places: dict[str, int], table: dict[str, str], scope: SymbolScope
    ) -> None:
        for name, value in settings.items():
            self.settings[places.get(name, -1)] = (what, name)
            if table.get(name, "").split(" ")[0] not in _WORD_FORMS:
                self._walk(value, scope)
            elif isinstance(value, ast.Call):  # `window(n)`, `exponential(base, …)`
                self._walk(value.arguments, scope)

    def _supervision(self, node: ast.Supervision, scope: SymbolScope) -> None:
        self._settings("supervision", node.settings, node.places, SUPERVISION, scope)

    # ---------------------------------------------------------------- names

    def _resolve(self, name: str, offset: int, end: int, scope: SymbolScope) -> SourceSymbol | MemberReference | None:
        symbol = scope.find(name)
        if symbol is not None:
            self.uses.append(Use(offset, end, symbol))
            return symbol
        if name in GLOBALS:
            self.members.append(MemberReference(offset, end, None, "", name))
            return self.members[-1]
        return None

    def _name(self, node: ast.Name, scope: SymbolScope) -> None:
        self._resolve(node.name, node.at, node.end, scope)

    def _path(self, node: ast.Path, scope: SymbolScope) -> None:
        self._member(node, scope)

    def _member(self, node: ast.Path, scope: SymbolScope) -> MemberReference:
        imported = scope.find(node.module)
        module = imported if imported is not None and imported.role == "import" else None
        if module is not None:
            self.uses.append(Use(node.at, node.at + len(node.module), module))
        else:
            self.modules.append((node.at, node.module))
        member = MemberReference(node.end - len(node.name), node.end, module, node.module, node.name)
        self.members.append(member)
        return member

    def _type(self, node: ast.Type, scope: SymbolScope) -> None:
        symbol = scope.find(node.name)
        if symbol is not None and symbol.role == "agent":
            self.uses.append(Use(node.at, node.at + len(node.name), symbol))
        elif not node.fields:
            self.types.append((node.at, node.name))
        self._walk(node.parameters, scope)
        self._walk(node.fields, scope)

    def _call(self, node: ast.Call, scope: SymbolScope) -> None:
        callee: SourceSymbol | MemberReference | None = None
        if isinstance(node.callee, ast.Name):
            callee = self._resolve(node.callee.name, node.callee.at, node.callee.end, scope)
        elif isinstance(node.callee, ast.Path):
            callee = self._member(node.callee, scope)
        else:
            self._walk(node.callee, scope)
        self._calls.append((node, callee))
        self._walk(node.arguments, scope)

    def _walk_dotted(self, node: ast.MethodCall | ast.Field, scope: SymbolScope) -> None:
        self.methods.append(node)
        self._walk(node.target, scope)
        if isinstance(node, ast.MethodCall):
            self._walk(node.arguments, scope)

    def _send(self, node: ast.Send, scope: SymbolScope) -> None:
        self.sends.append(node)
        self._walk([node.target, node.message, node.timeout, node.budget], scope)

    def _visit_arguments(self, call: ast.Call, callee: SourceSymbol | MemberReference | None) -> None:
        for argument in call.arguments:
            if not argument.name or callee is None:
                continue
            place = (argument.at, argument.at + len(argument.name))
            if isinstance(callee, MemberReference):
                self.members.append(callee._replace(at=place[0], end=place[1], parameter=argument.name))
                continue
            node: Any = callee.node.value if isinstance(callee.node, ast.Let) else callee.node
            for parameter in getattr(node, "parameters", ()):
                symbol = self.symbol_of(parameter)
                if symbol is not None and symbol.name == argument.name:
                    self.uses.append(Use(*place, symbol))


_RULES: Final[dict[type, Any]] = {
    ast.Name: Walk._name,
    ast.Path: Walk._path,
    ast.Type: Walk._type,
    ast.Call: Walk._call,
    ast.MethodCall: Walk._walk_dotted,
    ast.Field: Walk._walk_dotted,
    ast.Send: Walk._send,
    ast.Binary: Walk._binary,
    ast.If: Walk._if,
    ast.Let: Walk._let,
    ast.Block: Walk._block,
    ast.For: Walk._for,
    ast.ForIn: Walk._for_in,
    ast.Catch: Walk._catch,
    ast.Throw: Walk._throw,
    ast.Parallel: Walk._parallel,
    ast.Arm: Walk._arm,
    ast.NamePattern: Walk._name_pattern,
    ast.Mock: Walk._mock,
    ast.Lambda: Walk._lambda,
    ast.Supervision: Walk._supervision,
    ast.Function: Walk._declaration,
    ast.Tool: Walk._declaration,
    ast.Agent: Walk._declaration,
    ast.Supervisor: Walk._declaration,
    ast.Test: Walk._declaration,
    ast.Import: lambda *_: None,
}


_Written = TypeVar("_Written", Use, MemberReference)


class SymbolIndex(Walk):
    """All names of one file."""

    def use_at(self, offset: int) -> Use | None:
        """Return the name under an offset, or just before it."""
        return _under(self.uses, offset)

    def member_at(self, offset: int) -> MemberReference | None:
        return _under(self.members, offset)

    def places(self, symbol: SourceSymbol) -> list[tuple[int, int]]:
        """Everywhere in this file where a symbol of it is written, its declaration first in order of place."""
        return [(use.at, use.end) for use in self.uses if use.symbol is symbol]

    def find_export(self, name: str) -> SourceSymbol | None:
        """Return what `name` means to a file that imports this one."""
        symbol = self.top.names.get(name)
        return None if symbol is None or symbol.role == "import" else symbol

    def scope_at(self, offset: int) -> SymbolScope:
        inside = [scope for scope in self.scopes if scope.at <= offset <= scope.end]
        return min(inside, key=lambda scope: scope.end - scope.at, default=self.top)

    def visible(self, offset: int) -> dict[str, SourceSymbol]:
        """Return what can be named at an offset."""
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
