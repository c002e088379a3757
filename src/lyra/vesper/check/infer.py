"""Types of expressions: from the syntax tree to the typed IR, with a remark for each mistake.

`Typing.expression` takes a text, `Typing.template` a text with placeholders, `Typing.value` any value of a file
whose texts are templates. After a remark the type is `any`, so that one mistake is reported once. In a contract, an
undefined name raises UndefinedName: the contract is then unverifiable, not wrong.
"""

from __future__ import annotations

import re
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

from lyra.core.checking.document import Path
from lyra.errors import ParseError
from lyra.vesper import ir
from lyra.vesper.check.functions import FunctionTyping, as_key
from lyra.vesper.check.state import AMBIENT, CheckState, NameScope, TextSite, UndefinedName
from lyra.vesper.check.types import (
    aggregate_type,
    arithmetic_type,
    common,
    constant_type,
    element_of,
    field_type,
    is_key,
    is_ordered,
    is_text,
    may_equal,
    nullable,
)
from lyra.vesper.expressions.functions import (
    AGGREGATES,
    CALLED_NAMES,
    FUNCTIONS,
    OTHER_FUNCTIONS,
    OTHER_NAMES,
)
from lyra.vesper.expressions.parser import parse_expression, parse_template
from lyra.vesper.expressions.terms import (
    BinaryTerm,
    CallTerm,
    IndexTerm,
    ListTerm,
    LiteralTerm,
    MapTerm,
    MemberTerm,
    NameTerm,
    NullTestTerm,
    PlaceholderTerm,
    QuantifierTerm,
    StarTerm,
    Term,
    UnaryTerm,
    children,
    format_term,
)
from lyra.vesper.loading import ERROR, WARNING
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.limits import TERMS_MAX
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    DURATION,
    INTEGER,
    INTEGER_MAX,
    INTEGER_MIN,
    NULL,
    STRING,
    TIMESTAMP,
    Array,
    EnumType,
    MapType,
    Nullable,
    RecordField,
    RecordType,
    SetType,
    ValueType,
    describe,
    is_numeric,
    key_kind,
    without_null,
)

QUERY_RESULT: Final = "query_result"
_DURATION_HINT: Final = "a duration is written days(n), hours(n), minutes(n) or seconds(n)"
_LOGIC: Final = {"AND": "and", "OR": "or", "=>": "implies"}
_BRACE_OF_JSON: Final = re.compile(r"(?<!\{)\{\s*[\"'\n]")
_ERROR_FIELDS: Final = ("occurred", "code", "message", "logged")
_VARIABLE_PATH: Final = re.compile(r"([A-Za-z_]\w*)(?:\.[A-Za-z_]\w*|\[[0-9]+\])*", re.ASCII)
_KEYS_OF_WORDS: Final = frozenset(
    {"error_code", "code", "map_to", "return_error", "agent", "event_type", "handler", "provider", "method", "entity"}
)
_ORDERS: Final = ("<", "<=", ">", ">=")


