"""Inputs with which a node is likely to succeed, for property tests.

Random values rarely pass the constraints of all inputs at once. `LikelyInputs` keeps, for each input, values that its
own constraints accept (random ones, boundaries, and texts that match its patterns; the reference evaluator judges
them). A row has such a value for each input, or is that of a test case with one input changed. What the contracts say
about several inputs together is left to chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from random import Random  # noqa: TID251 - the type; generators come from core.ids
from typing import Any, Final

import msgspec

from lyra.vesper import ir
from lyra.vesper.evidence.boundaries import Boundaries, parts_of
from lyra.vesper.evidence.inputs import Draw, drawer
from lyra.vesper.evidence.pattern_texts import pattern_drawer
from lyra.vesper.ir import NodeInput, NodeProgram, ReturnStep
from lyra.vesper.reference.run import run
from lyra.vesper.values.outcome import Execution

_POOL: Final = 32  # accepted values of an input
_TRIES: Final = 400  # to find them
_ABSENT_SHARE: Final = 0.2  # of optional inputs that a row leaves out
_LONG_TEXT: Final = "abcdefghijklmnopqrstuvwxyz0123456789"


class LikelyInputs:
    """Rows of inputs for one program, around the inputs of its test cases."""

    def __init__(self, program: NodeProgram, cases: Sequence[Mapping[str, Any]], rng: Random) -> None:
        self._rng = rng
        self._cases = [dict(case) for case in cases]
        self._inputs = program.inputs
        boundaries = Boundaries(program)
        self._draws = {declared.name: drawer(declared.type, boundaries) for declared in program.inputs}
        self._accepted = {declared.name: self._values(program, declared) for declared in program.inputs}

    def row(self) -> dict[str, Any]:
        """Inputs that are each accepted by themselves."""
        rng = self._rng
        chosen = [item for item in self._inputs if item.required or rng.random() >= _ABSENT_SHARE]
        return {declared.name: self.value(declared.name) for declared in chosen}

    def near_case(self) -> dict[str, Any]:
        """The inputs of a test case with one of them changed; any row where there is no test case."""
        if not self._cases or not self._inputs:
            return self.row()
        name = self._rng.choice(self._inputs).name
        return {**self._rng.choice(self._cases), name: self.value(name)}

    def value(self, name: str) -> Any:
        """A value that the constraints of an input accept; any of its type where none is known."""
        pool = self._accepted[name]
        return self._rng.choice(pool) if pool else self._draws[name](self._rng)

    def _values(self, program: NodeProgram, declared: NodeInput) -> list[Any]:
        """Values that an input accepts, from several sources in turn."""
        sources = [self._draws[declared.name], *_pattern_draws(declared), _long_text]
        given = [case[declared.name] for case in self._cases if declared.name in case]
        alone = _alone(program, declared)
        pool: list[Any] = []
        for value in self._candidates(given, sources):
            if _is_accepted(alone, {declared.name: value}):
                pool.append(value)
                if len(pool) == _POOL:
                    break
        return pool

    def _candidates(self, given: list[Any], sources: list[Draw]) -> Iterator[Any]:
        yield from given
        for number in range(_TRIES):
            yield sources[number % len(sources)](self._rng)


def _pattern_draws(declared: NodeInput) -> list[Draw]:
    """Draws texts for the patterns in an input's constraints."""
    draws = []
    for part in parts_of(declared.constraints):
        if isinstance(part, ir.FunctionCall) and part.function == "matches":
            pattern = part.arguments[-1]
            draw = pattern_drawer(pattern.value) if isinstance(pattern, ir.Constant) else None
            if draw is not None:
                draws.append(draw)
    return draws


def _long_text(rng: Random) -> str:
    """Draws a text for those that have to have some length."""
    return "".join(rng.choices(_LONG_TEXT, k=rng.randrange(4, 40)))


def _alone(program: NodeProgram, declared: NodeInput) -> NodeProgram:
    """A program with one input of another, which only checks it."""
    return msgspec.structs.replace(
        program,
        inputs=(declared,),
        success=(),
        steps=(ReturnStep(name="end", success=()),),
        preconditions=(),
        postconditions=(),
        invariants=(),
        olds=(),
        machines=(),
        rules=(),
        pure=True,
        digest=f"{program.digest}-{declared.name}",
    )


def _is_accepted(program: NodeProgram, inputs: Mapping[str, Any]) -> bool:
    execution = Execution(now=datetime(2026, 1, 1, tzinfo=UTC), trace_id="accepted")
    return run(program, inputs, execution).error is None
