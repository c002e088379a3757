"""Finds out which keys a section may have, and of which form, by asking the code that reads it.

The readers of `lyra.vesper.nodes.sections` pass tables of keys to a `SectionReader`. `ShapeRecorder` stands in for
it: each method notes the form as JSON Schema instead of reading a value. So the schema cannot know other keys than
the loader. Forms that are plain functions leave no note; they accept anything here, and `build` says more where more
is known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any, Final

from lyra.core.checking.document import Path
from lyra.vesper.loading.document import read_document
from lyra.vesper.nodes.reader import Form, SectionReader
from lyra.vesper.nodes.sections import Sections
from lyra.vesper.nodes.steps import StepReader

Schema = dict[str, Any]
TEXT: Final[Schema] = {"type": ["string", "number", "boolean"]}
TEXTS: Final[Schema] = {"anyOf": [{"type": "string"}, {"type": "array", "items": TEXT}]}
_PROBE: Final = object()  # stands for a value that is there
_NAME: Final = "x"  # stands for a key of the author's choice
_SECTIONS: Final = ("metadata", "performance", "security", "observability", "testing", "types", "state_machines")


def or_null(schema: Schema) -> Schema:
    """The same, or nothing: a key without a value counts as absent."""
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    kind = schema.get("type")
    if kind is not None:
        kinds = kind if isinstance(kind, list) else [kind]
        return {**schema, "type": [*kinds, "null"]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]} if "$ref" in schema else schema


class ShapeRecorder(SectionReader):
    """A reader that notes the form of each part it is asked for, by path."""

    def __init__(self) -> None:
        super().__init__(read_document("{}"))
        self.shapes: dict[Path, Schema] = {}

    def error(self, code: str, message: str, path: Path, *, hint: str = "", value: bool = False) -> None:
        """Nothing is read, so nothing is wrong."""

    def warn(self, code: str, message: str, path: Path, *, hint: str = "") -> None:
        """Likewise."""

    def unknown_key(self, key: str, path: Path, known: Collection[str]) -> None:
        """Likewise."""

    # ------------------------------------------------------------ forms
    def text(self, value: Any, path: Path) -> str:  # noqa: ARG002 - the form alone counts
        self.shapes[path] = TEXT
        return ""

    def flag(self, value: Any, path: Path) -> bool:  # noqa: ARG002
        self.shapes[path] = {"type": "boolean"}
        return False

    def integer(self, value: Any, path: Path) -> int | None:  # noqa: ARG002
        self.shapes[path] = {"type": "integer", "minimum": 0}
        return None

    def number(self, value: Any, path: Path) -> None:  # noqa: ARG002
        self.shapes[path] = {"type": "number", "minimum": 0}

    def texts(self, value: Any, path: Path) -> tuple[str, ...]:  # noqa: ARG002
        self.shapes[path] = TEXTS
        return ()

    def items(self, value: Any, path: Path) -> list[Any]:
        self.shapes[path] = {"type": "array"}
        return [_PROBE] if value is _PROBE else []

    def mapping(self, value: Any, path: Path) -> dict[str, Any]:
        self.shapes[path] = {"type": "object"}
        return {_NAME: _PROBE} if value is _PROBE else {}

    def numbers(self, value: Any, path: Path) -> tuple[int | Decimal, ...]:  # noqa: ARG002
        self.shapes[path] = {"type": "array", "items": {"type": "number", "minimum": 0}}
        return ()

    def choice(self, *words: str) -> Form:
        def read(value: Any, path: Path) -> str:  # noqa: ARG001
            self.shapes[path] = {"enum": list(words)}
            return words[0]

        return read

    def section(self, value: Any, path: Path, table: Mapping[str, Form]) -> dict[str, Any]:  # noqa: ARG002
        properties: dict[str, Schema] = {}
        for key, form in table.items():
            inner = (*path, key)
            form(_PROBE, inner)
            properties[key] = or_null(self.shape(inner))
        self.shapes[path] = {"type": "object", "properties": properties, "additionalProperties": False}
        return {}

    # ------------------------------------------------------------ results
    def shape(self, path: Path) -> Schema:
        """What was noted for a part, with the parts inside it."""
        shape = self.shapes.get(path, {})
        if shape == {"type": "array"} and (*path, 0) in self.shapes:
            return {**shape, "items": self.shape((*path, 0))}
        if shape == {"type": "object"} and (*path, _NAME) in self.shapes:
            return {**shape, "additionalProperties": self.shape((*path, _NAME))}
        return shape


def section_shapes() -> dict[str, Schema]:
    """The shapes of the simple sections, and of a `field` that is written as a mapping."""
    recorder = ShapeRecorder()
    sections = Sections(recorder, StepReader(recorder))
    for name in _SECTIONS:
        getattr(sections, name)(_PROBE, (name,))
    sections._field(_NAME, {}, ("field",), what="input")
    return {name: recorder.shape((name,)) for name in (*_SECTIONS, "field")}