class Typing:
    """Types the expressions of one node."""

    def __init__(self, state: CheckState) -> None:
        self.state = state
        self._terms = 0
        self._functions = FunctionTyping(self)
        self._projects = False  # inside the argument of an aggregate or the collection of a quantifier

    # ------------------------------------------------------------ texts
    def expression(self, text: Any, path: Path, scope: NameScope) -> ir.TypedExpression:
        """Return a text of the file as an expression; `any` after a remark. Numbers and words stand for themselves."""
        if not isinstance(text, str):
            return self.value(text, path, scope)
        site = TextSite(path)
        try:
            term = parse_expression(text)
        except ParseError as error:
            self.state.syntax(error, site)
            return _nothing()
        return self.term(term, scope, site)

    def condition(self, text: Any, path: Path, scope: NameScope) -> ir.TypedExpression:
        """Return an expression that must be a boolean."""
        expression = self.expression(text, path, scope)
        self._boolean(expression, TextSite(path), 0)
        return expression

    def template(self, text: str, path: Path, scope: NameScope) -> ir.TypedExpression:
        """Return a template: the typed value of a single placeholder, else a text. A text that is no template since it
        writes out a record or a map, such as `{a: y}`, is an expression."""
        site = TextSite(path)
        try:
            template = parse_template(text)
        except ParseError as error:
            with suppress(ParseError):
                return self.term(parse_expression(text), scope, site)
            if _BRACE_OF_JSON.search(text):
                error.hint = "a brace that is no placeholder is doubled: {{ and }}"
            self.state.syntax(error, site)
            return _nothing()
        place = self.state.place(site, 0)
        if template.text is not None:
            self._judge_plain_text(template.text, path, scope)
            return ir.Constant(type=STRING, value=template.text, place=place)
        if template.single is not None:
            return self.term(template.single, scope, site)
        parts = tuple(part if isinstance(part, str) else self._text_part(part, scope, site) for part in template.parts)
        return ir.TemplateText(type=STRING, parts=parts, place=place)

    def _judge_plain_text(self, text: str, path: Path, scope: NameScope) -> None:
        """Remark on a text that is the name of a variable, or leads into one, and has no braces around it."""
        match = _VARIABLE_PATH.fullmatch(text)
        key = next((part for part in reversed(path) if isinstance(part, str)), "")
        if match is None or match[1] not in scope.names or key in _KEYS_OF_WORDS:
            return
        message = f"this is the text {text!r}, not the value of the variable `{match[1]}`"
        self.state.warn("no_placeholder", message, path, hint=f'write "{{{text}}}"', value=True)

    def _text_part(self, term: Term, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        expression = self.term(term, scope, site)
        kind = without_null(expression.type)
        if kind == BYTES or isinstance(kind, (Array, SetType, MapType, RecordType)):
            self.wrong("type", f"a value of type {describe(kind)} has no text", site, term.start)
        return expression

    def value(self, value: Any, path: Path, scope: NameScope) -> ir.TypedExpression:
        """Return a value of the file; texts inside it are templates."""
        place = self.state.document.value_place(path)
        if isinstance(value, str):
            return self.template(value, path, scope)
        if isinstance(value, list):
            items = tuple(self.value(item, (*path, index), scope) for index, item in enumerate(value))
            return ir.ListOf(type=Array(_common_type(items)), items=items, place=place)
        if isinstance(value, dict):
            return self.mapping({key: (item, (*path, key)) for key, item in value.items()}, scope, place)
        return self._constant(value, TextSite(path), 0)

    def mapping(
        self, values: dict[str, tuple[Any, Path]], scope: NameScope, place: tuple[int, int] = (0, 0)
    ) -> ir.MapOf:
        """Return a map written out."""
        return map_of(
            {name: self.value(item, item_path, scope) for name, (item, item_path) in values.items()}, place=place
        )

    # ------------------------------------------------------------ terms
    def term(self, term: Term, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        """Return the expression of a term."""
        self._terms += 1
        if self._terms > TERMS_MAX:
            if self._terms == TERMS_MAX + 1:
                self.wrong("limit", f"the expressions of the node have more than {TERMS_MAX} parts", site, term.start)
            return _nothing()
        match term:
            case LiteralTerm():
                return self._constant(term.value, site, term.start)
            case NameTerm():
                return self.state.note(term, self._name(term, scope, site), scope, site)
            case MemberTerm():
                return self.state.note(term, self._member(term, scope, site), scope, site)
            case IndexTerm():
                return self.item(self.term(term.target, scope, site), self.term(term.index, scope, site), site, term)
            case PlaceholderTerm():
                return self.term(term.operand, scope, site)
            case ListTerm():
                items = tuple(self.term(item, scope, site) for item in term.items)
                return ir.ListOf(type=Array(_common_type(items)), items=items, place=self.state.place(site, term.start))
            case MapTerm():
                return self._map(term, scope, site)
            case UnaryTerm():
                return self._unary(term, scope, site)
            case BinaryTerm():
                return self._binary(term, scope, site)
            case NullTestTerm():
                operand = self.term(term.operand, scope, site)
                place = self.state.place(site, term.start)
                test = ir.IsNull(type=BOOLEAN, operand=operand, place=place)
                return ir.Not(type=BOOLEAN, operand=test, place=place) if term.negated else test
            case QuantifierTerm():
                return self.state.note(term, self._quantifier(term, scope, site), scope, site)
            case CallTerm():
                return self._call(term, scope, site)
            case StarTerm():
                return self.wrong("type", "* stands only in COUNT(*) of an aggregation", site, term.start)
        raise AssertionError(term)

    def wrong(self, code: str, message: str, site: TextSite, offset: int, *, hint: str = "") -> ir.TypedExpression:
        self.state.mark(ERROR, code, message, site, offset, hint=hint)
        return _nothing(self.state.place(site, offset))

    def _constant(self, value: Any, site: TextSite, offset: int) -> ir.TypedExpression:
        place = self.state.place(site, offset)
        if isinstance(value, int) and not isinstance(value, bool) and not INTEGER_MIN <= value <= INTEGER_MAX:
            return self.wrong("overflow", "the integer does not fit in 64 bits", site, offset)
        return ir.Constant(type=constant_type(value), value=value, place=place)

    # ------------------------------------------------------------ names and paths
    def _name(self, term: NameTerm, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        place = self.state.place(site, term.start)
        element = scope.element
        if element is not None and element.is_first and _has_field(element.type, term.name, scope):
            return self._element_field(term.name, scope, place)
        if term.name in scope.aliases:
            return scope.aliases[term.name]
        if term.name in scope.names:
            return ir.NodeVariable(type=scope.names[term.name], name=term.name, place=place)
        if element is not None and _has_field(element.type, term.name, scope):
            return self._element_field(term.name, scope, place)
        if term.name in AMBIENT:
            self.state.ambient.add(term.name)
            return ir.NodeVariable(type=ANY, name=term.name, place=place)
        return self._report_undefined(term.name, scope, site, term.start)

    def _element_field(self, name: str, scope: NameScope, place: tuple[int, int]) -> ir.TypedExpression:
        element = scope.element
        assert element is not None
        target = ir.NodeVariable(type=element.type, name=element.name, place=place)
        return ir.FieldOf(type=field_type(element.type, name) or ANY, target=target, name=name, place=place)

    def _report_undefined(self, name: str, scope: NameScope, site: TextSite, offset: int) -> ir.TypedExpression:
        if name in OTHER_NAMES:
            hint = f"write {OTHER_NAMES[name]}"
            return self.wrong("undefined_name", f"`{name}` is not defined here", site, offset, hint=hint)
        if scope.is_contract:
            raise UndefinedName(name, offset)
        element = without_null(scope.element.type) if scope.element is not None else ANY
        fields = [field.name for field in element.fields] if isinstance(element, RecordType) else []
        hint = close_to(name, {*scope.names, *scope.aliases, *fields})
        if any(step.target == name for step in self.state.node.all_steps()):
            hint = f"`{name}` is written after this, or on another path only"
        return self.wrong("undefined_name", f"`{name}` is not defined here", site, offset, hint=hint)

    def _member(self, term: MemberTerm, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        direct = self._type_prefixed_name(term, scope, site)
        if direct is not None:
            return direct
        target = self.term(term.target, scope, site)
        place = self.state.place(site, term.start)
        kind = without_null(target.type)
        has_null = isinstance(target.type, Nullable)
        if (
            isinstance(target, ir.NodeVariable)
            and target.name == QUERY_RESULT
            and term.name != "length"
            and not self._projects
        ):
            zero = ir.Constant(type=INTEGER, value=0, place=place)
            target = ir.ItemOf(type=ANY, target=target, index=zero, place=place)
            return ir.FieldOf(type=ANY, target=target, name=term.name, place=place)
        if isinstance(kind, RecordType):
            place = self.state.place(site, term.start)
            field = kind.field(term.name)
            if field is None:
                names = [known.name for known in kind.fields]
                offset = term.end - len(term.name)
                hint = close_to(term.name, names)
                return self.wrong(
                    "unknown_field", f"{describe(kind)} has no field `{term.name}`", site, offset, hint=hint
                )
            return ir.FieldOf(
                type=nullable(field.type) if has_null else field.type, target=target, name=term.name, place=place
            )
        if term.name == "length":
            if kind != ANY and not (is_text(kind) or kind == BYTES or isinstance(kind, (Array, SetType, MapType))):
                return self.wrong("type", f"a value of type {describe(kind)} has no length", site, term.end - 6)
            return ir.Length(type=nullable(INTEGER) if has_null else INTEGER, target=target, place=place)
        if isinstance(kind, MapType) and key_kind(kind.key) not in ("string", "any"):
            message = f"a value of type {describe(kind)} has no fields"
            return self.wrong("unknown_field", message, site, term.end - len(term.name), hint="write map[key]")
        if isinstance(kind, MapType):
            return ir.FieldOf(type=nullable(kind.value), target=target, name=term.name, place=place)
        if isinstance(kind, (Array, SetType)):
            return self._projection(term, target, kind.item, site)
        if kind == ANY:
            is_error = isinstance(target, ir.NodeVariable) and target.name == "error" and "error" not in scope.names
            if is_error and term.name not in _ERROR_FIELDS:
                message = f"an error has no field `{term.name}`, so it is null"
                hint = close_to(term.name, _ERROR_FIELDS) or "write error.code or error.message"
                self.state.mark(WARNING, "unknown_field", message, site, term.end - len(term.name), hint=hint)
            return ir.FieldOf(type=ANY, target=target, name=term.name, place=place)
        offset = term.end - len(term.name)
        hint = close_to(term.name, ("length",)) if is_text(kind) or kind == BYTES else ""
        return self.wrong("unknown_field", f"a value of type {describe(kind)} has no fields", site, offset, hint=hint)

    def _type_prefixed_name(self, term: MemberTerm, scope: NameScope, site: TextSite) -> ir.TypedExpression | None:
        """Type `inputs.NAME`, and in postconditions `outputs.NAME`; None where a variable has the name before the
        dot."""
        if not isinstance(term.target, NameTerm) or term.target.name in scope.names:
            return None
        group = term.target.name
        names = (
            scope.inputs if group in ("input", "inputs") else scope.outputs if group in ("output", "outputs") else None
        )
        if not names:
            return None
        place = self.state.place(site, term.start)
        if term.name in names:
            return ir.NodeVariable(type=names[term.name], name=term.name, place=place)
        offset = term.end - len(term.name)
        return self.wrong("unknown_field", f"there is no `{group}.{term.name}`", site, offset)

    def _projection(
        self, term: MemberTerm, target: ir.TypedExpression, item: ValueType, site: TextSite
    ) -> ir.TypedExpression:
        inner = without_null(item)
        kind: ValueType | None = ANY
        if isinstance(inner, RecordType):
            field = inner.field(term.name)
            kind = field.type if field else None
        elif isinstance(inner, MapType):
            kind = nullable(inner.value)
        elif inner != ANY:
            kind = None
        if kind is None:
            offset = term.end - len(term.name)
            message = f"the elements, of type {describe(inner)}, have no field `{term.name}`"
            fields = [field.name for field in inner.fields] if isinstance(inner, RecordType) else []
            hint = close_to(term.name, (*fields, "length"))
            return self.wrong("unknown_field", message, site, offset, hint=hint)
        kind = nullable(kind) if isinstance(item, Nullable) else kind
        return ir.Projection(type=Array(kind), target=target, name=term.name, place=self.state.place(site, term.start))

    def item(
        self, target: ir.TypedExpression, index: ir.TypedExpression, site: TextSite, term: IndexTerm | CallTerm
    ) -> ir.TypedExpression:
        """Return the element of a list or map by its number or key."""
        kind, key = without_null(target.type), without_null(index.type)
        place = self.state.place(site, term.start)
        whole, place_of_key = (term.target, term.index) if isinstance(term, IndexTerm) else term.arguments[:2]
        if isinstance(kind, Array):
            if key not in (ANY, INTEGER):
                return self.wrong("type", f"an index is an integer, not {describe(key)}", site, place_of_key.start)
            return ir.ItemOf(type=nullable(kind.item), target=target, index=index, place=place)
        if isinstance(kind, (MapType, RecordType)):
            wanted = kind.key if isinstance(kind, MapType) else STRING
            if key == NULL or not may_equal(key, wanted):
                message = f"a key is {key_kind(wanted)}, not {describe(key)}"
                return self.wrong("type", message, site, place_of_key.start)
            own = nullable(kind.value) if isinstance(kind, MapType) else ANY
            return ir.ItemOf(type=own, target=target, index=as_key(index, wanted), place=place)
        if kind == ANY:
            return ir.ItemOf(type=ANY, target=target, index=index, place=place)
        return self.wrong("type", f"a value of type {describe(kind)} has no elements", site, whole.end)

    def _map(self, term: MapTerm, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        """Return a map that is written out: with constant texts as keys a record, else a map."""
        place = self.state.place(site, term.start)
        values = tuple(self.term(value, scope, site) for value in term.values)
        constants = [key.value for key in term.keys if isinstance(key, LiteralTerm)]
        twice = next((key for index, key in enumerate(constants) if key in constants[:index]), None)
        if twice is not None:
            return self.wrong("duplicate", f"the key `{twice}` is there twice", site, term.start)
        if not term.keys:
            return ir.MapOf(type=MapType(ANY, ANY), entries=(), place=place)
        if len(constants) == len(values) and all(isinstance(key, str) for key in constants):
            return map_of(dict(zip(constants, values, strict=True)), place=place)
        keys = tuple(self.term(key, scope, site) for key in term.keys)
        kind = _common_type(keys)
        if not all(is_key(without_null(key.type)) or key.type == ANY for key in keys) or kind == NULL:
            return self.wrong("type", "a key is a string, integer, decimal, boolean or timestamp", site, term.start)
        if kind == ANY and any(key.type != ANY for key in keys):
            return self.wrong("type", "the keys of a map are of one type", site, term.start)
        kind = without_null(kind)
        lists = (
            ir.ListOf(type=Array(STRING), items=tuple(as_key(key, kind) for key in keys), place=place),
            ir.ListOf(type=Array(_common_type(values)), items=values, place=place),
        )
        return ir.FunctionCall(
            type=MapType(kind, _common_type(values)), function="map_of", arguments=lists, place=place
        )

    # ------------------------------------------------------------ operators
    def _unary(self, term: UnaryTerm, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        place = self.state.place(site, term.start)
        inner = term.operand
        if term.operator == "-" and isinstance(inner, LiteralTerm) and _is_number(inner.value):
            negative = inner.value.copy_negate() if isinstance(inner.value, Decimal) else -inner.value
            return self._constant(negative, site, term.start)
        operand = self.term(inner, scope, site)
        if term.operator == "NOT":
            self._boolean(operand, site, inner.start)
            return ir.Not(type=BOOLEAN, operand=operand, place=place)
        kind = without_null(operand.type)
        if kind not in (ANY, DURATION) and not is_numeric(kind):
            return self.wrong("type", f"a value of type {describe(kind)} has no sign", site, term.start)
        return ir.Negate(type=kind, operand=operand, place=place)

    def _boolean(self, expression: ir.TypedExpression, site: TextSite, offset: int) -> None:
        kind = without_null(expression.type)
        if kind not in (ANY, BOOLEAN, NULL):
            hint = "write NOT success, or error.occurred" if describe(kind) == "error" else ""
            self.wrong("not_boolean", f"a condition is a boolean, not {describe(kind)}", site, offset, hint=hint)

    def _binary(self, term: BinaryTerm, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        place = self.state.place(site, term.start)
        left, right = self.term(term.left, scope, site), self.term(term.right, scope, site)
        if term.operator in _LOGIC:
            self._boolean(left, site, term.left.start)
            self._boolean(right, site, term.right.start)
            return ir.Logic(type=BOOLEAN, operator=_LOGIC[term.operator], left=left, right=right, place=place)
        if term.operator in ("IN", "CONTAINS"):
            pair = (left, right) if term.operator == "IN" else (right, left)
            return self.membership(*pair, site, term.sign, term.start)
        if term.operator in ("==", "!="):
            self._check_equal(left, right, site, term.sign)
            return ir.Compare(type=BOOLEAN, operator=term.operator, left=left, right=right, place=place)
        if term.operator in _ORDERS:
            if NULL in (left.type, right.type) or not is_ordered(left.type, right.type):
                kinds = f"{describe(without_null(left.type))} and {describe(without_null(right.type))}"
                hint = _DURATION_HINT if DURATION in (without_null(left.type), without_null(right.type)) else ""
                return self.wrong("type", f"{kinds} have no order", site, term.sign, hint=hint)
            return ir.Compare(type=BOOLEAN, operator=term.operator, left=left, right=right, place=place)
        kind = arithmetic_type(term.operator, left.type, right.type)
        if kind is None:
            kinds = f"{describe(without_null(left.type))} and {describe(without_null(right.type))}"
            is_of_time = {TIMESTAMP, DURATION} & {without_null(left.type), without_null(right.type)}
            hint = _DURATION_HINT if is_of_time else ""
            if term.operator == "*" and any(is_text(without_null(side.type)) for side in (left, right)):
                hint = "a text is repeated by pad_left('', n, 'x')"
            return self.wrong("type", f"`{term.operator}` does not take {kinds}", site, term.sign, hint=hint)
        return ir.Arithmetic(type=kind, operator=term.operator, left=left, right=right, place=place)

    def _check_equal(self, left: ir.TypedExpression, right: ir.TypedExpression, site: TextSite, offset: int) -> None:
        if not may_equal(left.type, right.type):
            kinds = f"{describe(without_null(left.type))} and {describe(without_null(right.type))}"
            self.state.mark(WARNING, "never_equal", f"{kinds} are never equal", site, offset)
        for enum, other in ((left, right), (right, left)):
            kind = without_null(enum.type)
            if not isinstance(kind, EnumType) or not isinstance(other, ir.Constant):
                continue
            if isinstance(other.value, str) and other.value not in kind.values:
                hint = close_to(other.value, kind.values)
                message = f"{other.value!r} is no value of {describe(kind)}"
                self.state.mark(WARNING, "never_equal", message, site, offset, hint=hint)

    def membership(
        self, item: ir.TypedExpression, collection: ir.TypedExpression, site: TextSite, sign: int, start: int
    ) -> ir.TypedExpression:
        """Return whether the item is in the collection; remarks stand at the sign."""
        kind, place = without_null(collection.type), self.state.place(site, start)
        inner: ValueType | None = None
        if isinstance(kind, (Array, SetType)):
            inner = kind.item
        elif is_text(kind) or isinstance(kind, RecordType):
            inner = STRING
        elif isinstance(kind, MapType):
            inner = kind.key
        elif kind not in (ANY, NULL):
            return self.wrong("type", f"a value of type {describe(kind)} contains nothing", site, sign)
        if inner is not None and not may_equal(item.type, inner):
            kinds = f"{describe(without_null(item.type))} in {describe(kind)}"
            return self.wrong("type", f"there is never {kinds}", site, sign)
        self._check_enum_members(item, collection, site, sign)
        if isinstance(kind, MapType):
            item = as_key(item, kind.key)
        return ir.Membership(type=BOOLEAN, item=item, collection=collection, place=place)

    def _check_enum_members(
        self, item: ir.TypedExpression, collection: ir.TypedExpression, site: TextSite, offset: int
    ) -> None:
        kind = without_null(item.type)
        if isinstance(kind, EnumType) and isinstance(collection, ir.ListOf):
            for member in collection.items:
                self._check_equal(item, member, site, offset)

    # ------------------------------------------------------------ quantifiers
    def _quantifier(self, term: QuantifierTerm, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        if term.collection is None:
            plural = f"{term.name}s"
            collection = self._name(NameTerm(name=plural, start=term.start, end=term.end), scope, site)
            offset = term.start
        else:
            collection = self._collection(term.collection, scope, site)
            offset = term.collection.start
        return self._type_quantifier(term.kind.lower(), term.name, collection, term.body, scope, site, offset)

    def _type_quantifier(
        self,
        kind: str,
        name: str,
        collection: ir.TypedExpression,
        body: Term,
        scope: NameScope,
        site: TextSite,
        offset: int,
    ) -> ir.TypedExpression:
        item = element_of(collection.type)
        if item is None:
            what = describe(without_null(collection.type))
            return self.wrong("type", f"a value of type {what} has no elements to go through", site, offset)
        inner = self.term(body, scope.with_name(name, item), site)
        self._boolean(inner, site, body.start)
        place = self.state.place(site, offset)
        return ir.Quantifier(type=BOOLEAN, kind=kind, name=name, collection=collection, body=inner, place=place)

    def _collection(self, term: Term, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        """Return a term whose `query_result.field` is that of every row."""
        outer, self._projects = self._projects, True
        try:
            return self.term(term, scope, site)
        finally:
            self._projects = outer

    def _all_or_any(self, term: CallTerm, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        """Type `all(user.balance >= 0)` as FORALL user IN users, and `all(flags)` as all elements of an array of
        booleans."""
        kind = "forall" if term.function == "all" else "exists"
        if len(term.arguments) != 1:
            return self.wrong("arity", f"`{term.function}` takes one argument", site, term.start)
        body = term.arguments[0]
        name = _plural_root(body, scope)
        if name is not None:
            collection = ir.NodeVariable(
                type=scope.names[f"{name}s"], name=f"{name}s", place=self.state.place(site, term.start)
            )
            return self._type_quantifier(kind, name, collection, body, scope, site, body.start)
        inner = self._collection(body, scope, site)
        item = element_of(inner.type)
        if inner.type == ANY and not isinstance(body, (NameTerm, MemberTerm, IndexTerm)):
            item = None
        if item is None or without_null(item) not in (ANY, BOOLEAN):
            if scope.is_contract:
                raise UndefinedName(f"{_first_name(body)}s", body.start)
            message = f"`{term.function}` takes an array of booleans, or a condition on the singular of one"
            return self.wrong("type", message, site, body.start)
        place = self.state.place(site, term.start)
        element = ir.NodeVariable(type=item, name="item", place=place)
        return ir.Quantifier(type=BOOLEAN, kind=kind, name="item", collection=inner, body=element, place=place)

    # ------------------------------------------------------------ calls
    def _call(self, term: CallTerm, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        name = term.function
        if name == "old":
            return self._old(term, scope, site)
        if name in ("all", "any"):
            return self._all_or_any(term, scope, site)
        is_aggregate = name.upper() in AGGREGATES and name in (name.upper(), name.lower())
        if is_aggregate and not (name in FUNCTIONS and len(term.arguments) > 1):
            return self._aggregate(term, scope, site)
        if name in FUNCTIONS and FUNCTIONS[name].is_public:
            return self._functions.call(term, scope, site)
        hint = f"write {OTHER_FUNCTIONS[name]}" if name in OTHER_FUNCTIONS else ""
        # In a contract an unknown name may be a predicate of the host program; one like a function is reported.
        hint = hint or close_to(name, CALLED_NAMES, cutoff=0.8 if scope.allows_hosts else 0.6)
        if scope.allows_hosts:
            if hint:
                message = (
                    f"`{name}` is no function; unless the host program has a predicate of that name, nothing checks"
                )
                self.state.mark(WARNING, "unknown_function", message, site, term.start, hint=hint)
            arguments = tuple(self.term(argument, scope, site) for argument in term.arguments)
            return ir.HostCall(type=BOOLEAN, name=name, arguments=arguments, place=self.state.place(site, term.start))
        return self.wrong("unknown_function", f"there is no function `{name}`", site, term.start, hint=hint)

    def _old(self, term: CallTerm, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        if len(term.arguments) != 1:
            return self.wrong("arity", "`old` takes one argument", site, term.start)
        if scope.in_old:
            return self.wrong("old", "`old` stands inside another `old`", site, term.start)
        if scope.entry is None:
            return self.wrong("old", "`old` stands only in postconditions", site, term.start)
        inner = scope.copy_with(names=dict(scope.entry), in_old=True, outputs={})
        operand = self.term(term.arguments[0], inner, site)
        text = format_term(term.arguments[0])
        if text not in self.state.old_slots:
            self.state.old_slots[text] = len(self.state.olds)
            self.state.olds.append(operand)
        slot = self.state.old_slots[text]
        return ir.Old(type=operand.type, slot=slot, operand=operand, place=self.state.place(site, term.start))

    def _aggregate(self, term: CallTerm, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        function = term.function.lower()
        if len(term.arguments) != 1 or isinstance(term.arguments[0], StarTerm):
            return self.wrong("arity", f"`{term.function}` takes one collection", site, term.start)
        argument = term.arguments[0]
        collection = self._collection(argument, scope, site)
        item = element_of(collection.type)
        if item is None:
            what = describe(without_null(collection.type))
            return self.wrong("type", f"`{term.function}` takes a collection, not {what}", site, argument.start)
        kind = aggregate_type(function, item)
        if kind is None:
            what = describe(without_null(item))
            return self.wrong("type", f"`{term.function}` does not take elements of type {what}", site, argument.start)
        return ir.Aggregate(
            type=kind, function=function, collection=collection, place=self.state.place(site, term.start)
        )


# ------------------------------------------------------------------ helpers
def map_of(entries: dict[str, ir.TypedExpression], *, place: tuple[int, int] = (0, 0)) -> ir.MapOf:
    """Return a map of expressions; its type is a record without a name."""
    kind = RecordType("", tuple(RecordField(name, value.type) for name, value in entries.items()))
    return ir.MapOf(type=kind, entries=tuple(entries.items()), place=place)


def _has_field(kind: ValueType, name: str, scope: NameScope) -> bool:
    """Return whether a bare name can mean a field of the element. Elements of unknown type have every field."""
    inner = without_null(kind)
    if isinstance(inner, RecordType):
        return inner.field(name) is not None
    return inner == ANY or (isinstance(inner, MapType) and name not in scope.names)


def _plural_root(term: Term, scope: NameScope) -> str | None:
    """Return the first name in a term whose plural is the name of a collection."""
    if isinstance(term, NameTerm):
        plural = scope.names.get(f"{term.name}s")
        is_collection = plural is not None and element_of(plural) is not None
        return term.name if is_collection else None
    return next((name for child in children(term) if (name := _plural_root(child, scope))), None)


def _first_name(term: Term) -> str:
    if isinstance(term, NameTerm):
        return term.name
    return next((name for child in children(term) if (name := _first_name(child))), "")


def _common_type(items: tuple[ir.TypedExpression, ...]) -> ValueType:
    kinds = [item.type for item in items]
    result = kinds[0] if kinds else ANY
    for kind in kinds[1:]:
        result = common(result, kind)
    return result


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _nothing(place: tuple[int, int] = (0, 0)) -> ir.TypedExpression:
    """Return the placeholder for an expression with a mistake."""
    return ir.Constant(type=ANY, value=None, place=place)
