"""Property tests of a node: what holds for all inputs, tried with many of them on both paths.

    results = check_properties(node, count=200)

`idempotency`: the same inputs twice, an hour apart, have equal outcomes, and the second time changes nothing.
`state_machine_correctness`: executions one after the other, in one world, ask only for declared transitions between
declared states. A test with an `invariant` (or `verify`) is an expression over inputs and outputs that holds at the end
of every execution; `invariants` without one are those of the contracts. Each path has a simulated world of its own, and
outcomes of both are compared. Inputs are those of the test cases, some near them, some that are likely to be accepted,
and random ones. Inputs that break a property are made as small as they can be. A property that no accepted input was
tried with is not shown. Single test cases of a node are judged here too, and run where they answer the
acts themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from random import Random  # noqa: TID251 - the type; generators come from core.ids
from typing import Any, Final

import msgspec

from lyra.core.ids import make_random
from lyra.vesper.check.judge import program_of
from lyra.vesper.check.state import literal_value
from lyra.vesper.check.types import element_of, field_type
from lyra.vesper.effects.request import EffectError, EffectRequest, TransactionBody, TransactionEnd
from lyra.vesper.evidence.answers import AnswerForms
from lyra.vesper.evidence.compare import compare
from lyra.vesper.evidence.differential import RunPath, default_paths
from lyra.vesper.evidence.inputs import InputGenerator
from lyra.vesper.evidence.likely_inputs import LikelyInputs
from lyra.vesper.evidence.search import shrink
from lyra.vesper.evidence.worlds import RememberingWorld, SimulatedLog, SimulatedReplay, executions, open_execution
from lyra.vesper.ir import NodeOutput, NodeProgram, ReturnStep
from lyra.vesper.nodes.model import ContractText, Node, PropertyTest
from lyra.vesper.values.json_values import json_shape
from lyra.vesper.values.outcome import CODES, Execution, Outcome, new_execution
from lyra.vesper.values.types import ANY, BYTES, DURATION, INTEGER, TIMESTAMP, MapType, SetType, ValueType, without_null

PROPERTIES: Final = ("idempotency", "state_machine_correctness", "invariants")
WALK_MAX: Final = 8  # executions one after the other in one world
_LATER: Final = timedelta(hours=1)

# The problems of a path with the inputs of one execution or of several, one after the other.
Judge = Callable[[RunPath, list[dict[str, Any]]], list[str]]


class PropertyResult(msgspec.Struct, frozen=True):
    """How one property test ended. `inputs` are those of the smallest failing execution, None where there is none."""

    name: str
    checked: int  # inputs that were tried
    accepted: int  # of them, those with which the node succeeded
    problems: tuple[str, ...] = ()
    inputs: tuple[dict[str, Any], ...] | None = None

    @property
    def is_shown(self) -> bool:
        """Whether the node succeeded with at least one of the inputs: refusals alone show nothing."""
        return self.accepted > 0 or bool(self.problems)


def check_properties(
    node: Node, count: int, seed: int = 0, *, python: RunPath | None = None, direct: RunPath | None = None
) -> Iterator[PropertyResult]:
    """Yield the result of each declared property test of a node."""
    usual = default_paths()
    paths = {"python": python or usual[0], "direct": direct or usual[1]}
    for index, declared in enumerate(node.testing.property_tests):
        yield _PropertyRun(node, index, declared, paths, seed).result(count)


class _PropertyRun:
    def __init__(self, node: Node, index: int, declared: PropertyTest, paths: Mapping[str, RunPath], seed: int) -> None:
        self._paths = paths
        self._seed = seed
        text = declared.invariant or declared.verify
        self.name = declared.property or text or f"property {index + 1}"
        self._kind = "expression" if text else _kind(declared.property)
        self._text = text
        self._program = _judging(node, index, declared) if text else program_of(node)
        self._forms = AnswerForms(self._program)
        self._given = [dict(case.inputs) for case in node.testing.test_cases]
        self._contexts = [open_execution(self._program, seed), *executions(self._program, seed)]
        self._context, self._world_seed = self._contexts[0], seed

    def result(self, count: int) -> PropertyResult:
        judge = self._judges().get(self._kind)
        if judge is None:
            hint = f"known are {', '.join(PROPERTIES)}, or an `invariant:`"
            return PropertyResult(self.name, 0, 0, (f"there is no property {self.name!r}: {hint}",))
        checked = accepted = 0
        for number, walk in enumerate(self._walks(count)):
            self._context = self._contexts[0 if number % 2 else number // 2 % len(self._contexts)]
            self._world_seed = self._seed + number
            checked += 1
            problems = self._problems(judge, walk)
            if problems:
                small = self._shrunk(judge, walk)
                return PropertyResult(self.name, checked, accepted, tuple(self._problems(judge, small)), tuple(small))
            accepted += self._outcome(self._paths["python"], walk[-1], self._world()).status == "success"
        return PropertyResult(self.name, checked, accepted)

    def _judges(self) -> dict[str, Judge]:
        return {
            "idempotency": self._twice,
            "state_machine_correctness": self._run_walk,
            "invariants": self._find_broken_invariants,
            "expression": self._holds,
        }

    # ------------------------------------------------------------ inputs

    def _walks(self, count: int) -> Iterator[list[dict[str, Any]]]:
        """Yield inputs of executions; several for a state machine, from a few different ones."""
        rng = make_random(self._seed)
        inputs = self._inputs(count, rng)
        for chosen in inputs:
            if self._kind != "state_machine_correctness":
                yield [chosen]
                continue
            pool = [chosen, *(rng.choice(inputs) for _ in range(2))]
            yield [rng.choice(pool) for _ in range(rng.randrange(1, WALK_MAX))]

    def _inputs(self, count: int, rng: Random) -> list[dict[str, Any]]:
        """Return those of the test cases, then in turn some near them, some that are likely to be accepted, and any."""
        likely = LikelyInputs(self._program, self._given, rng)
        drawn = InputGenerator(self._program, self._seed).batch(count)
        inputs = list(self._given)
        for number, row in enumerate(drawn):
            inputs.append((likely.near_case(), likely.row(), row)[number % 3])
        return inputs[:count]

    def _shrunk(self, judge: Judge, walk: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the inputs up to the first that fail, alone where they fail alone; the last as small as they can
        be."""
        ends = range(1, len(walk) + 1)
        *before, last = next((walk[:end] for end in ends if self._problems(judge, walk[:end])), walk)
        if self._problems(judge, [last]):
            before = []
        small = shrink(last, lambda candidate: bool(self._problems(judge, [*before, candidate])))
        return [*before, small]

    # ------------------------------------------------------------ judging

    def _problems(self, judge: Judge, walk: list[dict[str, Any]]) -> list[str]:
        """Return the mistakes of both paths, with the path where only one makes them, and their differences."""
        by_path = {name: judge(path, walk) for name, path in self._paths.items()}
        problems = [
            problem if all(problem in others for others in by_path.values()) else f"{name}: {problem}"
            for name, own in by_path.items()
            for problem in own
        ]
        problems = list(dict.fromkeys(problems))  # what both paths say, once
        ends = [self._ending(path, walk[-1]) for path in self._paths.values()]
        if all(isinstance(end, Outcome) for end in ends):
            return problems + [f"the paths differ: {row}" for row in compare(*ends)]
        return problems + [f"a path broke: {end}" for end in ends if not isinstance(end, Outcome)]

    def _ending(self, path: RunPath, inputs: dict[str, Any]) -> Any:
        try:
            return self._outcome(path, inputs, self._world())
        except Exception as error:  # noqa: BLE001 - a path that breaks is a finding
            return f"{type(error).__name__}: {error}"

    def _world(self) -> RememberingWorld:
        return RememberingWorld(self._program, self._forms, self._world_seed)

    def _outcome(
        self,
        path: RunPath,
        inputs: Mapping[str, Any],
        world: RememberingWorld,
        execution: Execution | None = None,
        *,
        program: NodeProgram | None = None,
    ) -> Outcome:
        arguments = (program or self._program, inputs, execution or self._context)
        return path(*arguments) if self._program.pure else path(*arguments, world)

    def _twice(self, path: RunPath, walk: list[dict[str, Any]]) -> list[str]:
        key = self._program.idempotency_key
        if key and not walk[-1].get(key):
            return []  # without its key, a request is a new one
        world = self._world()
        later = msgspec.structs.replace(self._context, now=self._context.now + _LATER, trace_id="later")
        try:
            first = self._outcome(path, walk[-1], world)
            changes = len(world.changes)
            second = self._outcome(path, walk[-1], world, later)
        except Exception:  # noqa: BLE001 - reported by `_problems`
            return []
        differences = [f"the second time {row['path']} differs: {row['kind']}" for row in compare(first, second)]
        again = [f"the second time {change} is performed again" for change in world.changes[changes:]]
        return differences + again + world.problems

    def _run_walk(self, path: RunPath, walk: list[dict[str, Any]]) -> list[str]:
        world = self._world()
        for number, inputs in enumerate(walk):
            moment = msgspec.structs.replace(self._context, trace_id=f"walk-{number}")
            try:
                self._outcome(path, inputs, world, moment)
            except Exception:  # noqa: BLE001 - reported by `_problems`
                return []
        return world.problems

    def _find_broken_invariants(self, path: RunPath, walk: list[dict[str, Any]]) -> list[str]:
        """Return the invariants that hold at the start and not at the end."""
        ends_at_once = ReturnStep(name="entry", success=())
        entry = msgspec.structs.replace(
            self._program,
            steps=(ends_at_once, *self._program.steps),
            success=(),
            postconditions=(),
            digest=f"{self._program.digest}-entry",
        )
        try:
            start = self._outcome(path, walk[-1], self._world(), program=entry)
            end = self._outcome(path, walk[-1], self._world())
        except Exception:  # noqa: BLE001 - reported by `_problems`
            return []
        if start.error is None and end.error is not None and end.error.code == "invariant_failed":
            return [end.error.message]
        texts = {invariant.text for invariant in self._program.invariants}
        return [f"cannot be judged: {text}" for text in end.unverifiable if text in texts]

    def _holds(self, path: RunPath, walk: list[dict[str, Any]]) -> list[str]:
        try:
            outcome = self._outcome(path, walk[-1], self._world())
        except Exception:  # noqa: BLE001 - reported by `_problems`
            return []
        if outcome.error is not None and outcome.error.code == "postcondition_failed":
            return [f"does not hold: {self._text}"]
        return [f"cannot be judged: {text}" for text in outcome.unverifiable if text == self._text]


