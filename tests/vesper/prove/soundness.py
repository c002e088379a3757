"""A search for wrong proofs: random programs are proved, and run on inputs that might show the proofs wrong.

`check_random_calls` asks more of single functions: whatever a call gives for an input must be possible in each walk, so
that no walk may exclude the value, or the failure, with which the reference evaluator ended.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from decimal import Decimal
from functools import reduce
from random import Random
from typing import Any

import msgspec

from lyra.vesper import ir
from lyra.vesper.evidence.clock_changes import read_moment
from lyra.vesper.evidence.inputs import InputGenerator
from lyra.vesper.evidence.likely_inputs import LikelyInputs
from lyra.vesper.prove import prover
from lyra.vesper.prove.replay import InputReplayer, InputRun, to_plain_json
from lyra.vesper.prove.solve import ask
from lyra.vesper.prove.values import FALSE
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    DECIMAL,
    INTEGER,
    STRING,
    TIMESTAMP,
    Array,
    DecimalType,
    ValueType,
)
from tests.vesper.random_programs import random_call, random_program


def check_program(program: ir.NodeProgram, seed: int, count: int) -> tuple[Counter[str], list[str]]:
    """Return how many results had each verdict, and what is wrong with them."""
    results = prover.prove_program(program)
    by_name = {(result.kind, result.expression, result.step): result for result in results}
    claims = [(claim, by_name[claim.kind, claim.expression, claim.step]) for claim in prover._claims(program, None)]
    wrong = []
    replayers = {id(claim.program): InputReplayer(claim.program) for claim, _ in claims}
    for claim, result in claims:
        if result.verdict == prover.REFUTED:
            assert result.input is not None
            if not any(map(claim.shows, replayers[id(claim.program)].run(result.input))):
                wrong.append(f"not reproduced: {result}")
    unreachable = {result.step for result in results if result.kind == "unreachable_step"}
    whole = InputReplayer(program)
    for inputs in _inputs(program, seed, count):
        runs = whole.run(inputs)
        if not any(run.is_accepted for run in runs):
            continue
        wrong += [
            f"reached: {name} by {inputs}" for run in runs if run.is_accepted for name in run.reached & unreachable
        ]
        for claim, result in claims:
            if result.verdict != prover.PROVED or not any(map(claim.near, runs)):
                continue
            shown = replayers[id(claim.program)].run(inputs)
            if any(map(claim.shows, shown)):
                wrong.append(f"proved, but it fails for {inputs}: {result}")
    return Counter(result.verdict for result in results), wrong


def _inputs(program: ir.NodeProgram, seed: int, count: int) -> list[dict[str, Any]]:
    likely = LikelyInputs(program, (), Random(seed))
    rows = [*(likely.row() for _ in range(count)), *InputGenerator(program, seed).batch(count)]
    return [plain for row in rows if (plain := to_plain_json(row)) is not None]


def check_random_programs(seed: int, programs: int, count: int, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Return the verdicts about so many random programs from one on, and what is wrong with them."""
    total: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(first, first + programs):
        rng = Random(f"{seed}/{number}")
        verdicts, mistakes = check_program(random_program(rng), number, count)
        total += verdicts
        wrong += [f"program {seed}/{number}: {mistake}" for mistake in mistakes]
    return total, wrong


CALL_TYPES = [INTEGER, DECIMAL, DecimalType(2), STRING, STRING, BOOLEAN, TIMESTAMP, TIMESTAMP, Array(INTEGER)]
CODES = ("overflow", "division_by_zero", "type_error")


def check_random_calls(seed: int, programs: int, inputs: int) -> tuple[Counter[str], list[str]]:
    """Return how many outcomes of random calls of functions were looked for, and those that a walk excludes."""
    looked_for: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(programs):
        program = random_call(Random(f"{seed}/{number}"), CALL_TYPES)
        for given in _inputs(program, number, inputs):
            (run,) = InputReplayer(program).run(given)
            if not run.is_accepted or (run.outcome.error is not None and run.code not in CODES):
                continue
            excluded = _is_excluded(program, given, run)
            if excluded is not None:
                looked_for[run.code or "success"] += 1
            if excluded:
                wrong.append(f"program {seed}/{number}: {given} gives {run.outcome}: excluded by {excluded}")
    return looked_for, wrong


def _is_excluded(program: ir.NodeProgram, given: dict[str, Any], run: InputRun) -> str | None:
    """Return the walk in which an outcome is impossible; "" where it is possible in all, None where none was asked."""
    pins = [_equals(declared.name, declared.type, given.get(declared.name)) for declared in program.inputs]
    outputs = dict(run.outcome.outputs)
    parts = [_equals(name, None, value) for name, value in outputs.items() if not isinstance(value, list | dict)]
    known = [part for part in parts or pins if part is not None]
    if None in pins or (run.outcome.error is None and (not parts or None in parts)):
        return None
    same = reduce(lambda left, right: ir.Logic(type=BOOLEAN, operator="and", left=left, right=right), known)
    pinned = msgspec.structs.replace(
        program,
        preconditions=tuple(ir.Contract("pin", pin) for pin in pins),
        postconditions=(ir.Contract("other", ir.Not(type=BOOLEAN, operand=same)),),
        digest=f"{program.digest}/{given}",
    )
    proof, asked = prover._Proof(pinned, None), False
    for encoding, items in (("reals", None), ("scaled", None), ("scaled", prover.LIST_ITEMS)):
        flow = proof.walk(encoding, items)
        if isinstance(flow, str) or flow.numbers.incomplete:
            continue
        asked = True
        is_error = run.outcome.error is not None
        end = prover._failures(flow, "end", run.code) if is_error else flow.broken.get(("postcondition", 0), FALSE)
        if ask(flow, end, rlimit=prover.QUESTION_RLIMIT)[0] == "unsat":
            return f"{encoding}, {items}"
    return "" if asked else None


def _equals(name: str, kind: ValueType | None, value: Any) -> ir.TypedExpression | None:
    """Return the condition that a variable has a value; None of a value that is not written as a constant."""
    if kind == TIMESTAMP:
        value = read_moment(str(value))
    elif isinstance(kind, DecimalType):
        value = Decimal(str(value))
    variable = ir.NodeVariable(type=kind or ANY, name=name)
    if value is None and kind is None:
        return ir.IsNull(type=BOOLEAN, operand=variable)
    if isinstance(value, list):
        constant: ir.TypedExpression = ir.ListOf(type=kind or ANY, items=tuple(_constant(item) for item in value))
        return None if len(value) > 3 else ir.Compare(type=BOOLEAN, operator="==", left=variable, right=constant)
    if not isinstance(value, str | bool | int | Decimal | datetime):
        return None
    if isinstance(value, Decimal) and (not value.is_finite() or abs(value.adjusted()) > 40):
        return None
    return ir.Compare(type=BOOLEAN, operator="==", left=variable, right=_constant(value))


def _constant(value: Any) -> ir.Constant:
    return ir.Constant(type=ANY, value=value)


if __name__ == "__main__":
    import sys

    counts, mistakes = check_random_calls(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    print(counts, *mistakes, sep="\n")
