"""What the parts of one check share: the node, its document, the remarks, and the names that an expression can use.

`literal_value` gives a value written in a file (a default, a constant beside a type) as one of the declared type: what
fits exactly is taken, anything else is a ValueError with the reason. Paths coerce inputs with code of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final

import msgspec

from lyra.core.checking.document import Path
from lyra.errors import ParseError
from lyra.vesper.expressions.terms import Term
from lyra.vesper.ir import NodeProgram, Step, TypedExpression
from lyra.vesper.loading import ERROR, INFO, WARNING, Issues
from lyra.vesper.nodes.model import Node, StepDeclaration
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.json_values import read_base64
from lyra.vesper.values.limits import NUMBER_DIGITS_MAX, NUMBER_EXPONENT_MAX
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    DURATION,
    INTEGER,
    INTEGER_MAX,
    INTEGER_MIN,
    STRING,
    TIMESTAMP,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordType,
    SetType,
    ValueType,
    describe,
    key_kind,
)
from lyra.vesper.values.zones import TIMESTAMP_TEXT


class TextSite(msgspec.Struct, frozen=True):
    """Where the text of an expression stands: the part of the file, and its offset in that part's text."""

    path: Path
    offset: int = 0


Callees = Callable[[str], NodeProgram | None]  # gives the node that a step calls, where it is known


class Observer:
    """Receives what the check learns about names. An editor records it; this base class does nothing."""

    def enter(self, step: StepDeclaration, scope: NameScope) -> None:
        """Take the names that a step can use."""

    def bind(self, step: StepDeclaration, name: str, kind: ValueType) -> None:
        """Take the variable that a step writes."""

    def use(self, term: Term, expression: TypedExpression, scope: NameScope, site: TextSite) -> None:
        """Take the meaning of a name, a path or a quantifier in an expression."""


class CheckState:
    """The state of one check."""

    def __init__(self, node: Node, observer: Observer | None = None) -> None:
        self.node = node
        self.observer = observer or Observer()
        self.callees: Callees | None = None
        self.document = node.document
        self.issues = Issues()
        self.olds: list[TypedExpression] = []  # by slot
        self.old_slots: dict[str, int] = {}  # printed expression → slot
        self.ambient: set[str] = set()
        self.needed: dict[str, Path] = {}  # implied capability → the step that needs it
        self.quotients: set[str] = set()  # variables with a quotient of integers
        self.is_broken = any(
            issue.severity == ERROR and issue.path.startswith("flow") for issue in node.issues
        )  # a step could not be read: what it writes is not known
        self.flow: tuple[Step, ...] = ()  # the steps, once they are lowered
        self.end_names: dict[str, ValueType] = {}  # variables at the end of the flow
        self.codes: set[str] = set()  # error codes that the flow can answer with

    # ------------------------------------------------------------ remarks
    def error(self, code: str, message: str, path: Path, *, hint: str = "", value: bool = False) -> None:
        """Add an error at a part's key, or at its value."""
        self._add(ERROR, code, message, path, hint, value)

    def judge_keys(self, table: Iterable[Any], known: Collection[str], path: Path) -> None:
        """Remark on the keys of a mapping that have no effect."""
        for key in table:
            if key not in known:
                text = str(key)
                parts = [name for name in sorted(known) if text in name.split("_")]
                hint = close_to(text, known) or (f"did you mean `{parts[0]}`?" if parts else "")
                self.warn("unknown_key", f"`{key}` is not known here and has no effect", (*path, key), hint=hint)

    def warn(self, code: str, message: str, path: Path, *, hint: str = "", value: bool = False) -> None:
        self._add(WARNING, code, message, path, hint, value)

    def info(self, code: str, message: str, path: Path, *, hint: str = "", value: bool = False) -> None:
        self._add(INFO, code, message, path, hint, value)

    def _add(self, severity: str, code: str, message: str, path: Path, hint: str, value: bool) -> None:
        place = self.document.value_place(path) if value else self.document.place(path)
        self.issues.add(severity, code, message, path=path, place=place, hint=hint)

    def mark(self, severity: str, code: str, message: str, site: TextSite, offset: int, *, hint: str = "") -> None:
        """Add a remark at a character of an expression."""
        self.issues.add(severity, code, message, path=site.path, place=self.place(site, offset), hint=hint)

    def syntax(self, error: ParseError, site: TextSite) -> None:
        """Add the remark for an expression that cannot be parsed."""
        offset = int(error.fields.get("offset", 0))
        self.mark(ERROR, "expression_syntax", error.message, site, offset, hint=error.hint or "")

    def place(self, site: TextSite, offset: int) -> tuple[int, int]:
        return self.document.place_in(site.path, site.offset + offset)

    def note(self, term: Term, expression: TypedExpression, scope: NameScope, site: TextSite) -> TypedExpression:
        """Report an expression to the observer and return it."""
        self.observer.use(term, expression, scope, site)
        return expression

    # ------------------------------------------------------------ values
    def has_path(self, path: Path) -> bool:
        return path in self.document.places

    def literal(self, value: Any, kind: ValueType, path: Path) -> Any:
        """Return a value of the file as a value of a type; None after a remark where it is none."""
        if value is None:
            return None
        try:
            return literal_value(value, kind)
        except ValueError as error:
            self.error("bad_value", f"the value does not fit: {error}", path, value=True)
            return None


# ---------------------------------------------------------------- literals

_EXACT: Final = Context(
    prec=NUMBER_DIGITS_MAX, Emax=NUMBER_DIGITS_MAX, Emin=-NUMBER_DIGITS_MAX, traps=[Inexact, InvalidOperation]
)