def _kind(name: str) -> str:
    """Return the property that a name means: `idempotent` is `idempotency`."""
    word = name.lower().replace(" ", "_").replace("-", "_")
    starts = {"idempoten": "idempotency", "state_machine": "state_machine_correctness", "invariant": "invariants"}
    return next((kind for start, kind in starts.items() if word.startswith(start)), word)


def _judging(node: Node, index: int, declared: PropertyTest) -> NodeProgram:
    """Return the program of the node with the property for its only postcondition."""
    key = "invariant" if declared.invariant else "verify"
    text = ContractText(getattr(declared, key), ("testing", "property_tests", index, key))
    contracts = msgspec.structs.replace(node.contracts, postconditions=(text,))
    return program_of(msgspec.structs.replace(node, contracts=contracts))


# ---------------------------------------------------------------- cases

_MISSING = object()
_BY_VALUE: Final = (TIMESTAMP, DURATION, BYTES)  # types of which several texts are one value


def problems_of(expected: Mapping[str, Any], outcome: Outcome, outputs: Sequence[NodeOutput] = ()) -> list[str]:
    """Return the differences from what a case expects, a sentence each, and last the error with which the node
    ended. `outputs` are those of the node: values are compared as what their types make of them. A case that expects
    nothing fails on an error of Lyra's own, such as a broken contract."""
    if isinstance(expected.get("success"), Mapping):
        expected = {**expected, "success": True, **expected["success"]}
    shown = _render_outcome(outcome)
    kinds = {output.name: output.type for output in outputs}
    problems = [
        problem
        for name, value in expected.items()
        for problem in _differences(name, value, _find(shown, name), kinds.get(name, ANY))
    ]
    if outcome.error is not None and (problems or (not expected and outcome.error.code in CODES)):
        error = outcome.error
        problems.append(f"the node ended with {error.code}" + (f": {error.message}" if error.message else ""))
    elif problems and expected.get("success") is False:
        problems.append("the node succeeded")
    return problems


