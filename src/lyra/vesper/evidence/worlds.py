"""Simulated surroundings of executions: contexts that follow from a seed, and an outside world that remembers.

`RememberingWorld`, for property tests, answers each request by what it asks for, so that equal questions have equal
answers on both paths and in both of two executions. It performs a request once for its key, as the real performers do,
keeps where the entities of state machines stand, and notes what no node may do: a transition that its machine does not
declare, and another request under a key that was used before. Contexts, for differential tests, have a fixed time,
ambient objects, predicates and effects.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from random import Random  # noqa: TID251 - the type; generators come from core.ids
from typing import Any, Final

import msgspec

from lyra.core.ids import seeded
from lyra.vesper import ir
from lyra.vesper.effects.replay import EffectLog, request_digest
from lyra.vesper.effects.request import EffectError, EffectRequest
from lyra.vesper.evidence.inputs import Boundaries, Draw, drawer, parts_of
from lyra.vesper.values.outcome import Execution
from lyra.vesper.values.types import ANY, STRING

_READING_METHODS: Final = ("GET", "HEAD")
_FAILING_SHARE: Final = 0.1
_EMPTY_SHARE: Final = 0.5  # of queries that have no rows
_ODD_SHARE: Final = 0.15  # of responses that are anything
_TEXT_SHARE: Final = 0.7  # of fields that hold a text


class ResponseForms:
    """What acts of a program answer with, made once for all its worlds."""

    def __init__(self, program: ir.NodeProgram) -> None:
        boundaries = Boundaries(program)
        self._draw = drawer(ANY, boundaries)
        self._draw_text = drawer(STRING, boundaries)
        steps = [part for part in parts_of(program) if isinstance(part, ir.EffectStep)]
        self._draws = {step.name: drawer(step.output_type, boundaries) for step in steps if step.output_type != ANY}
        self._fields = sorted({part.name for part in parts_of(program) if isinstance(part, ir.FieldOf)})
        self.machines = {machine.name: machine for machine in program.machines}

    def response(self, request: EffectRequest, rng: Random) -> Any:
        """Now and then anything; else of the form that such an act has, with the fields that the program reads."""
        if rng.random() < _ODD_SHARE:
            return self._draw(rng)
        if request.kind in ("db.write", "db.update", "db.delete"):
            return {"rows": 1}
        if request.kind == "db.query":
            return [self._record(rng) for _ in range(rng.randrange(1, 3))]
        draw: Draw = self._draws.get(request.step, self._record)
        return draw(rng)

    def _record(self, rng: Random) -> dict[str, Any]:
        return {name: (self._draw_text if rng.random() < _TEXT_SHARE else self._draw)(rng) for name in self._fields}


class RememberingWorld:
    """Shared by the executions of one property test on one path."""

    def __init__(self, responses: ResponseForms, seed: int) -> None:
        self._responses = responses
        self._seed = seed
        self._machines = responses.machines
        self._by_key: dict[str, tuple[str, Any, EffectError | None]] = {}
        self.states: dict[tuple[str, str], str] = {}
        self.changes: list[str] = []  # acts that changed something, in their order
        self.problems: list[str] = []

    async def perform(self, request: EffectRequest) -> Any:
        asked = request_digest(msgspec.structs.replace(request, idempotency_key="", timeout_s=None, retry=None))
        earlier = self._by_key.get(request.idempotency_key)
        if earlier is None:
            earlier = asked, *self._answer(request, asked)
            self._by_key[request.idempotency_key] = earlier
        elif earlier[0] != asked:
            self.problems.append(f"{request.step} asks for something else under the key of an earlier request")
        _, response, error = earlier
        if error is not None:
            raise EffectError(error.kind, error.message, error.fields)
        return response

    def _answer(self, request: EffectRequest, asked: str) -> tuple[Any, EffectError | None]:
        if request.kind == "state.transition":
            return self._move(request)
        if not _only_reads(request):
            self.changes.append(f"{request.step} ({request.kind})")
        rng = seeded(int(asked, 16) ^ self._seed)
        if rng.random() < _FAILING_SHARE:
            return None, EffectError("timeout", "simulated")
        if request.kind == "db.query" and rng.random() < _EMPTY_SHARE:
            return [], None
        return self._responses.response(request, rng), None

    def _move(self, request: EffectRequest) -> tuple[Any, EffectError | None]:
        payload = request.payload
        name, source, target = payload["machine"], payload["from"], payload["to"]
        machine = self._machines[name]
        if target not in machine.states:
            self.problems.append(f"{request.step}: {name} has no state {target!r}")
        if not any((start, end) == (source, target) for start, end, _ in machine.moves):
            self.problems.append(f"{request.step}: {name} declares no transition from {source!r} to {target!r}")
        place = name, repr(payload["entity"])
        here = self.states.get(place, machine.initial)
        if here != source:
            return None, EffectError("invalid_transition", f"{name} is {here}, not {source}")
        self.changes.append(f"{request.step} (state.transition)")
        self.states[place] = target
        return target, None


def _only_reads(request: EffectRequest) -> bool:
    if request.kind == "http.call":
        return str(request.payload.get("method") or "POST").upper() in _READING_METHODS
    return request.kind in ("db.query", "event.subscribe")


# ---------------------------------------------------------------- contexts

_NOW: Final = datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC)
_ERRORS: Final = ("timeout", "overloaded", "invalid_transition", "declined")


def executions(program: ir.NodeProgram, seed: int, count: int = 8) -> list[Execution]:
    """Return some contexts; in the last, predicates and ambient objects are missing."""
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


def open_execution(program: ir.NodeProgram, seed: int) -> Execution:
    """Return a context that stands in no node's way: predicates hold, and contracts about ambient objects are
    unverifiable."""
    hosts = {part.name for part in parts_of(program) if isinstance(part, ir.Host)}
    predicates: dict[str, Callable[..., bool]] = dict.fromkeys(hosts, _holds)
    return Execution(now=_NOW, trace_id=f"t{seed}-open", predicates=predicates)


def _holds(*_: Any) -> bool:
    return True


def _ambient_fields(program: ir.NodeProgram) -> dict[str, list[str]]:
    """Return the fields of ambient objects that the program reads."""
    fields: dict[str, set[str]] = {name: set() for name in program.ambient}
    for part in parts_of(program):
        if isinstance(part, ir.FieldOf) and isinstance(part.target, ir.NodeVariable) and part.target.name in fields:
            fields[part.target.name].add(part.name)
    return {name: sorted(names) for name, names in fields.items()}


def _predicate(key: str) -> Callable[..., bool]:
    def answer(*values: Any) -> bool:
        return blake2b(repr(values).encode(), key=key.encode()[:64]).digest()[0] < 128

    return answer


def simulator(program: ir.NodeProgram, seed: int) -> Callable[[], SimulatedEffects]:
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
