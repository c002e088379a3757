"""The inputs of a program on the direct path: how each is read, what stands for an absent one, and copies for `old`.

An InputReader is made once per declared input when a program is compiled. Constraints read the input's own slot under
the name `value`, so that nothing is copied before they are judged. Null stands for an absent input that has no default,
and constraints say nothing about it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lyra.vesper.direct.coercion import reader
from lyra.vesper.direct.contracts import all_hold
from lyra.vesper.direct.frames import MISSING, Scope
from lyra.vesper.ir import NodeInput
from lyra.vesper.values.types import Nullable


class InputReader:
    """Binds one input: its slot, its coercion and what stands for it when it is absent."""

    __slots__ = ("absent", "holds", "name", "null_is_absent", "read", "slot")

    def __init__(self, declared: NodeInput, scope: Scope) -> None:
        self.name = declared.name
        self.slot = scope.names[declared.name]
        absent_is_null = not declared.required and declared.default in (msgspec.UNSET, None)
        kind = Nullable(declared.type) if absent_is_null else declared.type
        self.read = reader(kind)
        self.null_is_absent = isinstance(kind, Nullable)
        self.absent: Any = MISSING if declared.required else None
        if declared.default is not msgspec.UNSET and declared.default is not None:
            self.absent = self.read(declared.default)
        inner = scope.with_slot("value", self.slot)
        self.holds = all_hold(declared.constraints, inner) if declared.constraints else None


def snapshot(value: Any) -> Any:
    """A copy that later changes of an ambient object do not reach."""
    if isinstance(value, list):
        return [snapshot(item) for item in value]
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    return value
