"""The built-in functions of expressions, in one table.

`FUNCTIONS` has those that take values and give a value; `AGGREGATES` those over a collection; `old`, `all` and `any`
are forms of the language. Kinds of parameters: `number`, `text`, `integer`, `sized` (text, bytes or a collection).
The paths have the code; here is what the checker must know.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lyra.vesper.values.types import BOOLEAN, DECIMAL, INTEGER, STRING, TIMESTAMP, ValueType


class BuiltIn(msgspec.Struct, frozen=True):
    """A function: the kinds of its parameters, and its type (None: that of its first argument)."""

    name: str
    parameters: tuple[str, ...]
    result: ValueType | None
    text: str


_TABLE: Final = (
    BuiltIn("len", ("sized",), INTEGER, "how many characters, bytes, elements or entries"),
    BuiltIn("round", ("number", "integer"), DECIMAL, "the number with so many digits after the point, half to even"),
    BuiltIn("abs", ("number",), None, "the number without its sign"),
    BuiltIn("lower", ("text",), STRING, "the text in lower case"),
    BuiltIn("upper", ("text",), STRING, "the text in upper case"),
    BuiltIn("trim", ("text",), STRING, "the text without blanks at its ends"),
    BuiltIn("starts_with", ("text", "text"), BOOLEAN, "whether the text begins with the second one"),
    BuiltIn("ends_with", ("text", "text"), BOOLEAN, "whether the text ends with the second one"),
    BuiltIn("matches", ("text", "text"), BOOLEAN, "whether the regular expression matches a part of the text"),
    BuiltIn("current_timestamp", (), TIMESTAMP, "the time of the execution, the same for all its steps"),
    BuiltIn("current_year", (), INTEGER, "its year, in UTC"),
)
FUNCTIONS: Final[dict[str, BuiltIn]] = {function.name: function for function in _TABLE}
AGGREGATES: Final = ("SUM", "COUNT", "AVG", "MIN", "MAX")
FORMS: Final = ("old", "all", "any")
