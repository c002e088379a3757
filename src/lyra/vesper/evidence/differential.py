"""Differential tests: two paths run the same random inputs, and every difference is reported with small inputs.

`test(program, count, seed)` first runs old failures from the corpus, then generated inputs in batches. Divergences are
counted; the first few are shrunk, kept in the report and added to the corpus. A path that raises differs from one that
does not. Programs with effects run the first path against simulated effects, and the second against a replay of them.
"""

# ruff: noqa: PT028 - `test` is not a test of pytest's
from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.core.clock import SystemClock
from lyra.vesper.effects.replay import ReplayEffects
from lyra.vesper.evidence.compare import compare
from lyra.vesper.evidence.confidence import lower_bound
from lyra.vesper.evidence.contexts import SimulatedEffects, executions
from lyra.vesper.evidence.corpus import Corpus
from lyra.vesper.evidence.inputs import InputGenerator
from lyra.vesper.evidence.shrinking import shrink
from lyra.vesper.ir.program import Program
from lyra.vesper.values.execution import Execution
from lyra.vesper.values.outcome import Outcome

__all__ = ["Divergence", "Report", "RunPath", "differences_of", "test"]

RunPath = Callable[..., Outcome]  # (program, inputs, execution, effects)
_BATCH: Final = 4096
KEPT_MAX: Final = 10


class Divergence(msgspec.Struct, frozen=True):
    """Inputs for which the paths differ, as they were drawn and as small as they could be made."""

    inputs: dict[str, Any]
    shrunk: dict[str, Any]
    differences: list[dict[str, Any]]  # of the shrunk inputs


class Report(msgspec.Struct, frozen=True):
    """What a differential test came to."""

    compared: int
    divergences: int
    kept: tuple[Divergence, ...]  # the first ones
    seconds: float

    @property
    def confidence(self) -> float:
        return lower_bound(self.compared, self.divergences)


def differences_of(
    program: Program, inputs: Mapping[str, Any], execution: Execution, *, first: RunPath, second: RunPath, seed: int = 0
) -> list[dict[str, Any]]:
    """How the two paths differ for some inputs; empty if they do not."""
    if program.pure:
        return compare(*(_ending(path, program, inputs, execution) for path in (first, second)))
    live = SimulatedEffects(program, seed)
    python = _ending(first, program, inputs, execution, live)
    replay = ReplayEffects(live.log)
    direct = _ending(second, program, inputs, execution, replay)
    return [*compare(python, direct), *replay.mismatches()]


def _ending(path: RunPath, *arguments: Any) -> Outcome:
    """The outcome; an exception counts as one of its own."""
    try:
        return path(*arguments)
    except Exception as error:  # noqa: BLE001 - a crash is a finding
        return Outcome(f"crash {type(error).__name__}: {error}")


def _default_paths() -> tuple[RunPath, RunPath]:
    from lyra.vesper.direct.run import run as direct
    from lyra.vesper.python.run import run as python

    return python, direct


def test(
    program: Program,
    count: int,
    seed: int = 0,
    *,
    first: RunPath | None = None,
    second: RunPath | None = None,
    corpus: Path | None = None,
    stop_after: int | None = None,
) -> Report:
    """Compare the paths on `count` generated inputs; `stop_after` so many divergences."""
    if first is None or second is None:
        python, direct = _default_paths()
        first, second = first or python, second or direct
    clock = SystemClock()
    began = clock.monotonic()
    contexts = executions(program, seed)
    generator = InputGenerator(program, seed)
    old = Corpus(corpus).of(program.node_id) if corpus is not None else []
    compared = divergences = 0
    pure = program.pure
    failing: list[tuple[dict[str, Any], Execution]] = []
    batch = old
    while True:
        for number, inputs in enumerate(batch):
            execution = contexts[number % len(contexts)]
            compared += 1
            if pure:
                try:
                    differences = compare(first(program, inputs, execution), second(program, inputs, execution))
                except Exception:  # noqa: BLE001 - a crash is a finding, looked at below
                    differences = differences_of(program, inputs, execution, first=first, second=second)
            else:
                differences = differences_of(program, inputs, execution, first=first, second=second, seed=seed)
            if differences:
                divergences += 1
                if len(failing) < KEPT_MAX:
                    failing.append((inputs, execution))
                if stop_after is not None and divergences >= stop_after:
                    break
        left = count + len(old) - compared
        if left <= 0 or (stop_after is not None and divergences >= stop_after):
            break
        batch = generator.batch(min(left, _BATCH))
    seconds = clock.monotonic() - began
    kept = tuple(_kept(program, inputs, execution, first, second, seed) for inputs, execution in failing)
    if corpus is not None:
        for divergence in kept:
            Corpus(corpus).add(program.node_id, divergence.shrunk)
    return Report(compared, divergences, kept, seconds)


def _kept(
    program: Program, inputs: dict[str, Any], execution: Execution, first: RunPath, second: RunPath, seed: int
) -> Divergence:
    def differences(candidate: dict[str, Any]) -> list[dict[str, Any]]:
        return differences_of(program, candidate, execution, first=first, second=second, seed=seed)

    kinds = {row["kind"] for row in differences(inputs)}
    shrunk = shrink(inputs, lambda candidate: any(row["kind"] in kinds for row in differences(candidate)))
    return Divergence(inputs, shrunk, differences(shrunk))