def _render_outcome(outcome: Outcome) -> dict[str, Any]:
    fields: dict[str, Any] = dict(json_shape(outcome.outputs))
    failure = outcome.error
    if failure is not None:
        fields.update(json_shape(failure.fields))
        fields.setdefault("error_code", failure.code)
        fields.setdefault("message", failure.message)
        fields["error"] = {"code": failure.code, "message": failure.message, **json_shape(failure.fields)}
    fields.setdefault("success", outcome.status == "success")
    fields["status"] = fields.get("status", outcome.status)
    return fields


def _find(fields: Mapping[str, Any], name: str) -> Any:
    if name in fields:
        return fields[name]
    value: Any = fields
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _MISSING
        value = value[part]
    return value


def _differences(name: str, expected: Any, value: Any, kind: ValueType) -> Iterator[str]:
    kind = without_null(kind)
    if value is _MISSING:
        yield f"{name} is missing, expected {json_shape(expected)!r}"
    elif isinstance(expected, Mapping) and isinstance(value, Mapping):
        for part, inner in _with_keys(expected, kind).items():
            yield from _differences(f"{name}.{part}", inner, value.get(part, _MISSING), field_type(kind, part) or ANY)
    elif isinstance(expected, list) and isinstance(value, list) and len(expected) == len(value):
        for index, (wanted, given) in enumerate(zip(_as_set(expected, kind), value, strict=True)):
            yield from _differences(f"{name}[{index}]", wanted, given, element_of(kind) or ANY)
    elif not _equal(expected, value) and not (kind in _BY_VALUE and _convert(expected, kind) == value):
        yield f"{name} is {value!r}, expected {json_shape(expected)!r}"


