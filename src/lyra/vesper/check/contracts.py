"""Contracts, and constraints of inputs, fields and custom types, as conditions of the IR.

A contract is true, false or unverifiable, decided here as far as the text decides it. One that uses an undefined name,
or is a sentence rather than an expression, is unverifiable: a warning, an error with `strict`. A bare name, and a call
of an unknown function, are predicates of the embedding program. A mistake in an expression is an error.

A constraint is a check on `value`: a word (`non_empty`, `positive`, `negative`, `non_negative`), a pair (`min: 1`,
`max_length: 80`, `pattern: '^ord_'`), a comparison (`">= 0"`) or an expression over `value`. Those of a custom type
hold wherever the type is used: for a field, for each element of an array. A value that may be null is checked only
where it is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from lyra.core.checking.document import Path
from lyra.errors import ParseError
from lyra.vesper import ir
from lyra.vesper.check.functions import pattern_problem
from lyra.vesper.check.infer import Typing
from lyra.vesper.check.state import AMBIENT, CheckState, Element, NameScope, TextSite, UndefinedName
from lyra.vesper.check.types import TypeTable, element_of, field_type, is_ordered, is_text
from lyra.vesper.expressions.parser import KEYWORDS, parse_expression
from lyra.vesper.expressions.terms import NameTerm, Term
from lyra.vesper.loading import ERROR, WARNING
from lyra.vesper.nodes.model import ContractText, FieldDeclaration, TypeDeclaration
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.limits import TYPE_DEPTH_MAX
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    INTEGER,
    NULL,
    STRING,
    TIMESTAMP,
    Array,
    MapType,
    Nullable,
    RecordType,
    SetType,
    ValueType,
    describe,
    is_numeric,
    without_null,
)

_LOWER_KEYWORD: Final = re.compile(r"\b(and|or|not|in|contains|is|forall|exists)\b")


class ContractReader:
    """Reads contracts and guards."""

    def __init__(self, state: CheckState, typing: Typing) -> None:
        self.state = state
        self.typing = typing

    def contract(self, source: ContractText, scope: NameScope) -> ir.Contract:
        """Return a contract; without an expression where it cannot be judged."""
        site = TextSite(source.path)
        if source.is_prose:
            return self._unverifiable(source, "it is a sentence", site, 0)
        try:
            term = parse_expression(source.text)
        except ParseError as error:
            if _is_prose(source.text, error):
                return self._unverifiable(source, "it is a sentence", site, 0)
            self.state.syntax(error, site)
            return ir.Contract(source.text, None, "it cannot be read")
        slots = len(self.state.olds), dict(self.state.old_slots)
        try:
            expression = self._type_contract(term, scope, site)
        except UndefinedName as error:
            del self.state.olds[slots[0] :]
            self.state.old_slots = slots[1]
            hint = close_to(error.name, scope.names)
            if error.name in self.state.end_names:
                hint = "a variable is seen by invariants only: make it an output, or write what it stands for"
            return self._unverifiable(source, str(error), site, error.offset, hint)
        return ir.Contract(source.text, expression)

    def _type_contract(self, term: Term, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        name = _find_undefined_name(term, scope)
        if name is not None:
            message = f"the contract is unverifiable unless the embedding program has a predicate `{name}`"
            self.state.mark(WARNING, "unverifiable", message, site, term.start)
            return ir.HostCall(type=BOOLEAN, name=name, arguments=(), place=self.state.place(site, term.start))
        expression = self.typing.term(term, scope, site)
        self._boolean(expression, site, term)
        return expression

    def _unverifiable(
        self, source: ContractText, reason: str, site: TextSite, offset: int, hint: str = ""
    ) -> ir.Contract:
        self.state.mark(WARNING, "unverifiable", f"the contract is unverifiable: {reason}", site, offset, hint=hint)
        return ir.Contract(source.text, None, reason)

    def guard(self, value: object, path: tuple[str | int, ...], scope: NameScope) -> ir.Condition:
        """Return a guard: a condition, or the bare name of a predicate of the embedding program."""
        if not isinstance(value, str):
            expression = self.typing.condition(value, path, scope)
            return ir.Condition(str(value).lower() if isinstance(value, bool) else str(value), expression)
        site = TextSite(path)
        try:
            term = parse_expression(value)
        except ParseError as error:
            self.state.syntax(error, site)
            return ir.Condition(value, self.typing.value(None, path, scope))
        name = _find_undefined_name(term, scope)
        if name is not None:
            place = self.state.place(site, term.start)
            return ir.Condition(value, ir.HostCall(type=BOOLEAN, name=name, arguments=(), place=place))
        expression = self.typing.term(term, scope.copy_with(allows_hosts=True), site)
        self._boolean(expression, site, term)
        return ir.Condition(value, expression)

    def _boolean(self, expression: ir.TypedExpression, site: TextSite, term: Term) -> None:
        kind = without_null(expression.type)
        if kind not in (ANY, BOOLEAN, NULL):
            message = f"a condition is a boolean, not {describe(kind)}"
            self.state.mark(ERROR, "not_boolean", message, site, term.start)


def describe_unjudged(program: ir.NodeProgram) -> list[str]:
    """Return a sentence for each contract that no execution judges, with the reason."""
    contracts = (*program.preconditions, *program.postconditions, *program.invariants)
    return [f"never judged: {item.text}: {item.reason}" for item in contracts if item.expression is None]


def _find_undefined_name(term: Term, scope: NameScope) -> str | None:
    """Return the name of a term that is nothing but an undefined name."""
    if not isinstance(term, NameTerm):
        return None
    is_known = term.name in scope.names or term.name in scope.aliases or term.name in AMBIENT
    return None if is_known else term.name


def _is_prose(text: str, error: ParseError) -> bool:
    """Return whether a text is a sentence: two words in a row that are no keywords in the wrong case."""
    if not error.fields.get("after_name"):
        return False
    upper = _LOWER_KEYWORD.sub(lambda match: match[0].upper(), text)
    if upper == text or not KEYWORDS.intersection(upper.split()):
        return True
    try:
        parse_expression(upper)
    except ParseError:
        return True
    return False


_SIGNS: Final = {"positive": ">", "negative": "<", "non_negative": ">="}
_BOUNDS: Final = {"min": ">=", "max": "<="}
_LENGTHS: Final = {"min_length": ">=", "max_length": "<="}
_PAIRS: Final = (*_BOUNDS, *_LENGTHS, "pattern")
_COMPARISON: Final = re.compile(r"\s*(?:==|!=|<=|>=|<|>|IN\b|NOT IN\b)")
_PAIR: Final = re.compile(r"\s*(pattern|min|max|min_length|max_length)\s*:\s*(.+)\Z", re.DOTALL)
_INNER: Final = re.compile(r"\s*(?:array|set)\s*<(.*)>\s*\Z", re.DOTALL)


class Constraints:
    """Checks of the values of one node."""

    def __init__(self, state: CheckState, typing: Typing, types: TypeTable) -> None:
        self.state = state
        self.typing = typing
        self.types = types

    def build_conditions(
        self, field: FieldDeclaration, kind: ValueType, subject: ir.TypedExpression | None = None
    ) -> tuple[ir.Condition, ...]:
        """Return the checks of an input's or output's value. They are about `subject`, or about the name `value`
        without one."""
        target = subject or ir.NodeVariable(type=kind, name="value", place=self.state.document.place(field.path))
        checks = self._field(field, target, 0)
        return tuple(ir.Condition(text, self._unless_null(target, expression)) for text, expression in checks)

    def list_checks(self, text: str, kind: ValueType, path: Path) -> tuple[ir.Condition, ...]:
        """Return the checks of `value`, which has the type that the text names."""
        target = ir.NodeVariable(type=kind, name="value", place=self.state.document.place(path))
        checks = self._check_type(text, target, 0, path)
        return tuple(ir.Condition(text, self._unless_null(target, expression)) for text, expression in checks)

    def _unless_null(self, subject: ir.TypedExpression, expression: ir.TypedExpression) -> ir.TypedExpression:
        if not isinstance(subject.type, Nullable):
            return expression
        test = ir.IsNull(type=BOOLEAN, operand=subject, place=expression.place)
        return ir.Logic(type=BOOLEAN, operator="or", left=test, right=expression, place=expression.place)

    def _field(
        self, field: FieldDeclaration, subject: ir.TypedExpression, depth: int
    ) -> list[tuple[str, ir.TypedExpression]]:
        checks: list[tuple[str, ir.TypedExpression]] = []
        for value, path in field.constraints:
            check = self._constraint(value, path, subject, own_name=field.name)
            if check is not None:
                checks.append(check)
        return checks + self._check_type(field.type, subject, depth, field.path)

    # ------------------------------------------------------------ custom types
    def _check_type(
        self, text: str, subject: ir.TypedExpression, depth: int, path: Path
    ) -> list[tuple[str, ir.TypedExpression]]:
        if depth > TYPE_DEPTH_MAX or without_null(subject.type) == ANY:
            return []
        inner = _INNER.match(text)
        item = element_of(subject.type)
        if inner is not None and item is not None and subject.type != ANY:
            return self._check_elements(inner[1], item, subject, depth, path)
        declaration = self.types.declarations.get(text.strip())
        if declaration is not None:
            return self._check_custom(declaration, subject, depth)
        if text.strip().startswith("map") and any(name in text for name in self._list_constrained_types()):
            self.state.info("unchecked", "constraints of the values of a map are not checked", path)
        return []

    def _list_constrained_types(self) -> list[str]:
        return [name for name, declared in self.types.declarations.items() if declared.constraints]

    def _check_elements(
        self, text: str, item: ValueType, subject: ir.TypedExpression, depth: int, path: Path
    ) -> list[tuple[str, ir.TypedExpression]]:
        name = f"item_{depth}"
        element = ir.NodeVariable(type=item, name=name, place=subject.place)
        checks: list[tuple[str, ir.TypedExpression]] = []
        for label, body in self._check_type(text, element, depth + 1, path):
            inner = self._unless_null(element, body)
            checks.append(
                (
                    label,
                    ir.Quantifier(
                        type=BOOLEAN, kind="forall", name=name, collection=subject, body=inner, place=subject.place
                    ),
                )
            )
        return checks

    def _check_custom(
        self, declaration: TypeDeclaration, subject: ir.TypedExpression, depth: int
    ) -> list[tuple[str, ir.TypedExpression]]:
        checks: list[tuple[str, ir.TypedExpression]] = []
        if declaration.base is not None:
            checks += self._check_type(declaration.base.type, subject, depth + 1, declaration.path)
        for field in declaration.fields:
            kind = field_type(subject.type, field.name)
            if kind is None:
                continue
            target = ir.FieldOf(type=kind, target=subject, name=field.name, place=subject.place)
            checks += [
                (f"{field.name}: {text}", self._unless_null(target, check))
                for text, check in self._field(field, target, depth + 1)
            ]
        for value, path in declaration.constraints:
            check = self._constraint(value, path, subject, own_name=declaration.name)
            if check is not None:
                checks.append(check)
        return checks

    # ------------------------------------------------------------ one constraint
    def _constraint(
        self, value: Any, path: Path, subject: ir.TypedExpression, *, own_name: str
    ) -> tuple[str, ir.TypedExpression] | None:
        if isinstance(value, dict):
            key, item = next(iter(value.items()))
            return self._pair(key, item, path, subject)
        if not isinstance(value, str):
            self.state.error("bad_constraint", "a constraint is a text or a pair such as `min: 1`", path, value=True)
            return None
        word = value.strip()
        if word == "non_empty":
            return self._build_length_limit(word, ">", 0, path, subject)
        if word in _SIGNS:
            return self._build_limit(word, _SIGNS[word], 0, path, subject)
        pair = _PAIR.match(value)
        if pair is not None:
            return self._text_pair(pair[1], pair[2].strip(), path, subject)
        return self._expression(value, path, subject, own_name)

    def _text_pair(
        self, key: str, text: str, path: Path, subject: ir.TypedExpression
    ) -> tuple[str, ir.TypedExpression] | None:
        if key == "pattern":
            return self._pair(key, text.strip("'\""), path, subject)
        try:
            term = parse_expression(text)
        except ParseError:
            self.state.error("bad_constraint", f"`{key}` has no number", path, value=True)
            return None
        constant = self.typing.term(term, NameScope(names={}), TextSite(path, len(key) + 1))
        return self._pair(key, getattr(constant, "value", None), path, subject)

    def _pair(
        self, key: str, value: Any, path: Path, subject: ir.TypedExpression
    ) -> tuple[str, ir.TypedExpression] | None:
        text = f"{key}: {value}"
        if key in _BOUNDS:
            return self._build_limit(text, _BOUNDS[key], value, path, subject)
        if key in _LENGTHS:
            return self._build_length_limit(text, _LENGTHS[key], value, path, subject)
        if key == "pattern":
            return self._pattern(text, value, path, subject)
        if key in ("enum", "values", "one_of") and isinstance(value, list):
            collection = self.typing.value(value, path, NameScope(names={}))
            place = self.state.document.place(path)
            return text, ir.Membership(type=BOOLEAN, item=subject, collection=collection, place=place)
        self._unknown(key, path)
        return None

    def _unknown(self, word: str, path: Path) -> None:
        words = ("non_empty", *_SIGNS, *_PAIRS)
        hint = close_to(word, words) or f"write a condition such as `value > 0`, or one of {', '.join(words)}"
        self.state.error("bad_constraint", f"there is no constraint `{word}`", path, hint=hint)

    def _build_limit(
        self, text: str, operator: str, limit: Any, path: Path, subject: ir.TypedExpression
    ) -> tuple[str, ir.TypedExpression] | None:
        kind = without_null(subject.type)
        if kind == TIMESTAMP:
            limit_value = self.state.literal(limit, TIMESTAMP, path)
            constant: ir.TypedExpression = ir.Constant(type=TIMESTAMP, value=limit_value)
        else:
            constant = self.typing.value(limit, path, NameScope(names={}))
        if not is_ordered(kind, constant.type) or (constant.type != TIMESTAMP and not is_numeric(constant.type)):
            self._misfit(text, path, kind)
            return None
        return text, self._compare(operator, subject, constant, path)

    def _build_length_limit(
        self, text: str, operator: str, limit: Any, path: Path, subject: ir.TypedExpression
    ) -> tuple[str, ir.TypedExpression] | None:
        kind = without_null(subject.type)
        is_sized = kind in (ANY, BYTES) or is_text(kind) or isinstance(kind, (Array, SetType, MapType))
        if not is_sized:
            self._misfit(text, path, kind)
            return None
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            self.state.error("bad_constraint", "a length is a whole number, 0 or more", path, value=True)
            return None
        length = ir.Length(type=INTEGER, target=subject, place=self.state.document.place(path))
        return text, self._compare(operator, length, ir.Constant(type=INTEGER, value=limit), path)

    def _pattern(
        self, text: str, value: Any, path: Path, subject: ir.TypedExpression
    ) -> tuple[str, ir.TypedExpression] | None:
        kind = without_null(subject.type)
        if kind != ANY and not is_text(kind):
            self._misfit(text, path, kind)
            return None
        if not isinstance(value, str):
            self.state.error("bad_pattern", "a pattern is a text", path, value=True)
            return None
        reason = pattern_problem(value)
        if reason:
            self.state.error("bad_pattern", f"the pattern cannot be used: {reason}", path, value=True)
            return None
        pattern = ir.Constant(type=STRING, value=value)
        place = self.state.document.place(path)
        return text, ir.FunctionCall(type=BOOLEAN, function="matches", arguments=(subject, pattern), place=place)

    def _compare(
        self, operator: str, left: ir.TypedExpression, right: ir.TypedExpression, path: Path
    ) -> ir.TypedExpression:
        place = self.state.document.place(path)
        return ir.Compare(type=BOOLEAN, operator=operator, left=left, right=right, place=place)

    def _misfit(self, text: str, path: Path, kind: ValueType) -> None:
        self.state.error("bad_constraint", f"`{text[:80]}` does not fit a value of type {describe(kind)}", path)

    def _expression(
        self, text: str, path: Path, subject: ir.TypedExpression, own_name: str
    ) -> tuple[str, ir.TypedExpression] | None:
        """Return a comparison with the value on its left, or any expression over `value`."""
        lead = "value " if _COMPARISON.match(text) else ""
        site = TextSite(path, -len(lead))
        try:
            term = parse_expression(lead + text)
        except ParseError as error:
            self.state.syntax(error, site)
            return None
        kind = without_null(subject.type)
        element = Element("value", kind) if isinstance(kind, RecordType) else None
        aliases: dict[str, ir.TypedExpression] = {own_name: subject, "value": subject}
        if element is None:
            aliases.setdefault("length", ir.Length(type=INTEGER, target=subject, place=subject.place))
        fields = {field.name for field in kind.fields} if isinstance(kind, RecordType) else set()
        if isinstance(term, NameTerm) and term.name not in aliases and term.name not in fields:
            self._unknown(term.name, path)
            return None
        scope = NameScope(names={}, aliases=aliases, element=element, allows_hosts=True)
        expression = _over(subject, self.typing.term(term, scope, site))
        if without_null(expression.type) not in (ANY, BOOLEAN):
            kind_text = describe(without_null(expression.type))
            self.state.error("not_boolean", f"a constraint is a boolean, not {kind_text}", path, value=True)
            return None
        return text.strip(), expression


def _over(subject: ir.TypedExpression, expression: ir.TypedExpression) -> ir.TypedExpression:
    """Return the expression with the subject in place of `value`, the element of a record's constraints."""
    if isinstance(subject, ir.NodeVariable) and subject.name == "value":
        return expression
    replaced: ir.TypedExpression = replace_name(expression, "value", lambda: subject)
    return replaced


def replace_name(expression: Any, name: str, value: Callable[[], ir.TypedExpression]) -> Any:
    """Return the expression with another one in place of a name."""
    if isinstance(expression, ir.NodeVariable):
        return value() if expression.name == name else expression
    if isinstance(expression, tuple):
        return tuple(replace_name(item, name, value) for item in expression)
    if isinstance(expression, ir.TypedExpression):
        fields = {field: getattr(expression, field) for field in expression.__struct_fields__}
        changed = {field: replace_name(item, name, value) for field, item in fields.items()}
        return msgspec.structs.replace(expression, **changed)
    return expression
