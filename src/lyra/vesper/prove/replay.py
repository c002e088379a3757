"""Executions on the reference evaluator: what an input leads to, and inputs that are tried without a solver.

An input is plain JSON, as `vesper run --input-json` takes it. `InputRun` says how its execution ended, which steps were
reached and where an operation failed, so that a counterexample counts only where the failure is the one in question.
`candidates` gives the inputs of the node's tests, likely ones, very large and very small decimals, and long lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from random import Random  # noqa: TID251 - the type; generators come from core.ids
from typing import Any, Final

import msgspec

from lyra.core.ids import make_random
from lyra.vesper import ir
from lyra.vesper.effects.compiled_path import drive
from lyra.vesper.effects.request import Effects
from lyra.vesper.evidence.answers import AnswerForms
from lyra.vesper.evidence.inputs import parts_of
from lyra.vesper.evidence.likely_inputs import LikelyInputs
from lyra.vesper.evidence.worlds import RememberingWorld
from lyra.vesper.reference.run import ReferenceWalk
from lyra.vesper.values.json_values import json_shape
from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX
from lyra.vesper.values.outcome import Execution, NodeError, Outcome, new_execution
from lyra.vesper.values.types import Array, DecimalType, Nullable, RecordType, Scalar, ValueType

_SEED: Final = 20_251_101
_LIKELY: Final = 150
_NEAR: Final = 60
_FULL_ENOUGH: Final = 12  # elements of a list, those of its lists counted
_MIXED: Final = 60  # inputs with several extremes at once
_LIST_ITEMS_MAX: Final = 300
_WORLDS: Final = 4  # simulated surroundings that an input of a node that acts is tried in
_BASES: Final = 4  # accepted inputs that extremes are put into, each with another way through the node
_REFUSED: Final = ("input", "precondition")


class InputRun(msgspec.Struct, frozen=True):
    """What an input led to. `failed` holds each failure of an operation, as step and code."""

    outcome: Outcome
    reached: frozenset[str]
    failed: frozenset[tuple[str, str]]

    @property
    def is_accepted(self) -> bool:
        failure = self.outcome.error
        return failure is None or failure.phase not in _REFUSED

    @property
    def code(self) -> str:
        return "" if self.outcome.error is None else self.outcome.error.code


class _ReplayWalk(ReferenceWalk):
    """An execution of which the steps and their failures are noted."""

    def __init__(
        self, program: ir.NodeProgram, execution: Execution, effects: Effects | None, assigned: set[str]
    ) -> None:
        super().__init__(program, execution, effects)
        self.assigned = assigned
        self.reached: set[str] = set()
        self.failed: set[tuple[str, str]] = set()

    async def step(self, step: ir.Step, local: dict[str, Any]) -> None:
        before = len(self.failed)
        try:
            if isinstance(step, ir.ValidateStep) or not step.guards or self.all_true(step.guards, local):
                self.reached.add(step.name)
            await super().step(step, local)
        except NodeError as error:
            if len(self.failed) == before:  # the innermost step
                self.failed.add((step.name, error.code))
            raise

    def success(self, values: dict[str, Any]) -> dict[str, Any]:
        try:
            return super().success(values)
        except NodeError as error:
            self.failed.add(("output", error.code if error.code != "incomplete_output" else error.message))
            raise


class InputReplayer:
    """Replays inputs of one program; one that acts, in some simulated surroundings."""

    def __init__(self, program: ir.NodeProgram, like: InputReplayer | None = None) -> None:
        """Give the acts the answers that they have in another replayer, if there is one."""
        self.program = program
        self._assigned = ReferenceWalk(program, new_execution(), None).assigned
        self._forms: AnswerForms | None = like._forms if like else None if program.pure else AnswerForms(program)
        self._runs: dict[str, list[InputRun]] = {}  # by input

    def run(self, inputs: Mapping[str, Any]) -> list[InputRun]:
        """Run an input of plain JSON in each of the surroundings, once, and return the results."""
        text = json.dumps(inputs, sort_keys=True)
        if text not in self._runs:
            forms, program = self._forms, self.program
            worlds = [None] if forms is None else [RememberingWorld(program, forms, n) for n in range(_WORLDS)]
            self._runs[text] = [self.run_in(inputs, world) for world in worlds]
        return self._runs[text]

    def run_in(self, inputs: Mapping[str, Any], effects: Effects | None) -> InputRun:
        walk = _ReplayWalk(self.program, new_execution(trace_id="prove"), effects, self._assigned)
        value: dict[str, Any] = json.loads(json.dumps(inputs), parse_float=Decimal)
        outcome = drive(walk.outcome(value))
        return InputRun(outcome, frozenset(walk.reached), frozenset(walk.failed))


# ---------------------------------------------------------------- candidates


def candidates(replayer: InputReplayer, cases: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield inputs that may show something, as plain JSON."""
    rng, program = make_random(_SEED), replayer.program
    likely = LikelyInputs(program, cases, rng)
    bases: dict[frozenset[str], dict[str, Any]] = {}
    lists: dict[str, dict[str, Any]] = {}  # for each list input, the accepted inputs with a long value of it
    rows = [*map(dict, cases), *(likely.row() for _ in range(_LIKELY)), *(likely.near_case() for _ in range(_NEAR))]
    for row in rows:
        plain = to_plain_json(row)
        if plain is None:
            continue
        yield plain
        seen = replayer.run(plain)[0]
        if seen.is_accepted:
            if len(bases) < _BASES:
                bases.setdefault(seen.reached, plain)
            for item in program.inputs:
                fullness = _fullness(plain.get(item.name))
                if 0 < fullness <= _FULL_ENOUGH and fullness > _fullness(lists.get(item.name, {}).get(item.name)):
                    lists[item.name] = plain
    numbers = _numbers(program)
    some = list({id(base): base for base in (*bases.values(), *lists.values())}.values())
    for base in some:
        for item in program.inputs:
            yield from ({**base, item.name: value} for value in _extremes(item.type, base.get(item.name)))
    for number in range(_MIXED if some else 0):
        base = some[number % len(some)]
        yield {
            item.name: _mix_extremes(item.type, base[item.name], numbers, rng)
            for item in program.inputs
            if item.name in base
        }
    lengths = sorted({number + more for number in numbers for more in range(3) if 3 < number <= _LIST_ITEMS_MAX})
    for name, base in lists.items():
        yield from ({**base, name: [base[name][0]] * length} for length in lengths)


