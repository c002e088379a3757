"""The names that an expression can use, and what is allowed around it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.vesper.ir import TypedExpression
from lyra.vesper.values.types import ValueType

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

    def changed(self, **changes: Any) -> NameScope:
        """A copy with other values; its names can change without changing these."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        values["names"] = dict(self.names)
        return NameScope(**(values | changes))

    def with_name(self, name: str, kind: ValueType) -> NameScope:
        scope = self.changed()
        scope.names[name] = kind
        scope.aliases = {alias: value for alias, value in self.aliases.items() if alias != name}
        return scope
