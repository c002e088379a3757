"""What calls cost, summed by agent, model, day, process, gateway key or any of these together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from lyra.core.checking.check import one_of
from lyra.observe.history.calls import CallRecord

GROUPINGS: Final = ("agent", "model", "day", "pid", "key")


class CostRow(msgspec.Struct):
    """The sum of the model calls that share a value of each grouping."""

    group: tuple[str, ...]
    calls: int = 0
    errors: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    micro_usd: int = 0

    def to_data(self, by: Sequence[str]) -> dict[str, Any]:
        figures = {name: getattr(self, name) for name in ("calls", "errors", "input_tokens", "output_tokens")}
        return {**dict(zip(by, self.group, strict=True)), **figures, "cost_usd": self.micro_usd / 1_000_000}


def costs(calls: Iterable[CallRecord], by: Sequence[str] = ("agent", "model")) -> list[CostRow]:
    """A row for each group, the dearest first; all together without a grouping."""
    for grouping in by:
        one_of(grouping, GROUPINGS, "a grouping of costs")
    rows: dict[tuple[str, ...], CostRow] = {}
    for call in calls:
        if call.kind != "model" and not call.micro_usd:
            continue
        group = tuple(_value(call, grouping) for grouping in by)
        row = rows.setdefault(group, CostRow(group))
        row.calls += 1
        row.errors += call.status not in ("ok", "running")
        row.input_tokens += call.input_tokens
        row.output_tokens += call.output_tokens
        row.micro_usd += call.micro_usd
    return sorted(rows.values(), key=lambda row: (-row.micro_usd, row.group))


def _value(call: CallRecord, grouping: str) -> str:
    if grouping == "day":
        return datetime.fromtimestamp(call.started_at, UTC).date().isoformat()
    return str(call.paid_by if grouping == "key" else getattr(call, grouping)) or "-"