def literal_value(value: Any, kind: ValueType) -> Any:
    """Return the value of that type; ValueError where it is none."""
    if isinstance(kind, Nullable):
        return None if value is None else literal_value(value, kind.type)
    if kind == ANY:
        return value
    result = _scalar(value, kind) if not isinstance(kind, (Array, SetType, MapType, RecordType)) else _many(value, kind)
    if result is None:
        raise ValueError(f"it is no {describe(kind)}")
    return result


def _scalar(value: Any, kind: ValueType) -> Any:
    if kind == BOOLEAN:
        return value if isinstance(value, bool) else None
    if kind == STRING:
        return value if isinstance(value, str) else None
    if isinstance(kind, EnumType):
        return value if isinstance(value, str) and value in kind.values else None
    if kind == INTEGER:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        return value if is_integer and INTEGER_MIN <= value <= INTEGER_MAX else None
    if isinstance(kind, DecimalType):
        return _decimal(value, kind.scale)
    if kind == TIMESTAMP:
        return _timestamp(value)
    if kind == DURATION:
        match = _DURATION.match(value) if isinstance(value, str) else None
        return _EXACT.multiply(Decimal(match[1]), _SECONDS[match[2]]) if match else _decimal(value, None)
    if kind == BYTES:
        return read_base64(value) if isinstance(value, str) else None
    return None


def _decimal(value: Any, scale: int | None) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number.adjusted()) > NUMBER_EXPONENT_MAX:
        return None
    if scale is None:
        return number
    try:
        return number.quantize(Decimal((0, (1,), -scale)), context=_EXACT)
    except (Inexact, InvalidOperation):
        raise ValueError(f"it has more than {scale} digits after the point") from None


_DURATION: Final = re.compile(r"([+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d|w)\Z")
_SECONDS: Final[dict[str, Decimal | int]] = {
    "ms": Decimal("0.001"),
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86_400,
    "w": 604_800,
}


def _timestamp(value: Any) -> datetime | None:
    if not isinstance(value, str) or not TIMESTAMP_TEXT.fullmatch(value):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _many(value: Any, kind: ValueType) -> Any:
    match kind:
        case Array():
            return [literal_value(item, kind.item) for item in value] if isinstance(value, list) else None
        case SetType():
            if not isinstance(value, list):
                return None
            items = [literal_value(item, kind.item) for item in value]
            if len(set(items)) != len(items):
                raise ValueError("it has an element twice")
            return frozenset(items)
        case MapType():
            if not isinstance(value, dict):
                return None
            return {_key_literal(key, kind.key): literal_value(item, kind.value) for key, item in value.items()}
        case RecordType():
            return _record(value, kind)
    return None


def _key_literal(key: Any, kind: ValueType) -> str:
    """Return the text that stands for a key of a map."""
    word = key_kind(kind)
    if word in ("string", "any"):
        return str(key)
    text = str(key).lower() if isinstance(key, bool) else str(key)
    if word == "boolean" and text in ("true", "false"):
        return text
    if word == "integer" and re.fullmatch(r"-?[0-9]{1,19}", text) and INTEGER_MIN <= int(text) <= INTEGER_MAX:
        return str(int(text))
    number = _decimal(text, None) if word == "decimal" else None
    if number is not None:
        shown = format(number or abs(number), "f")
        return shown.rstrip("0").rstrip(".") if "." in shown else shown
    moment = _timestamp(text) if word == "timestamp" else None
    if moment is None:
        raise ValueError(f"the key {text[:40]!r} is no {word}")
    return moment.replace(tzinfo=None).isoformat() + "Z"


def _record(value: Any, kind: RecordType) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    for name in value:
        if kind.field(name) is None:
            raise ValueError(f"{describe(kind)} has no field `{name}`")
    result: dict[str, Any] = {}
    for field in kind.fields:
        if field.name in value:
            result[field.name] = literal_value(value[field.name], field.type)
        elif field.required:
            raise ValueError(f"its field `{field.name}` is missing")
        else:
            result[field.name] = None if field.default is msgspec.UNSET else field.default
    return result


# ---------------------------------------------------------------- scope

# Objects that the caller's context supplies; a declared name of the same spelling comes first.
AMBIENT: Final = ("user", "order", "request", "event", "transaction", "error")


class UndefinedName(Exception):
    """A contract uses a name that nothing defines: it cannot be judged."""

    def __init__(self, name: str, offset: int) -> None:
        super().__init__(f"`{name}` is not defined")
        self.name = name
        self.offset = offset


class Element(msgspec.Struct, frozen=True):
    """The element of a transform: its fields may be named without it."""

    name: str
    type: ValueType
    is_first: bool = False  # its fields come before variables of the same name


class NameScope(msgspec.Struct):
    """Names and types, and rules of the place."""

    names: dict[str, ValueType]
    aliases: dict[str, TypedExpression] = {}
    element: Element | None = None
    inputs: dict[str, ValueType] = {}  # for inputs.NAME
    outputs: dict[str, ValueType] = {}  # for outputs.NAME, in postconditions
    is_contract: bool = False  # an undefined name is UndefinedName instead of a remark
    allows_hosts: bool = False  # unknown functions are predicates of the embedding program
    entry: dict[str, ValueType] | None = None  # what old() can see; None: no old() here
    in_old: bool = False

    def copy_with(self, **changes: Any) -> NameScope:
        """Return a copy with other values; its names can change without changing these."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        values["names"] = dict(self.names)
        return NameScope(**(values | changes))

    def with_name(self, name: str, kind: ValueType) -> NameScope:
        scope = self.copy_with()
        scope.names[name] = kind
        scope.aliases = {alias: value for alias, value in self.aliases.items() if alias != name}
        return scope
