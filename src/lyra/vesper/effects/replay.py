"""A log of performed effects, and effects that answer from it.

One path of an execution is live and logs what it performs; the other is given `ReplayEffects` over that log. Nothing is
performed twice: a request is answered by its step and its number within the step. A request that the log does not have,
one that differs from the logged one, and a logged one that is never asked for are mismatches, which count as
divergences. Requests are compared by a digest of everything in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final

import msgspec

from lyra.vesper.effects.request import EffectError, EffectRequest, TransactionBody, TransactionEnd

_PLAIN: Final = frozenset({str, int, bool, type(None)})  # they are JSON as they are


class EffectRecord(msgspec.Struct, frozen=True):
    """One performed effect. `error_kind` is empty where it succeeded."""

    step: str
    call_index: int
    request: str  # the digest
    response: Any = None
    error_kind: str = ""
    error_message: str = ""
    error_fields: dict[str, Any] = {}
    milliseconds: float = 0.0  # that the live path waited for it; of a statement of a transaction not measured


def request_digest(request: EffectRequest) -> str:
    """Return a digest that equal requests share: the order of a map's keys and the sign of zero do not count."""
    parts = msgspec.structs.astuple(request)
    return blake2b(msgspec.json.encode(_to_tagged_json(parts)), digest_size=16).hexdigest()


def _to_tagged_json(value: Any) -> Any:
    """Return the value as JSON in which values of unlike kinds never look alike."""
    if type(value) in _PLAIN:
        return value
    match value:
        case None | bool() | int() | str():
            return value
        case Decimal():
            return ["decimal", format(value if value else abs(value), "f")]
        case float():
            return ["float", repr(value)]
        case bytes():
            return ["bytes", value.hex()]
        case datetime():
            return ["timestamp", value.astimezone(UTC).isoformat()]
        case list() | tuple():
            return ["list", *[item if type(item) in _PLAIN else _to_tagged_json(item) for item in value]]
        case set() | frozenset():
            return ["set", *sorted((_to_tagged_json(item) for item in value), key=msgspec.json.encode)]
        case dict():
            rows = [[key, item if type(item) in _PLAIN else _to_tagged_json(item)] for key, item in value.items()]
            return ["map", *(sorted(rows) if len(rows) > 1 else rows)]
        case msgspec.Struct():
            return [type(value).__name__, *(_to_tagged_json(getattr(value, name)) for name in value.__struct_fields__)]
    return ["other", repr(value)]


class EffectLog:
    """The effects of one execution, in the order in which they ended."""

    def __init__(self, records: list[EffectRecord] | None = None) -> None:
        self.records: list[EffectRecord] = list(records or [])

    def add(
        self,
        request: EffectRequest,
        *,
        response: Any = None,
        error: EffectError | None = None,
        milliseconds: float = 0.0,
    ) -> None:
        kind, message, fields = ("", "", {}) if error is None else (error.kind, error.message, error.fields)
        place = request.step, request.call_index, request_digest(request)
        self.records.append(EffectRecord(*place, response, kind, message, fields, milliseconds))

    def to_record(self, *, committed: bool) -> dict[str, Any]:
        """Return the effects as the response of a transaction."""
        names = [name for name in EffectRecord.__struct_fields__ if name != "milliseconds"]
        statements = [{name: getattr(row, name) for name in names} for row in self.records]
        return {"committed": committed, "statements": statements}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> EffectLog:
        """Return the statements of a transaction, to replay its steps with."""
        return cls([msgspec.convert(row, EffectRecord) for row in record["statements"]])

    def copy(self) -> EffectLog:
        return EffectLog(self.records)

    def __len__(self) -> int:
        return len(self.records)


def _mismatch(step: str, call_index: int, python: str, direct: str) -> dict[str, Any]:
    return {
        "path": f"root.effects.{step}[{call_index}]",
        "kind": "effect_mismatch",
        "python": python,
        "direct": direct,
    }


class ReplayEffects:
    """Answers requests from a log. `replayed` names the path that is given this object."""

    def __init__(self, log: EffectLog, *, replayed: str = "direct") -> None:
        self._records = {(record.step, record.call_index): record for record in log.records}
        self._replayed = replayed
        self._asked: set[tuple[str, int]] = set()
        self._mismatches: list[dict[str, Any]] = []

    def learn(self, record: EffectRecord) -> None:
        """Answer from one more record: of a live path that is still under way."""
        self._records[record.step, record.call_index] = record

    def has(self, request: EffectRequest) -> bool:
        """Return whether the log has this very request."""
        record = self.record_of(request)
        return record is not None and record.request == request_digest(request)

    def record_of(self, request: EffectRequest) -> EffectRecord | None:
        """Return the log's record at the place of a request."""
        return self._records.get((request.step, request.call_index))

    async def perform(self, request: EffectRequest) -> Any:
        place = request.step, request.call_index
        self._asked.add(place)
        record = self._records.get(place)
        if record is None:
            self._report(*place, live="no request", replayed=f"{request.kind} was asked for")
            raise EffectError("effect_mismatch", "the live path made no such request")
        if not self.is_asked(record, request):
            self._report(
                *place, live=f"request {self.digest_of(record)}", replayed=f"request {request_digest(request)}"
            )
        if record.error_kind:
            raise EffectError(record.error_kind, record.error_message, record.error_fields)
        return record.response

    def is_asked(self, record: EffectRecord, request: EffectRequest) -> bool:
        """Return whether a request is the one that was logged in its place."""
        return record.request == request_digest(request)

    def digest_of(self, record: EffectRecord) -> str:
        """Return the digest of the request that was logged."""
        return record.request

    async def transact(self, request: EffectRequest, body: TransactionBody) -> TransactionEnd:
        """Return how the steps of a transaction end over its record. Effects that know no transactions have logged the
        statements themselves."""
        if (request.step, request.call_index) not in self._records:
            return await body(self)
        record = await self.perform(request)
        statements = ReplayEffects(EffectLog.from_record(record), replayed=self._replayed)
        end = await body(statements)
        self._mismatches += statements.mismatches()
        if end.commits != record["committed"]:
            words = ["rolled back", "committed"]
            self._report(request.step, request.call_index, live=words[record["committed"]], replayed=words[end.commits])
        return end

    def _report(self, step: str, call_index: int, *, live: str, replayed: str) -> None:
        pair = (live, replayed) if self._replayed == "direct" else (replayed, live)
        self._mismatches.append(_mismatch(step, call_index, *pair))

    @property
    def mismatches_so_far(self) -> list[dict[str, Any]]:
        """Return the mismatches of the requests so far."""
        return list(self._mismatches)

    def mismatches(self) -> list[dict[str, Any]]:
        """Return all mismatches, once the replaying path has ended; requests that it never made among them."""
        missing = [
            _mismatch(
                *place,
                *(("performed", "not asked for") if self._replayed == "direct" else ("not asked for", "performed")),
            )
            for place in self._records
            if place not in self._asked
        ]
        return [*self._mismatches, *missing]
