"""Checking expressions: every name is known, every call fits, and the kinds of what is put together go together.

`kind_of(check, expression)` checks an expression and gives what is known of its value. Long chains of operators are
walked in a loop, not by recursion: a generated source may hold thousands of `+` in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from lyra.vega.checker.scope import (
    ROLES,
    Binding,
    CheckContext,
    CheckScope,
    ModuleCheck,
    Signature,
    nearest,
    read_entry,
)
from lyra.vega.checker.types import (
    ANY,
    BOOL,
    FOREIGN_METHODS,
    STR,
    ValueKind,
    an,
    kind_from_operator,
    kind_from_word,
    kind_of_literal,
)
from lyra.vega.stdlib.table import GLOBALS, LIBRARY, METHODS
from lyra.vega.syntax import ast

NOT_CALLED: Final = ("agent", "supervisor")
_FIELDS: Final[dict[str, dict[str, ValueKind]]] = {
    "response": {"status": ValueKind("int"), "body": STR, "headers": ValueKind("map")}
}
_SCALARS: Final = ("null", "bool", "int", "float", "money", "duration", "str")


def kind_of(check: ModuleCheck, node: ast.Expression) -> ValueKind:
    return check.kind_rules[type(node)](check, node)


# ---------------------------------------------------------------- values and names


def _kind_of_interpolation(check: ModuleCheck, node: ast.Interpolation) -> ValueKind:
    for part in node.parts:
        if isinstance(part, ast.Expression):
            kind_of(check, part)
    return STR


def _kind_of_name(check: ModuleCheck, node: ast.Name) -> ValueKind:
    binding = check.scope.find(node.name)
    if binding is None:
        if node.name not in GLOBALS:
            check.unknown(node, node.name)
            return ANY
        return ValueKind("function")
    if binding.role in NOT_CALLED:
        hint = f"start it with `spawn {node.name}`"
        check.error_on(node, f"`{node.name}` is {ROLES[binding.role]}, not a value", hint)
        return ANY
    if binding.role == "import" and binding.members is not None:
        check.error_on(node, f"`{node.name}` is an imported file, not a value", f"write `{node.name}::name`")
    return binding.kind


def _kind_of_path(check: ModuleCheck, node: ast.Path) -> ValueKind:
    binding = member_of(check, node)
    if binding is not None and binding.role in NOT_CALLED:
        hint = f"start it with `spawn {node.module}::{node.name}`"
        check.error_on(node, f"`{node.module}::{node.name}` is {ROLES[binding.role]}, not a value", hint)
    return binding.kind if binding is not None else ANY


def member_of(check: ModuleCheck, node: ast.Path) -> Binding | None:
    """Return what `module::name` represents; None if it is unknown, which is reported, or if the imported file was not
    read."""
    module = check.scope.find(node.module)
    if module is not None and module.role == "import":
        if module.members is None:
            return None
        known: Any = module.members
    elif node.module in LIBRARY:
        known = LIBRARY[node.module]
    else:
        bindings = {name: check.scope.find(name) for name in check.scope.all_names()}
        modules = {name for name, binding in bindings.items() if binding and binding.role == "import"} | set(LIBRARY)
        near = nearest(node.module, modules)
        hint = f"did you mean `{near}`?" if near else None
        if module is not None:
            hint = f"`{node.module}` is {ROLES[module.role]}; its parts are reached with `.`"
        check.error(node.at, node.at + len(node.module), f"unknown module `{node.module}`", hint)
        return None
    if node.name not in known:
        near = nearest(node.name, known)
        hint = f"did you mean `{near}`?" if near else f"it has {', '.join(sorted(known)[:12])}"
        check.error(node.end - len(node.name), node.end, f"`{node.module}` has no `{node.name}`", hint)
        return None
    entry = known[node.name]
    return entry if isinstance(entry, Binding) else Binding("function", ValueKind("function"), read_entry(entry))


def _kind_of_list(check: ModuleCheck, node: ast.ListLiteral) -> ValueKind:
    kinds: set[ValueKind] = set()
    for item in node.items:  # a comprehension would cost a frame for each level of nesting
        kinds.add(kind_of(check, item))
    return ValueKind("list", (kinds.pop(),)) if len(kinds) == 1 else ValueKind("list", (ANY,))


def _kind_of_map(check: ModuleCheck, node: ast.MapLiteral) -> ValueKind:
    seen: set[tuple[type, Any]] = set()
    keys: set[ValueKind] = set()
    values: set[ValueKind] = set()
    for key, value in node.entries:
        if isinstance(key, ast.Name) and check.scope.find(key.name) is None:
            check.error_on(key, f"unknown name `{key.name}`", f'a key that is a text stands in quotes: `"{key.name}"`')
        else:
            keys.add(kind_of(check, key))
        values.add(kind_of(check, value))
        if isinstance(key, ast.Literal) and isinstance(key.value, (str, int)):
            if (type(key.value), key.value) in seen:
                check.warn(key.at, key.end, "this key is given twice", "the last value wins")
            seen.add((type(key.value), key.value))
    return ValueKind("map", (keys.pop() if len(keys) == 1 else ANY, values.pop() if len(values) == 1 else ANY))


# ---------------------------------------------------------------- operators


def _kind_of_unary(check: ModuleCheck, node: ast.Unary) -> ValueKind:
    kind = kind_of(check, node.operand)
    if node.operator == "!":
        if kind.name not in ("any", "bool"):
            check.fault(node.operand, f"`!` takes a bool, not {an(kind)}")
        return BOOL
    if kind.name not in ("any", "int", "float", "money", "duration"):
        check.fault(node, f"{an(kind)} has no `-`")
        return ANY
    return kind


def _kind_of_binary(check: ModuleCheck, node: ast.Binary) -> ValueKind:
    chain = [node]
    while isinstance(chain[-1].left, ast.Binary):
        chain.append(chain[-1].left)
    kind = kind_of(check, chain[-1].left)
    for link in reversed(chain):
        kind = _kind_of_operation(check, link, kind, kind_of(check, link.right))
    return kind


def _kind_of_operation(check: ModuleCheck, node: ast.Binary, left: ValueKind, right: ValueKind) -> ValueKind:
    kind = kind_from_operator(node.operator, left, right)
    if kind is None:
        hint = _mix_hint(node.operator, left, right)
        check.fault(node, f"`{node.operator}` cannot join {an(left)} and {an(right)}", hint)
        return ANY
    if node.operator in ("==", "!=") and left.name != right.name:
        both = {left.name, right.name}
        if both & {"money", "duration"} and not both & {"any", "null"}:
            check.warn(node.at, node.end, f"{an(left)} never equals {an(right)}", _mix_hint("==", left, right))
    return kind


def _kind_of_index(check: ModuleCheck, node: ast.Index) -> ValueKind:
    target, index = kind_of(check, node.target), kind_of(check, node.index)
    if target.name not in ("any", "list", "map", "str"):
        check.fault(node, f"{an(target)} has no items", "only lists and maps have `[…]`")
        return ANY
    if target.name in ("list", "str") and index.name not in ("any", "int"):
        check.fault(node.index, f"the index of {an(target)} is an int, not {an(index)}")
    if target.name == "map" and target.inner:
        check.require_kind(node.index, target.inner[0], index, "the key of this map")
    if target.fields:
        key = node.index.value if isinstance(node.index, ast.Literal) else None
        return _kind_of_record_field(check, target, key, node.index.at, node.index.end) if isinstance(key, str) else ANY
    return target.inner[-1] if target.inner else ANY


def _kind_of_record_field(check: ModuleCheck, kind: ValueKind, name: str, offset: int, end: int) -> ValueKind:
    """Return a field of a map whose type says which it has."""
    known = dict(kind.fields)
    if name not in known:
        near = nearest(name, known)
        check.error(offset, end, f"{kind} has no field `{name}`", f"did you mean `{near}`?" if near else None)
    return known.get(name, ANY)


def _kind_of_field(check: ModuleCheck, node: ast.Field) -> ValueKind:
    kind = kind_of(check, node.target)
    if kind.fields:
        return _kind_of_record_field(check, kind, node.name, node.end - len(node.name), node.end)
    known = _FIELDS.get(kind.name)
    if known is not None and node.name not in known:
        near = nearest(node.name, known)
        hint = f"did you mean `{near}`?" if near else f"it has {', '.join(known)}"
        check.error(node.end - len(node.name), node.end, f"{an(kind)} has no field `{node.name}`", hint)
    elif kind.name == "null":
        check.fault(node, f"null has no field `{node.name}`")
    elif kind.name in _SCALARS or kind.name in ("list", "function"):
        called = f"a method is called: `.{node.name}()`" if node.name in methods_of(kind.name) else None
        check.error(node.end - len(node.name), node.end, f"{an(kind)} has no field `{node.name}`", called)
    return known.get(node.name, ANY) if known is not None else ANY


# ---------------------------------------------------------------- calls


def _kind_of_call(check: ModuleCheck, node: ast.Call) -> ValueKind:
    callee = node.callee
    name = ""
    signature: Signature | None = None
    kind = ANY
    if isinstance(callee, ast.Name):
        name, binding = callee.name, check.scope.find(callee.name)
        if binding is None and name in GLOBALS:
            signature = read_entry(GLOBALS[name])
        elif binding is not None and binding.role in NOT_CALLED:
            check.error_on(callee, f"`{name}` is {ROLES[binding.role]} and cannot be called", f"`spawn {name}`")
        else:
            kind = kind_of(check, callee)
            signature = binding.signature if binding is not None else None
    elif isinstance(callee, ast.Path):
        name, member = f"{callee.module}::{callee.name}", member_of(check, callee)
        if member is not None and member.role in NOT_CALLED:
            check.error_on(callee, f"`{name}` is {ROLES[member.role]} and cannot be called", f"`spawn {name}`")
        elif member is not None:
            kind, signature = member.kind, member.signature
    else:
        kind = kind_of(check, callee)
        if isinstance(callee, ast.Lambda):
            name = f"|{', '.join(parameter.name for parameter in callee.parameters)}|"
            signature = check.signature(callee.parameters, None)
    given: list[tuple[ast.Argument, ValueKind]] = []
    for argument in node.arguments:  # a loop: a comprehension costs a frame for each level of nesting
        given.append((argument, kind_of(check, argument.value)))  # noqa: PERF401
    if signature is not None:
        check.arguments(name, node, given, signature)
        return signature.result
    if kind.name not in ("any", "function"):
        check.fault(callee, f"{an(kind)} cannot be called")
    return ANY


def _kind_of_method_call(check: ModuleCheck, node: ast.MethodCall) -> ValueKind:
    kind = kind_of(check, node.target)
    given: list[tuple[ast.Argument, ValueKind]] = []
    for argument in node.arguments:  # a loop: a comprehension costs a frame for each level of nesting
        given.append((argument, kind_of(check, argument.value)))  # noqa: PERF401
    methods = methods_of(kind.name)
    signature = methods.get(node.name)
    named = next((argument for argument in node.arguments if argument.name), None)
    if named is not None:  # what a method is called depends on the value, which is known when it runs
        check.error_on(named, "an argument of a method has no name", f"write `.{node.name}(value)`")
        return ANY
    if signature is not None and signature is not _ANYHOW:
        check.arguments(f".{node.name}", node, given, signature)
        return signature.result
    # A map may hold functions under its keys, so any name may be one of its own.
    if kind.name == "null":
        check.fault(node, f"null has no method `{node.name}`")
    elif signature is None and (methods or kind.name in _SCALARS) and kind.name != "map":
        near = nearest(node.name, methods) or next(
            (name for name in FOREIGN_METHODS.get(node.name, ()) if name in methods), None
        )
        offset = check.source.text.find(node.name, node.target.end, node.end)
        message = f"{an(kind)} has no method `{node.name}`"
        check.error(offset, offset + len(node.name), message, f"did you mean `{near}`?" if near else None)
    return ANY


def _kind_of_lambda(check: ModuleCheck, node: ast.Lambda) -> ValueKind:
    check_function_body(check, node.parameters, node.body, ANY)
    return ValueKind("function")


def check_function_body(
    check: ModuleCheck, parameters: list[ast.Parameter], body: ast.Block, result: ValueKind
) -> None:
    """Parameters, their defaults and the body, in their own scope."""
    outer, context = check.scope, check.context
    check.scope = CheckScope(outer)
    check.context = CheckContext(in_function=True, in_test=context.in_test, in_try=context.in_try, result=result)
    had_default = ""
    for parameter in parameters:
        kind = check.kind_of_type(parameter.type)
        if parameter.default is not None:
            had_default = parameter.name
            check.require_kind(parameter.default, kind, kind_of(check, parameter.default), f"`{parameter.name}`")
        elif had_default:
            hint = f"`{had_default}` before it has one"
            check.error_on(parameter, f"`{parameter.name}` needs a default too", hint)
        if parameter.name in check.scope.names:
            check.error_on(parameter, f"two parameters are called `{parameter.name}`")
        check.scope.names[parameter.name] = Binding("variable", kind, is_declared=parameter.type is not None)
    check.block_rule(check, body)
    check.scope, check.context = outer, context


_ANYHOW: Final = Signature((), frozenset(), kind_from_word("any"))


@cache
def methods_of(kind: str) -> Mapping[str, Signature]:
    """Return what may stand behind the dot of a value of that kind; nothing when that is not known."""
    if kind not in METHODS:
        return {}
    rows = {name: read_entry(entry, is_method=True) for name, entry in LIBRARY.get(kind, {}).items()}
    for name, target in METHODS[kind].items():
        module, _, function = target.partition("::")
        entry = LIBRARY.get(module, {}).get(function)
        rows[name] = read_entry(entry, is_method=True) if entry is not None else _ANYHOW
    return rows


def _mix_hint(sign: str, left: ValueKind, right: ValueKind) -> str | None:
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


KINDS: Final[dict[type, Callable[[ModuleCheck, Any], ValueKind]]] = {
    ast.Literal: lambda _, node: kind_of_literal(node.value),
    ast.Interpolation: _kind_of_interpolation,
    ast.Name: _kind_of_name,
    ast.Path: _kind_of_path,
    ast.ListLiteral: _kind_of_list,
    ast.MapLiteral: _kind_of_map,
    ast.TypeLiteral: lambda check, node: check.kind_of_type(node.type),
    ast.Lambda: _kind_of_lambda,
    ast.Unary: _kind_of_unary,
    ast.Binary: _kind_of_binary,
    ast.Index: _kind_of_index,
    ast.Field: _kind_of_field,
    ast.Call: _kind_of_call,
    ast.MethodCall: _kind_of_method_call,
}
