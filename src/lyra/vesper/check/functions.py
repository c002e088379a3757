"""Types of calls of built-in functions, by their signatures in `expressions.functions`.

`FunctionTyping.call` types the arguments, binds the kinds of the signature to their types, and gives the expression of
the IR that the row of the table names. What a signature cannot say stands in one rule for each function that needs one:
the scale of `round`, the field of `sort`, the element of `get`. Constant zones, formats, patterns and modes are looked
at here, so that a wrong one is a remark and not an error at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lyra.core.linear_regex import BadPattern
from lyra.vesper import ir
from lyra.vesper.check.state import NameScope, TextSite
from lyra.vesper.check.types import common, element_of, field_type, is_key, is_ordered, is_text, may_equal, nullable
from lyra.vesper.expressions.functions import DIRECTIVES, FUNCTIONS, ROUNDINGS, UNITS, BuiltIn, Kind, Parameter
from lyra.vesper.expressions.terms import CallTerm, NameTerm, StarTerm
from lyra.vesper.loading import WARNING
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.limits import SCALE_MAX
from lyra.vesper.values.patterns import compile_pattern
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    DECIMAL,
    DURATION,
    INTEGER,
    NULL,
    STRING,
    TIMESTAMP,
    Array,
    DecimalType,
    MapType,
    Nullable,
    RecordType,
    SetType,
    ValueType,
    describe,
    is_numeric,
    key_kind,
    without_null,
)
from lyra.vesper.values.zones import zone_of

if TYPE_CHECKING:
    from lyra.vesper.check.infer import Typing

Bindings = dict[str, ValueType]
_TEXTS: Final = ("text", "zone", "mode", "unit", "pattern", "directives", "field")
_PLAIN: Final[dict[str, ValueType]] = {
    "integer": INTEGER,
    "decimal": DECIMAL,
    "string": STRING,
    "boolean": BOOLEAN,
    "timestamp": TIMESTAMP,
    "duration": DURATION,
    "any": ANY,
}


class FunctionTyping:
    """Types the calls of one node; `typing` types the arguments."""

    def __init__(self, typing: Typing) -> None:
        self.typing = typing
        self.wrong = typing.wrong

    def call(self, term: CallTerm, scope: NameScope, site: TextSite) -> ir.TypedExpression:
        """Return a call as an expression; `any` after a remark."""
        function = FUNCTIONS[term.function]
        least = sum(parameter.default is None and not parameter.is_many for parameter in function.parameters)
        is_many = bool(function.parameters) and function.parameters[-1].is_many
        most = 10_000 if is_many else len(function.parameters)
        if not least <= len(term.arguments) <= most or any(isinstance(item, StarTerm) for item in term.arguments):
            count = f"{least} or more" if is_many else str(most) if least == most else f"{least} to {most}"
            words = f"{count} argument{'' if count == '1' else 's'}"
            message = f"`{term.function}` takes {words}"
            return self.wrong("arity", message, site, term.start, hint=function.signature)
        for parameter, source in zip(function.parameters, term.arguments, strict=False):
            if not isinstance(source, NameTerm) or parameter.kind.name not in ("field", "mode", "unit"):
                continue
            if source.name not in {*scope.names, *scope.aliases}:
                hint = f"a text stands in quotes: '{source.name}'"
                return self.wrong(
                    "undefined_name", f"`{source.name}` is not defined here", site, source.start, hint=hint
                )
        arguments = tuple(self.typing.term(argument, scope, site) for argument in term.arguments)
        bound: Bindings = {}
        for index, (argument, source) in enumerate(zip(arguments, term.arguments, strict=True)):
            parameter = function.parameters[min(index, len(function.parameters) - 1)]
            if not _fits(parameter.kind, argument.type, bound):
                what = describe(without_null(argument.type))
                message = f"`{term.function}` does not take a value of type {what} here"
                return self.wrong("type", message, site, source.start, hint=function.signature)
            self._check_constant(parameter, argument, site, source.start)
        return self._expression(function, term, arguments, bound, site)

    def _expression(
        self,
        function: BuiltIn,
        term: CallTerm,
        arguments: tuple[ir.TypedExpression, ...],
        bound: Bindings,
        site: TextSite,
    ) -> ir.TypedExpression:
        place = self.typing.state.place(site, term.start)
        result = _result(function.result, bound)
        match function.name:
            case "if":
                kind = common(arguments[1].type, arguments[2].type)
                return ir.Conditional(
                    type=kind, condition=arguments[0], then=arguments[1], otherwise=arguments[2], place=place
                )
            case "coalesce":
                return _coalesce(arguments, place)
            case "len":
                kind = nullable(INTEGER) if isinstance(arguments[0].type, Nullable) else INTEGER
                return ir.Length(type=kind, target=arguments[0], place=place)
            case "contains":
                return self.typing.membership(arguments[1], arguments[0], site, term.start, term.start)
            case "get":
                item = self.typing.item(arguments[0], arguments[1], site, term)
                if len(arguments) == 2 or not isinstance(item, ir.ItemOf):
                    return item
                kind = common(without_null(item.type), arguments[2].type)
                return ir.FunctionCall(
                    type=kind, function="get", arguments=(item.target, item.index, arguments[2]), place=item.place
                )
            case "round":
                result = self._round_type(arguments, site, term)
            case "slice":
                result = self._slice_type(arguments[0].type, site, term.arguments[0].start)
            case "sort":
                self._check_sort(arguments, site, term)
            case "zip":
                result = Array(Array(common(bound["T"], bound["U"])))
            case "keys":
                key = bound["K"]
                if key_kind(key) != "string":
                    arguments = (*arguments, ir.Constant(type=STRING, value=key_kind(key), place=place))
            case "put":
                arguments = (arguments[0], as_key(arguments[1], bound["K"]), arguments[2])
        return ir.FunctionCall(type=result, function=function.name, arguments=arguments, place=place)

    def _round_type(self, arguments: tuple[ir.TypedExpression, ...], site: TextSite, term: CallTerm) -> ValueType:
        if len(arguments) == 1:
            return INTEGER
        scale = arguments[1]
        if not isinstance(scale, ir.Constant) or type(scale.value) is not int:
            return DECIMAL
        if not 0 <= scale.value <= SCALE_MAX:
            self.wrong("limit", f"a scale is from 0 to {SCALE_MAX}", site, term.arguments[1].start)
            return DECIMAL
        return DecimalType(scale.value)

    def _slice_type(self, kind: ValueType, site: TextSite, offset: int) -> ValueType:
        item = element_of(kind)
        if is_text(kind):
            return STRING
        if item is None:
            what = describe(without_null(kind))
            self.wrong("type", f"`slice` takes a text or a list, not {what}", site, offset)
            return ANY
        return ANY if without_null(kind) == ANY else Array(item)

    def _check_sort(self, arguments: tuple[ir.TypedExpression, ...], site: TextSite, term: CallTerm) -> None:
        item = without_null(element_of(arguments[0].type) or ANY)
        if len(arguments) > 1 and isinstance(arguments[1], ir.Constant) and isinstance(arguments[1].value, str):
            field = field_type(item, arguments[1].value)
            if field is None:
                message = f"the elements, of type {describe(item)}, have no field `{arguments[1].value}`"
                fields = [known.name for known in item.fields] if isinstance(item, RecordType) else []
                hint = close_to(arguments[1].value, fields)
                self.wrong("unknown_field", message, site, term.arguments[1].start, hint=hint)
                return
            item = without_null(field)
        elif len(arguments) > 1:
            return
        if isinstance(item, (Array, SetType, MapType, RecordType)):
            hint = "sort(list, 'field')" if isinstance(item, RecordType) else ""
            self.wrong("type", f"values of type {describe(item)} have no order", site, term.start, hint=hint)

    def _check_constant(self, parameter: Parameter, argument: ir.TypedExpression, site: TextSite, offset: int) -> None:
        """Remark on a constant text that the function refuses whenever it is called."""
        value = argument.value if isinstance(argument, ir.Constant) else None
        if not isinstance(value, str):
            return
        match parameter.kind.name:
            case "pattern":
                reason = pattern_problem(value)
                if reason:
                    self.wrong("bad_pattern", f"the pattern cannot be used: {reason}", site, offset)
            case "zone":
                if zone_of(value) is None:
                    hint = close_to(value, ("UTC", "Europe/Berlin", "Europe/London", "America/New_York", "Asia/Tokyo"))
                    message = f"there is no time zone {value[:80]!r}"
                    self.wrong("bad_value", message, site, offset, hint=hint or "such as Europe/Berlin")
            case "mode" | "unit":
                words = ROUNDINGS if parameter.kind.name == "mode" else UNITS
                if value not in words:
                    message = f"`{parameter.name}` is one of {', '.join(words)}"
                    self.wrong("bad_value", message, site, offset, hint=close_to(value, words))
            case "directives":
                reason = format_problem(value)
                if reason:
                    self.wrong("bad_value", reason, site, offset)
                elif "%" not in value:
                    message = f"the format {value[:40]!r} has no directive, and is the same text for every time"
                    self.typing.state.mark(WARNING, "bad_value", message, site, offset, hint="such as %Y-%m-%d %H:%M")
        if parameter.name == "fill" and len(value) != 1:
            self.wrong("bad_value", "`fill` is one character", site, offset)


def format_problem(text: str) -> str:
    """Return why a text is no format of times; empty where it is one."""
    index = 0
    while (index := text.find("%", index)) >= 0:
        letter = text[index + 1 : index + 2]
        if letter not in DIRECTIVES or not letter:
            return f"the format has `%{letter}`; it takes {' '.join('%' + known for known in DIRECTIVES)}"
        index += 2
    return ""


def pattern_problem(pattern: str) -> str:
    """Return why a regular expression cannot be used; empty where it can."""
    try:
        compile_pattern(pattern)
    except BadPattern as error:
        return str(error)
    return ""


def as_key(key: ir.TypedExpression, kind: ValueType) -> ir.TypedExpression:
    """Return the text that stands for a key in a map of keys of that type."""
    word = key_kind(kind)
    if word in ("string", "any"):
        return key
    return ir.FunctionCall(
        type=STRING,
        function="map_key",
        arguments=(key, ir.Constant(type=STRING, value=word, place=key.place)),
        place=key.place,
    )


def _coalesce(operands: tuple[ir.TypedExpression, ...], place: tuple[int, int]) -> ir.Coalesce:
    kinds = [operand.type for operand in operands if operand.type != NULL]
    kind = without_null(kinds[0]) if kinds else NULL
    for other in kinds[1:]:
        kind = common(kind, without_null(other))
    is_sure = any(not isinstance(other, Nullable) and other != ANY for other in kinds)
    return ir.Coalesce(type=kind if is_sure or not kinds else nullable(kind), operands=operands, place=place)


_FITS: Final[dict[str, Callable[[ValueType], bool]]] = {
    "number": is_numeric,
    "sized": lambda kind: is_text(kind) or kind == BYTES or isinstance(kind, (Array, SetType, MapType, RecordType)),
    **dict.fromkeys(_TEXTS, is_text),
    "boolean": lambda kind: kind == BOOLEAN,
    "integer": lambda kind: kind == INTEGER,
    "timestamp": lambda kind: kind == TIMESTAMP,
}


def _fits(kind: Kind, actual: ValueType, bound: Bindings) -> bool:
    """Return whether a value of the type can be an argument of the kind, and bind the kind's letters."""
    inner = without_null(actual)
    if inner == NULL:
        if len(kind.name) == 1:
            bound.setdefault(kind.name, NULL)
        return kind.is_nullable
    if kind.name in _FITS:
        return inner == ANY or _FITS[kind.name](inner)
    match kind.name:
        case "list":
            item = element_of(inner)
            if item is None:
                return False
            element = kind.inner[0]
            return _fits(element, item, bound) if element.name in _FITS else _bind(element.name, item, bound)
        case "map":
            return _fits_map(kind, inner, bound)
        case "any":
            return True
    return _bind(kind.name, actual if kind.is_nullable else inner, bound)