def _fullness(value: Any) -> int:
    """Return how many elements a list and the lists in it have; 0 where one of them has none."""
    if not isinstance(value, list) or not value:
        return 0
    inner = [_fullness(item) for item in value if isinstance(item, list)]
    return 0 if 0 in inner else len(value) + sum(inner)


def to_plain_json(inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return inputs as plain JSON; None where they hold something that JSON has no form for."""
    try:
        return {name: json.loads(json.dumps(_shape(value), allow_nan=False)) for name, value in inputs.items()}
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None


def _shape(value: Any) -> Any:
    if isinstance(value, float):
        return str(Decimal(repr(value)))
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, list):
        return [_shape(item) for item in value]
    if isinstance(value, dict):
        return {name: _shape(item) for name, item in value.items()}
    return json_shape(value)


def _numbers(program: ir.NodeProgram) -> list[int]:
    """Return the whole numbers that a program names."""
    numbers = {getattr(part, "max_iterations", None) for part in parts_of(program.steps)}
    numbers |= {part.value for part in parts_of(program) if isinstance(part, ir.Constant)}
    return sorted(number for number in numbers if isinstance(number, int) and not isinstance(number, bool))


def _extreme_decimals(scale: int | None) -> tuple[str, ...]:
    """Return decimals at the limits of digits."""
    if scale is None:
        return ("1e9999", "-1e9999", "1e-9999", "0.00", "1e28")
    large = DECIMAL_DIGITS_MAX - scale  # digits before the point
    return (f"9e{large - 1}", f"1e-{scale}", "0", "9" * large + ("." + "9" * scale if scale else ""))


def _strip_null(kind: ValueType) -> ValueType:
    return kind.type if isinstance(kind, Nullable) else kind


def _extremes(kind: ValueType, base: Any) -> Iterator[Any]:
    """Yield values of a type with an extreme decimal in each place that takes one."""
    match _strip_null(kind):
        case DecimalType(scale=scale):
            yield from _extreme_decimals(scale)
        case Array() as array if isinstance(base, list) and base:
            for value in _extremes(array.item, base[0]):
                yield [value]
                yield [value, *base[:2]]
        case RecordType() as record if isinstance(base, dict):
            for field in record.fields:
                yield from ({**base, field.name: value} for value in _extremes(field.type, base.get(field.name)))


def _mix_extremes(kind: ValueType, base: Any, numbers: list[int], rng: Random) -> Any:
    """Return a value with extremes in some places."""
    match _strip_null(kind):
        case DecimalType(scale=scale):
            return rng.choice((base, *_extreme_decimals(scale)[:3], *map(str, numbers[-6:])))
        case Array() as array if isinstance(base, list) and base:
            return [_mix_extremes(array.item, rng.choice(base), numbers, rng) for _ in range(rng.randrange(1, 4))]
        case RecordType() as record if isinstance(base, dict):
            fields = [field for field in record.fields if field.name in base]
            return {
                **base,
                **{field.name: _mix_extremes(field.type, base[field.name], numbers, rng) for field in fields},
            }
        case Scalar(kind="integer"):
            return rng.choice((base, 1, 2, *numbers[-6:]))
    return base
