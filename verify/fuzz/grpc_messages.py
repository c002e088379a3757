"""Messages for the fuzz of the gRPC server, from the contract: fields that fit, and a share of those that do not.

`message_bytes` gives one request for an RPC, as bytes; some are cut, flipped and stretched afterwards, some are no
message at all. It draws from a seeded generator and knows no server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from lyra.core.ids import ProcessRandom
from lyra.server.generated import engine_pb2 as pb

__all__ = ["PIPELINE", "Known", "message_bytes"]

Known = Mapping[str, tuple[str, ...]]  # names that fields take, by field
_DEPTH_MAX: Final = 4
PIPELINE: Final = {"name": "tea", "agents": [{"name": "brew", "default_next": "pour"}, {"name": "pour"}]}
_NAMES: Final = (
    "p0",
    "p1",
    "p2",
    "session",
    "env_0",
    "int_0",
    "brew",
    "pour",
    "known",
    "double",
    "worker",
    "alice",
    "bob",
)
_TEXTS: Final = (
    *_NAMES,
    *("", "end", "start", "~", "\0", "\n", "x" * 5_000, "é" * 300, "\u202e", "../../etc/passwd", "$(id)", "0", "None"),
)
_JSON: Final[tuple[Any, ...]] = (
    PIPELINE,
    {**PIPELINE, "default_run_mode": "parallel"},
    {"raw_input": "tea"},
    {"user_id": 7},
    {"outputs": {"brew": 3}},
    {"max_iterations": -1},
    {"interrupt_pending": True},
    {"interrupt_pending": True, "interrupt": {"kind": "clarification"}},
    {"metadata": {"state": {"a": [1]}}},
    {"n": 2},
    {},
    [],
    [1, "x", None],
    "text",
    0,
    2**70,
    -1.5e300,
    None,
    True,
)
_NUMBERS: Final = (0, 1, 2, -1, 7, 60, 2**31 - 1, -(2**31))
_REALS: Final = (0.0, 0.001, 1.0, -1.0, 1e308, float("inf"), float("-inf"), float("nan"))


def message_bytes(rng: ProcessRandom, method: str, known: Known) -> bytes:
    service, name = method.split("/")
    rpc = pb.DESCRIPTOR.services_by_name[service].methods_by_name[name]
    kind = rng()
    if kind < 0.03:
        return rng.randbytes(rng.randrange(60))
    maker = _Maker(rng, known, odd=rng.choice((0.0, 0.02, 0.1, 0.4)))
    data: bytes = maker.message(rpc.input_type).SerializeToString()
    return _mutated(rng, data) if kind < 0.2 else data


def _mutated(rng: ProcessRandom, data: bytes) -> bytes:
    changed = bytearray(data or b"\x0a\x01x")
    for _ in range(rng.randrange(1, 5)):
        place = rng.randrange(len(changed) + 1)
        act = rng.randrange(4)
        if act == 0 and place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
        elif act == 1:
            del changed[place : place + rng.randrange(1, 9)]
        elif act == 2:
            changed[place:place] = rng.randbytes(rng.randrange(1, 9))
        else:
            changed[place:place] = changed[: rng.randrange(len(changed) + 1)]
    return bytes(changed)


class _Maker:
    """Makes messages in which a share of the fields (`odd`) does not fit."""

    def __init__(self, rng: ProcessRandom, known: Known, *, odd: float) -> None:
        self._rng = rng
        self._known = known
        self._odd = odd

    def message(self, descriptor: Any, depth: int = 0) -> Any:
        filled = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if self._rng() < (0.05 if field.number == 1 else 0.4):
                continue
            if field.message_type is None:
                self._set_scalar(filled, field)
            elif field.message_type.GetOptions().map_entry:
                self._fill_map(getattr(filled, field.name), field.message_type)
            elif depth < _DEPTH_MAX:
                self._set_message(filled, field, depth)
        return filled

    def _set_scalar(self, filled: Any, field: Any) -> None:
        if field.is_repeated:
            getattr(filled, field.name).extend(self._scalar(field) for _ in range(self._rng.randrange(4)))
        else:
            setattr(filled, field.name, self._scalar(field))

    def _set_message(self, filled: Any, field: Any, depth: int) -> None:
        if field.is_repeated:
            parts = [self.message(field.message_type, depth + 1) for _ in range(self._rng.randrange(3))]
            getattr(filled, field.name).extend(parts)
        else:
            getattr(filled, field.name).CopyFrom(self.message(field.message_type, depth + 1))

    def _fill_map(self, mapping: Any, entry: Any) -> None:
        value = entry.fields_by_name["value"]
        for _ in range(self._rng.randrange(3)):
            if value.message_type is None:
                mapping[self._rng.choice(_NAMES)] = self._scalar(value)

    def _scalar(self, field: Any) -> Any:
        rng, is_odd = self._rng, self._rng() < self._odd
        if field.type == FieldDescriptor.TYPE_STRING:
            return rng.choice(_TEXTS if is_odd else self._known.get(field.name, _NAMES))
        if field.type == FieldDescriptor.TYPE_BYTES:
            return _odd_json(rng) if is_odd else _json(rng, field.name)
        if field.type == FieldDescriptor.TYPE_BOOL:
            return rng() < 0.5
        if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
            return rng.choice(_REALS if is_odd else (0.0, 0.01))
        if field.type == FieldDescriptor.TYPE_ENUM:
            return rng.choice((-1, 99, 2**31 - 1)) if is_odd else rng.choice(field.enum_type.values).number
        number = rng.choice(_NUMBERS if is_odd else (0, 1, 2, 60))
        is_large = is_odd and field.type == FieldDescriptor.TYPE_INT64 and abs(number) < 2**30
        return number * 2**32 if is_large else number


def _json(rng: ProcessRandom, name: str) -> bytes:
    """JSON of the kind that a field of this name takes."""
    values = {"pipeline_config": _JSON[:2], "envelope": ({"raw_input": "tea"},), "agent_config": ({},)}
    return json.dumps(rng.choice(values.get(name, ({}, {"n": 2}, {"good": True})))).encode()


def _odd_json(rng: ProcessRandom) -> bytes:
    kind = rng()
    if kind < 0.2:
        return rng.randbytes(rng.randrange(20))
    if kind < 0.3:
        return b"[" * rng.choice((10, 190, 2_000, 100_000))
    if kind < 0.4:
        return b'{"a":' * 150 + b"1" + b"}" * 150
    if kind < 0.5:
        return b'{"raw_input": "\\ud800", "a\\udfff": 1}'
    return json.dumps(rng.choice(_JSON)).encode()
