"""Random programs have equal outcomes on all evaluators; `make cases` tries more of them."""

from __future__ import annotations

import msgspec
import pytest

from lyra import vesper
from lyra.core.ids import make_random
from lyra.vesper.direct.run import compile_program as compile_direct
from lyra.vesper.direct.run import run as direct
from lyra.vesper.evidence import differential
from lyra.vesper.evidence.differential import RunPath
from lyra.vesper.evidence.inputs import InputGenerator
from lyra.vesper.ir import AssignStep, ForEachStep
from lyra.vesper.python.run import compile_program as compile_python
from lyra.vesper.python.run import run as python
from lyra.vesper.reference.run import run as reference
from tests.cases import ALL, cases, first
from tests.vesper.building import EXECUTION, arith, give, lit, name, node
from tests.vesper.random_programs import random_program

pytestmark = pytest.mark.usefixtures("unshrunk")
CHUNKS = range(0, cases(200), 10)


@pytest.mark.parametrize("start", CHUNKS)
def test_the_direct_path_agrees_with_the_reference(start: int) -> None:
    for seed in range(start, start + CHUNKS.step):
        program = random_program(make_random(seed))
        report = differential.test(program, 20, seed=seed, first=reference, second=direct, stop_after=1)
        assert report.kept == (), seed


@pytest.mark.slow
@pytest.mark.parametrize("first", [reference, python], ids=["reference", "python"])
@pytest.mark.parametrize("start", first(range(0, cases(1_000), 10), 2))
def test_programs_with_effects_agree_in_outcome_and_requests(start: int, first: RunPath) -> None:
    """The direct path beside both others."""
    for seed in range(start, start + 10):
        program = random_program(make_random(seed), effects=True)
        report = differential.test(program, 12, seed=seed, first=first, second=direct, stop_after=1)
        assert report.kept == (), seed


def test_the_element_of_a_loop_may_be_assigned() -> None:
    """It is the loop's own: changed inside, and gone behind it, on every path."""
    body = (
        AssignStep(name="next", target="i", value=arith(name("i"), "+", lit(1))),
        AssignStep(name="add", target="sum", value=arith(name("sum"), "+", name("i"))),
    )
    loop = ForEachStep(name="f", collection=lit([1, 2]), variable="i", steps=body)
    program = node(AssignStep(name="start", target="sum", value=lit(0)), loop, give(result=name("sum")))
    outputs = [path(program, {}, EXECUTION).outputs for path in (python, direct, reference)]
    assert outputs == [{"result": 5}] * 3


def test_random_programs_end_in_many_ways() -> None:
    """The comparison above would prove little if all programs failed at the entry."""
    endings: dict[str, int] = {}
    for seed in range(60):
        program = random_program(make_random(seed))
        for inputs in InputGenerator(program, seed).batch(20):
            outcome = direct(program, inputs, EXECUTION)
            ending = outcome.status if outcome.error is None else outcome.error.code
            endings[ending] = endings.get(ending, 0) + 1
    assert endings["success"] > 240
    assert len(endings) >= 10


def test_two_layouts_of_one_node_are_compiled_once_each() -> None:
    """They have one digest and unequal places; neither drives the other out."""
    first = random_program(make_random(1))
    moved = tuple(msgspec.structs.replace(step, place=(9, 9)) for step in first.steps)
    second = msgspec.structs.replace(first, steps=moved)
    for compiled in (compile_python, compile_direct):
        kept = compiled(first), compiled(second)
        assert (compiled(first), compiled(second)) == kept


DEEP = """\
node_id: deep_v1
type: function
intent: nest a list in a list
inputs: {n: integer}
outputs: {y: any}
flow:
  - {step: i, operation: arithmetic, expression: "0", output: c}
  - {step: j, operation: arithmetic, expression: "[]", output: y}
  - step: l
    operation: loop
    condition: "c < n"
    max_iterations: 100000
    steps:
      - {step: a, operation: arithmetic, expression: "c + 1", output: c}
      - {step: b, operation: arithmetic, expression: "[y]", output: y}
"""


@pytest.mark.parametrize("path", ["python", "direct", "reference"])
def test_a_value_that_is_nested_too_deeply_is_a_resource_limit(path: str) -> None:
    """No path raises RecursionError; the third opinion is the same as the other two."""
    outcome = vesper.execute(vesper.load(DEEP), {"n": 5000}, path=path)
    assert outcome.error is not None
    assert outcome.error.code == "resource_limit"


@pytest.mark.parametrize("steps", [0, 1, 3, 8])
def test_random_programs_end_at_the_same_step(steps: int) -> None:
    """Programs with few steps end alike on all evaluators, wherever their loops and expressions are charged."""
    for seed in range(80 if ALL else 10):
        program = random_program(make_random(seed), effects=seed % 4 == 0)
        program = msgspec.structs.replace(program, limits=msgspec.structs.replace(program.limits, steps=steps))
        for first_path in (reference, python):
            report = differential.test(program, 6, seed=seed, first=first_path, second=direct, stop_after=1)
            assert report.kept == (), seed
