"""The plan of a program: which calls overlap, and why the others do not. `compiler.plan_of` makes it."""

from __future__ import annotations

from typing import Any

import msgspec

from lyra.vega.plan.notes import Alone, Overlapping, PlannedCall


class OverlapPlan(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[Overlapping, ...]
    alone: tuple[Alone, ...]

    @property
    def calls(self) -> list[PlannedCall]:
        """Every call, in the order of the source."""
        calls = [call for group in self.groups for call in group.calls] + [row.call for row in self.alone]
        return sorted(calls, key=lambda call: (call.file, call.line, call.column))

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
            "alone": [{**_call(row.call), "why": row.why} for row in self.alone],
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
