"""A search for wrong proofs: random programs are proved, and run on inputs that might show the proofs wrong."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from lyra.vesper import ir
from lyra.vesper.evidence.inputs import InputGenerator
from lyra.vesper.evidence.likely_inputs import LikelyInputs
from lyra.vesper.prove import prover
from lyra.vesper.prove.replay import InputReplayer, to_plain_json
from tests.vesper.random_programs import random_program


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


def check_random_programs(seed: int, programs: int, count: int) -> tuple[Counter[str], list[str]]:
    """Return the verdicts about so many random programs, and what is wrong with them."""
    total: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(programs):
        rng = Random(f"{seed}/{number}")
        verdicts, mistakes = check_program(random_program(rng), number, count)
        total += verdicts
        wrong += [f"program {seed}/{number}: {mistake}" for mistake in mistakes]
    return total, wrong