def _convert(expected: Any, kind: ValueType) -> Any:
    """Return a value of a file as its type has it in JSON; the value itself where it is none of that type."""
    try:
        return json_shape(literal_value(expected, kind))
    except ValueError:
        return json_shape(expected)


def _as_set(expected: list[Any], kind: ValueType) -> list[Any]:
    """Return the elements in the order that a set has in JSON; those of a list as they stand."""
    converted = _convert(expected, kind) if isinstance(kind, SetType) else expected
    return converted if len(converted) == len(expected) else expected


def _with_keys(expected: Mapping[str, Any], kind: ValueType) -> Mapping[str, Any]:
    """Return the entries of a map with its keys as JSON has them."""
    if not isinstance(kind, MapType):
        return expected
    keys = _convert(dict.fromkeys(expected, 0), MapType(kind.key, INTEGER))
    return dict(zip(keys, expected.values(), strict=True)) if len(keys) == len(expected) else expected


def _equal(expected: Any, value: Any) -> bool:
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    if isinstance(expected, (int, Decimal)) and isinstance(value, (int, str)):
        try:
            return Decimal(value) == Decimal(expected)
        except InvalidOperation:
            return False
    return bool(json_shape(expected) == value)


# ---------------------------------------------------------------- cases with answers


class _AnsweringEffects:
    """Answers the acts of a test case with what the case says, and notes what it does not say."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._left = dict(answers)
        self.log = SimulatedLog()
        self.problems: list[str] = []

    async def perform(self, request: EffectRequest) -> Any:
        name = request.step if not request.call_index else f"{request.step} ({request.call_index + 1})"
        if name not in self._left and request.kind != "state.transition":
            self.problems.append(f"`answers` has nothing for `{name}`, a {request.kind}")
        answer = self._left.pop(name, request.payload.get("to"))
        if isinstance(answer, Mapping) and answer.keys() == {"error"}:
            error = EffectError(str(answer["error"]), "made up")
            self.log.add(request, error=error)
            raise error
        self.log.add(request, response=answer)
        return answer

    async def transact(self, request: EffectRequest, body: TransactionBody) -> TransactionEnd:
        """Run the steps of a transaction, or let it fail as a whole where it has an answer."""
        if request.step in self._left:
            await self.perform(request)
        return await body(self)

    def list_problems(self) -> list[str]:
        return [*self.problems, *(f"nothing asked for the answer of `{name}`" for name in self._left)]


def run_with_answers(
    program: NodeProgram, inputs: Mapping[str, Any], answers: Mapping[str, Any]
) -> tuple[Outcome, list[str]]:
    """Run a test case on both paths, its acts answered by the case; return how the Python path ended, and in what the
    paths differ or the answers are not those that were asked for."""
    world, execution = _AnsweringEffects(answers), new_execution()
    first, second = default_paths()
    outcome = first(program, inputs, execution, world)
    replay = SimulatedReplay(world.log)
    differences = [*compare(outcome, second(program, inputs, execution, replay)), *replay.mismatches()]
    return outcome, [*world.list_problems(), *(f"the paths differ: {difference}" for difference in differences)]
