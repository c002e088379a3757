"""The plan of a program: which calls overlap, and why the others do not."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from lyra.vega.plan.notes import Alone, Notes, Overlapping, PlannedCall

if TYPE_CHECKING:
    from lyra.vega.checker.checker import Load

__all__ = ["Plan", "plan_of"]


class Plan(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[Overlapping, ...]
    alone: tuple[Alone, ...]

    @property
    def calls(self) -> list[PlannedCall]:
        """Every call, in the order of the source."""
        found = [call for group in self.groups for call in group.calls] + [each.call for each in self.alone]
        return sorted(found, key=lambda call: (call.file, call.line, call.column))

    def to_data(self) -> dict[str, Any]:
        return {
            "file": self.name,
            "groups": [
                {
                    "function": group.function,
                    "step": group.step,
                    "declared": group.is_declared,
                    "calls": [_call(call) for call in group.calls],
                }
                for group in self.groups
            ],
            "alone": [{**_call(each.call), "why": each.why} for each in self.alone],
        }


def _call(call: PlannedCall) -> dict[str, Any]:
    return {
        "line": call.line,
        "column": call.column,
        "file": call.file,
        "text": call.text,
        "agent": call.agent,
        "in_loop": call.in_loop,
        "after": list(call.after),
        **({"unless": call.unless} if call.unless else {}),
    }


def plan_of(text: str, name: str = "<vega>", *, load: Load | None = None, host_names: Collection[str] = ()) -> Plan:
    """The plan of a source; ParseError or CheckError with all mistakes in `fields["problems"]`."""
    from lyra.vega.checker.checker import checked
    from lyra.vega.compiler.compiler import compile_module
    from lyra.vega.syntax.source import Source

    notes = Notes()
    module = checked(text, name, load=load, host_names=host_names)
    compile_module(module, Source(name, text), load=load, host_names=host_names, notes=notes)
    return Plan(name, tuple(notes.groups), tuple(notes.alone))
