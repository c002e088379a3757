"""What the parts of one check share: the node, its document, the remarks, and what was noticed on the way."""

from __future__ import annotations

from typing import Any

import msgspec

from lyra.core.checking.document import Path
from lyra.errors import ParseError
from lyra.vesper.check.literals import literal_value
from lyra.vesper.ir import Step, TypedExpression
from lyra.vesper.loading import ERROR, INFO, WARNING, Issues
from lyra.vesper.nodes.model import Node
from lyra.vesper.values.types import ValueType


class TextSite(msgspec.Struct, frozen=True):
    """Where the text of an expression stands: the part of the file, and its offset in that part's text."""

    path: Path
    offset: int = 0


class CheckState:
    """The state of one check."""

    def __init__(self, node: Node) -> None:
        self.node = node
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
        """An error at a part's key, or at its value."""
        self._add(ERROR, code, message, path, hint, value)

    def warn(self, code: str, message: str, path: Path, *, hint: str = "", value: bool = False) -> None:
        self._add(WARNING, code, message, path, hint, value)

    def info(self, code: str, message: str, path: Path, *, hint: str = "", value: bool = False) -> None:
        self._add(INFO, code, message, path, hint, value)

    def _add(self, severity: str, code: str, message: str, path: Path, hint: str, value: bool) -> None:
        place = self.document.value_place(path) if value else self.document.place(path)
        self.issues.add(severity, code, message, path=path, place=place, hint=hint)

    def mark(self, severity: str, code: str, message: str, site: TextSite, offset: int, *, hint: str = "") -> None:
        """A remark at a character of an expression."""
        self.issues.add(severity, code, message, path=site.path, place=self.place(site, offset), hint=hint)

    def syntax(self, error: ParseError, site: TextSite) -> None:
        """The remark for an expression that cannot be parsed."""
        offset = int(error.fields.get("offset", 0))
        self.mark(ERROR, "expression_syntax", error.message, site, offset, hint=error.hint or "")

    def place(self, site: TextSite, offset: int) -> tuple[int, int]:
        return self.document.place_in(site.path, site.offset + offset)

    # ------------------------------------------------------------ values
    def has_path(self, path: Path) -> bool:
        return path in self.document.places

    def literal(self, value: Any, kind: ValueType, path: Path) -> Any:
        """A value of the file as a value of a type; None after a remark where it is none."""
        if value is None:
            return None
        try:
            return literal_value(value, kind)
        except ValueError as error:
            self.error("bad_value", f"the value does not fit: {error}", path, value=True)
            return None
