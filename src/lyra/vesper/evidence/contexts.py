"""Executions for differential tests: a fixed time, ambient objects, predicates and effects that follow from a seed.

Both paths are given the same Execution. Predicates and effects answer by a digest of what they are asked, so equal
questions have equal answers on both paths, whatever the order.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

from lyra.core.ids import seeded
from lyra.vesper import ir
from lyra.vesper.effects.replay import EffectLog, request_digest
from lyra.vesper.effects.request import EffectError, EffectRequest
from lyra.vesper.evidence.boundaries import Boundaries, parts_of
from lyra.vesper.evidence.inputs import Draw, drawer
from lyra.vesper.ir import NodeProgram
from lyra.vesper.values.outcome import Execution
from lyra.vesper.values.types import ANY

_NOW: Final = datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC)
_ERRORS: Final = ("timeout", "overloaded", "invalid_transition", "declined")


def executions(program: NodeProgram, seed: int, count: int = 8) -> list[Execution]:
    """Some contexts; in the last, predicates and ambient objects are missing."""
    hosts = sorted({part.name for part in parts_of(program) if isinstance(part, ir.Host)})
    if not hosts and not program.ambient:
        return [Execution(now=_NOW, trace_id=f"t{seed}")]
    rng, draw = seeded(seed), drawer(ANY, Boundaries(program))
    fields = _ambient_fields(program)
    contexts = []
    for number in range(count - 1):
        ambient = {name: {field: draw(rng) for field in fields[name]} for name in program.ambient}
        predicates = {name: _predicate(f"{seed}/{number}/{name}") for name in hosts}
        contexts.append(Execution(now=_NOW, trace_id=f"t{seed}-{number}", predicates=predicates, ambient=ambient))
    return [*contexts, Execution(now=_NOW, trace_id=f"t{seed}-bare")]


def open_execution(program: NodeProgram, seed: int) -> Execution:
    """A context that stands in no node's way: predicates hold, and contracts about ambient objects are unverifiable."""
    hosts = {part.name for part in parts_of(program) if isinstance(part, ir.Host)}
    predicates: dict[str, Callable[..., bool]] = dict.fromkeys(hosts, _holds)
    return Execution(now=_NOW, trace_id=f"t{seed}-open", predicates=predicates)


def _holds(*_: Any) -> bool:
    return True


def _ambient_fields(program: NodeProgram) -> dict[str, list[str]]:
    """The fields of ambient objects that the program reads."""
    fields: dict[str, set[str]] = {name: set() for name in program.ambient}
    for part in parts_of(program):
        if isinstance(part, ir.FieldOf) and isinstance(part.target, ir.NodeVariable) and part.target.name in fields:
            fields[part.target.name].add(part.name)
    return {name: sorted(names) for name, names in fields.items()}


def _predicate(key: str) -> Callable[..., bool]:
    def answer(*values: Any) -> bool:
        return blake2b(repr(values).encode(), key=key.encode()[:64]).digest()[0] < 128

    return answer


def simulator(program: NodeProgram, seed: int) -> Callable[[], SimulatedEffects]:
    """Gives effects for one execution after the other; equal requests have equal answers in all of them."""
    draw = drawer(ANY, Boundaries(program))
    return lambda: SimulatedEffects(draw, seed)


class SimulatedEffects:
    """Answers every request at once, by its digest, and logs it."""

    def __init__(self, draw: Draw, seed: int) -> None:
        self._seed = seed
        self._draw = draw
        self.log = EffectLog()

    async def perform(self, request: EffectRequest) -> Any:
        rng = seeded(int(request_digest(request), 16) ^ self._seed)
        if request.kind == "state.transition" and rng.random() < 0.8:
            response = request.payload["to"]
        elif rng.random() < 0.2:
            error = EffectError(rng.choice(_ERRORS), "simulated")
            self.log.add(request, error=error)
            raise error
        else:
            response = self._draw(rng)
        self.log.add(request, response=response)
        return response