def _fits_map(kind: Kind, actual: ValueType, bound: Bindings) -> bool:
    key, value = (part.name for part in kind.inner)
    if isinstance(actual, MapType):
        return _bind(key, actual.key, bound) and _bind(value, actual.value, bound)
    if isinstance(actual, RecordType):
        values = [field.type for field in actual.fields]
        return _bind(key, STRING, bound) and all(_bind(value, inner, bound) for inner in values or [ANY])
    return actual == ANY and _bind(key, STRING, bound) and _bind(value, ANY, bound)


def _bind(letter: str, actual: ValueType, bound: Bindings) -> bool:
    before = bound.get(letter)
    if letter == "N" and not (actual in (ANY, DURATION) or is_numeric(actual)):
        return False
    if letter == "O" and not is_ordered(actual if before is None else before, actual):
        return False
    if letter == "K" and (
        not (actual == ANY or is_key(actual)) or (before is not None and not may_equal(before, actual))
    ):
        return False
    bound[letter] = actual if before in (None, ANY) else before if letter == "K" else common(before, actual)
    return True


def _result(kind: Kind, bound: Bindings) -> ValueType:
    result: ValueType
    if kind.name == "array":
        result = Array(_result(kind.inner[0], bound))
    elif kind.name == "map":
        result = MapType(_result(kind.inner[0], bound), _result(kind.inner[1], bound))
    else:
        result = _PLAIN[kind.name] if kind.name in _PLAIN else bound.get(kind.name, ANY)
    return nullable(result) if kind.is_nullable else result
