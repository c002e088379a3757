"""Checking expressions: every name is known, every call fits, and the kinds of what is put together go together.

`kind(expression)` looks at an expression and gives what is known of its value. Long chains of operators are walked in a
loop, not by recursion: a generated source may hold thousands of `+` in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from lyra.vega.checker.scope import ROLES, Binding, Context, Scope, Scopes, Signature, nearest, of_entry
from lyra.vega.checker.types import ANY, BOOL, FOREIGN_METHODS, STR, Kind, an, kind_of_literal, of_operator, of_word
from lyra.vega.stdlib.table import GLOBALS, LIBRARY, METHODS
from lyra.vega.syntax.ast import (
    Argument,
    Binary,
    Block,
    Call,
    Expression,
    Field,
    Index,
    Interpolation,
    Lambda,
    ListLiteral,
    Literal,
    MapLiteral,
    MethodCall,
    Name,
    Parameter,
    Path,
    TypeLiteral,
    Unary,
)

__all__ = ["KINDS", "NOT_CALLED", "ExpressionChecker"]

NOT_CALLED: Final = ("agent", "supervisor")
_FIELDS: Final[dict[str, dict[str, Kind]]] = {
    "response": {"status": Kind("int"), "body": STR, "headers": Kind("map")},
}
_SCALARS: Final = ("null", "bool", "int", "float", "money", "duration", "str")


class ExpressionChecker(Scopes):
    def block(self, block: Block, scope: Scope | None = None) -> None:
        raise NotImplementedError

    def kind(self, node: Expression) -> Kind:
        return KINDS[type(node)](self, node)

    # ---------------------------------------------------------------- values and names

    def _literal(self, node: Literal) -> Kind:
        return kind_of_literal(node.value)

    def _interpolation(self, node: Interpolation) -> Kind:
        for part in node.parts:
            if isinstance(part, Expression):
                self.kind(part)
        return STR

    def _name(self, node: Name) -> Kind:
        binding = self.scope.find(node.name)
        if binding is None:
            if node.name not in GLOBALS:
                self.unknown(node, node.name)
                return ANY
            return Kind("function")
        if binding.role in NOT_CALLED:
            hint = f"start it with `spawn {node.name}`"
            self.error_on(node, f"`{node.name}` is {ROLES[binding.role]}, not a value", hint)
            return ANY
        if binding.role == "import" and binding.members is not None:
            self.error_on(node, f"`{node.name}` is an imported file, not a value", f"write `{node.name}::name`")
        return binding.kind

    def _path(self, node: Path) -> Kind:
        binding = self.member(node)
        if binding is not None and binding.role in NOT_CALLED:
            hint = f"start it with `spawn {node.module}::{node.name}`"
            self.error_on(node, f"`{node.module}::{node.name}` is {ROLES[binding.role]}, not a value", hint)
        return binding.kind if binding is not None else ANY

    def member(self, node: Path) -> Binding | None:
        """What `module::name` stands for; None if unknown, which is told, or if nobody can know."""
        found = self.scope.find(node.module)
        if found is not None and found.role == "import":
            if found.members is None:
                return None
            known: Any = found.members
        elif node.module in LIBRARY:
            known = LIBRARY[node.module]
        else:
            modules = {name for name in self.scope.all_names() if self._is_import(name)} | set(LIBRARY)
            near = nearest(node.module, modules)
            hint = f"did you mean `{near}`?" if near else None
            if found is not None:
                hint = f"`{node.module}` is {ROLES[found.role]}; its parts are reached with `.`"
            self.error(node.at, node.at + len(node.module), f"unknown module `{node.module}`", hint)
            return None
        if node.name not in known:
            near = nearest(node.name, known)
            hint = f"did you mean `{near}`?" if near else f"it has {', '.join(sorted(known)[:12])}"
            self.error(node.end - len(node.name), node.end, f"`{node.module}` has no `{node.name}`", hint)
            return None
        entry = known[node.name]
        return entry if isinstance(entry, Binding) else Binding("function", Kind("function"), of_entry(entry))

    def _is_import(self, name: str) -> bool:
        binding = self.scope.find(name)
        return binding is not None and binding.role == "import"

    def _list(self, node: ListLiteral) -> Kind:
        kinds: set[Kind] = set()
        for item in node.items:  # a comprehension would cost a frame for each level of nesting
            kinds.add(self.kind(item))
        return Kind("list", (kinds.pop(),)) if len(kinds) == 1 else Kind("list", (ANY,))

    def _map(self, node: MapLiteral) -> Kind:
        seen: set[tuple[type, Any]] = set()
        keys: set[Kind] = set()
        values: set[Kind] = set()
        for key, value in node.entries:
            if isinstance(key, Name) and self.scope.find(key.name) is None:
                self.error_on(
                    key, f"unknown name `{key.name}`", f'a key that is a text stands in quotes: `"{key.name}"`'
                )
            else:
                keys.add(self.kind(key))
            values.add(self.kind(value))
            if isinstance(key, Literal) and isinstance(key.value, (str, int)):
                if (type(key.value), key.value) in seen:
                    self.warn(key.at, key.end, "this key is given twice", "the last value wins")
                seen.add((type(key.value), key.value))
        return Kind("map", (keys.pop() if len(keys) == 1 else ANY, values.pop() if len(values) == 1 else ANY))

    def _type(self, node: TypeLiteral) -> Kind:
        return self.kind_of_type(node.type)

    # ---------------------------------------------------------------- operators

    def _unary(self, node: Unary) -> Kind:
        kind = self.kind(node.operand)
        if node.operator == "!":
            if kind.name not in ("any", "bool"):
                self.fault(node.operand, f"`!` takes a bool, not {an(kind)}")
            return BOOL
        if kind.name not in ("any", "int", "float", "money", "duration"):
            self.fault(node, f"{an(kind)} has no `-`")
            return ANY
        return kind

    def _binary(self, node: Binary) -> Kind:
        chain = [node]
        while isinstance(chain[-1].left, Binary):
            chain.append(chain[-1].left)
        kind = self.kind(chain[-1].left)
        for each in reversed(chain):
            kind = self._joined(each, kind, self.kind(each.right))
        return kind

    def _joined(self, node: Binary, left: Kind, right: Kind) -> Kind:
        found = of_operator(node.operator, left, right)
        if found is None:
            hint = _mix_hint(node.operator, left, right)
            self.fault(node, f"`{node.operator}` cannot join {an(left)} and {an(right)}", hint)
            return ANY
        if node.operator in ("==", "!=") and left.name != right.name:
            both = {left.name, right.name}
            if both & {"money", "duration"} and not both & {"any", "null"}:
                self.warn(node.at, node.end, f"{an(left)} never equals {an(right)}", _mix_hint("==", left, right))
        return found

    def _index(self, node: Index) -> Kind:
        target, index = self.kind(node.target), self.kind(node.index)
        if target.name not in ("any", "list", "map", "str"):
            self.fault(node, f"{an(target)} has no items", "only lists and maps have `[…]`")
            return ANY
        if target.name in ("list", "str") and index.name not in ("any", "int"):
            self.fault(node.index, f"the index of {an(target)} is an int, not {an(index)}")
        if target.name == "map" and target.inner:
            self.wanted(node.index, target.inner[0], index, "the key of this map")
        if target.fields:
            key = node.index.value if isinstance(node.index, Literal) else None
            return self._of_record(target, key, node.index.at, node.index.end) if isinstance(key, str) else ANY
        return target.inner[-1] if target.inner else ANY

    def _of_record(self, kind: Kind, name: str, at: int, end: int) -> Kind:
        """A field of a map whose type says which it has."""
        known = dict(kind.fields)
        if name not in known:
            near = nearest(name, known)
            self.error(at, end, f"{kind} has no field `{name}`", f"did you mean `{near}`?" if near else None)
        return known.get(name, ANY)

    def _field(self, node: Field) -> Kind:
        kind = self.kind(node.target)
        if kind.fields:
            return self._of_record(kind, node.name, node.end - len(node.name), node.end)
        known = _FIELDS.get(kind.name)
        if known is not None and node.name not in known:
            near = nearest(node.name, known)
            hint = f"did you mean `{near}`?" if near else f"it has {', '.join(known)}"
            self.error(node.end - len(node.name), node.end, f"{an(kind)} has no field `{node.name}`", hint)
        elif kind.name == "null":
            self.fault(node, f"null has no field `{node.name}`")
        elif kind.name in _SCALARS or kind.name in ("list", "function"):
            called = f"a method is called: `.{node.name}()`" if node.name in methods_of(kind.name) else None
            self.error(node.end - len(node.name), node.end, f"{an(kind)} has no field `{node.name}`", called)
        return known.get(node.name, ANY) if known is not None else ANY

    # ---------------------------------------------------------------- calls

    def _call(self, node: Call) -> Kind:
        callee = node.callee
        name = ""
        signature: Signature | None = None
        kind = ANY
        if isinstance(callee, Name):
            name, binding = callee.name, self.scope.find(callee.name)
            if binding is None and name in GLOBALS:
                signature = of_entry(GLOBALS[name])
            elif binding is not None and binding.role in NOT_CALLED:
                self.error_on(callee, f"`{name}` is {ROLES[binding.role]} and cannot be called", f"`spawn {name}`")
            else:
                kind = self.kind(callee)
                signature = binding.signature if binding is not None else None
        elif isinstance(callee, Path):
            name, found = f"{callee.module}::{callee.name}", self.member(callee)
            if found is not None and found.role in NOT_CALLED:
                self.error_on(callee, f"`{name}` is {ROLES[found.role]} and cannot be called", f"`spawn {name}`")
            elif found is not None:
                kind, signature = found.kind, found.signature
        else:
            kind = self.kind(callee)
            if isinstance(callee, Lambda):
                name = f"|{', '.join(parameter.name for parameter in callee.parameters)}|"
                signature = self.signature(callee.parameters, None)
        given: list[tuple[Argument, Kind]] = []
        for argument in node.arguments:  # a loop: a comprehension costs a frame for each level of nesting
            given.append((argument, self.kind(argument.value)))  # noqa: PERF401
        if signature is not None:
            self.arguments(name, node, given, signature)
            return signature.result
        if kind.name not in ("any", "function"):
            self.fault(callee, f"{an(kind)} cannot be called")
        return ANY

    def _method(self, node: MethodCall) -> Kind:
        kind = self.kind(node.target)
        given: list[tuple[Argument, Kind]] = []
        for argument in node.arguments:  # a loop: a comprehension costs a frame for each level of nesting
            given.append((argument, self.kind(argument.value)))  # noqa: PERF401
        methods = methods_of(kind.name)
        signature = methods.get(node.name)
        named = next((argument for argument in node.arguments if argument.name), None)
        if named is not None:  # what a method is called depends on the value, which is known when it runs
            self.error_on(named, "an argument of a method has no name", f"write `.{node.name}(value)`")
            return ANY
        if signature is not None and signature is not _ANYHOW:
            self.arguments(f".{node.name}", node, given, signature)
            return signature.result
        # A map may hold functions under its keys, so any name may be one of its own.
        if kind.name == "null":
            self.fault(node, f"null has no method `{node.name}`")
        elif signature is None and (methods or kind.name in _SCALARS) and kind.name != "map":
            near = nearest(node.name, methods) or next(
                (name for name in FOREIGN_METHODS.get(node.name, ()) if name in methods), None
            )
            at = self.source.text.find(node.name, node.target.end, node.end)
            message = f"{an(kind)} has no method `{node.name}`"
            self.error(at, at + len(node.name), message, f"did you mean `{near}`?" if near else None)
        return ANY

    def _lambda(self, node: Lambda) -> Kind:
        self.function_body(node.parameters, node.body, ANY)
        return Kind("function")

    def function_body(self, parameters: list[Parameter], body: Block, result: Kind) -> None:
        """Parameters, their defaults and the body, in a scope of their own."""
        outer, context = self.scope, self.context
        self.scope = Scope(outer)
        self.context = Context(in_function=True, in_test=context.in_test, in_try=context.in_try, result=result)
        had_default = ""
        for parameter in parameters:
            kind = self.kind_of_type(parameter.type)
            if parameter.default is not None:
                had_default = parameter.name
                self.wanted(parameter.default, kind, self.kind(parameter.default), f"`{parameter.name}`")
            elif had_default:
                hint = f"`{had_default}` before it has one"
                self.error_on(parameter, f"`{parameter.name}` needs a default too", hint)
            if parameter.name in self.scope.names:
                self.error_on(parameter, f"two parameters are called `{parameter.name}`")
            self.scope.names[parameter.name] = Binding("variable", kind, is_declared=parameter.type is not None)
        self.block(body)
        self.scope, self.context = outer, context


_ANYHOW: Final = Signature((), frozenset(), of_word("any"))


@cache
def methods_of(kind: str) -> Mapping[str, Signature]:
    """What may stand behind the dot of a value of that kind; nothing when that is not known."""
    if kind not in METHODS:
        return {}
    rows = {name: of_entry(entry, is_method=True) for name, entry in LIBRARY.get(kind, {}).items()}
    for name, target in METHODS[kind].items():
        module, _, function = target.partition("::")
        entry = LIBRARY.get(module, {}).get(function)
        rows[name] = of_entry(entry, is_method=True) if entry is not None else _ANYHOW
    return rows


def _mix_hint(sign: str, left: Kind, right: Kind) -> str | None:
    both = {left.name, right.name}
    if sign in ("&&", "||"):
        return "both sides are bools"
    if sign in ("/", "%") and left.name in ("money", "duration"):
        return f"{an(left)} is exact and cannot be divided"
    if both == {"money", "duration"}:
        return "an amount of money and a duration have nothing in common"
    if "money" in both and both & {"int", "float"}:
        return "money goes with money (`$0.50`) and is multiplied with whole numbers"
    if "duration" in both and both & {"int", "float"}:
        return "durations go with durations (`30s`) and are multiplied with whole numbers"
    return None


KINDS: Final[dict[type, Callable[[Any, Any], Kind]]] = {
    Literal: ExpressionChecker._literal,
    Interpolation: ExpressionChecker._interpolation,
    Name: ExpressionChecker._name,
    Path: ExpressionChecker._path,
    ListLiteral: ExpressionChecker._list,
    MapLiteral: ExpressionChecker._map,
    TypeLiteral: ExpressionChecker._type,
    Lambda: ExpressionChecker._lambda,
    Unary: ExpressionChecker._unary,
    Binary: ExpressionChecker._binary,
    Index: ExpressionChecker._index,
    Field: ExpressionChecker._field,
    Call: ExpressionChecker._call,
    MethodCall: ExpressionChecker._method,
}
