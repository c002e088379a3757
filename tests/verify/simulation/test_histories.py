"""Old journals are kept for ever and replayed with today's code; changed programs are caught by them.

A history is a journal of a simulated world (`histories/*.jsonl`, one row a line). It stays as it is: when one of
these tests fails, the code that reads journals has changed its mind about the past, and that is what has to be
mended. New ones are added with `verify.simulation.replay.dump(World(seed).ledger.rows)` after a run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lyra.core import codec
from lyra.kernel.journal import rows
from lyra.kernel.journal.history import Fold
from verify.simulation.replay import dump, ends_to_replay, judge_end, load, replay
from verify.simulation.workload import sink, worker

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.jsonl"))
MUTANTS_MIN = 20


def _journal(path: Path):
    return load(path.read_text())


def test_there_are_histories():
    assert len(HISTORIES) >= 3


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_kept_history_folds_and_comes_back_the_same_from_a_snapshot(path):
    """Every row is understood, and the snapshot of the fold says the same as the fold."""
    journal = _journal(path)
    fold = Fold()
    fold.add_all(journal)
    states = {pid: state for pid, state in fold.dump().items() if state is not None}
    assert Fold.load(fold.seq, states).processes == fold.processes
    assert load(dump(journal)) == journal


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_kept_history_replays_without_divergence(path):
    """Each process that ended by itself ends the same way again, and performs nothing."""
    journal = _journal(path)
    ends = ends_to_replay(journal)
    assert ends
    assert [problem for index in ends for problem in judge_end(journal, index)] == []


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_kept_history_opens_at_every_tenth_row(path):
    """Whatever was durable when the power went is a journal that can be opened; nothing in it diverges."""
    journal = _journal(path)
    for length in range(1, len(journal), 10):
        assert replay(journal[:length], until="").diverged == []


# ---------------------------------------------------------------------- mutants


def _mutated(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each way of changing what a program asks for on its main line, and the changed spec."""
    steps = spec["steps"]
    for index, step in enumerate(steps):
        if step[0] == "do":
            yield (
                f"other effect at {index}",
                _with(spec, index, ["do", "read" if step[1] != "read" else "post", *step[2:]]),
            )
            yield f"other arguments at {index}", _with(spec, index, [*step[:3], step[3] + 1])
        elif step[0] in ("send", "ask"):
            yield f"other {step[0]} at {index}", _with(spec, index, [*step[:2], step[2] + 1])
        if step[0] in ("do", "send", "ask", "now", "sleep", "receive"):
            yield f"removed {step[0]} at {index}", {**spec, "steps": steps[:index] + steps[index + 1 :]}
            yield (
                f"added before {index}",
                {**spec, "steps": [*steps[:index], ["do", "fetch", [], 4711], *steps[index:]]},
            )
            after = steps[index + 1] if index + 1 < len(steps) else None
            if after is not None and after[0] in ("do", "send", "ask") and after != step:
                swapped = [*steps[:index], after, step, *steps[index + 2 :]]
                yield f"swapped {index} and {index + 1}", {**spec, "steps": swapped}


def _with(spec: dict[str, Any], index: int, step: list[Any]) -> dict[str, Any]:
    changed = copy.deepcopy(spec)
    changed["steps"][index] = step
    return changed


def _mutants() -> Iterator[Any]:
    for path in HISTORIES:
        journal = _journal(path)
        for index in ends_to_replay(journal):
            pid = journal[index].pid
            created = next(row for row in journal if row.pid == pid and row.kind == "process.created")
            row = rows.DECODERS["process.created"].decode(created.data)
            ended = rows.DECODERS["process.terminated"].decode(journal[index].data)
            if not row.program.endswith(":worker") or ended.reason != "normal" or ended.blob:
                continue
            spec = codec.decode(bytes(row.args))[0]
            if len(codec.decode(bytes(ended.value)) or []) != len(spec["steps"]):
                continue  # it did not get to the end of its steps
            if any(step[0] in ("checkpoint", "exit") for step in spec["steps"]):
                continue
            for what, changed in _mutated(spec):
                yield pytest.param(path, index, changed, id=f"{path.stem}-{pid}-{what}")


MUTANTS = list(_mutants())


@pytest.mark.parametrize(("path", "index", "changed"), MUTANTS)
def test_a_mutated_program_is_caught(path, index, changed):
    """A program that asks for something else than its journal holds is a Divergence, wherever the change is."""
    journal = _journal(path)

    async def mutant(ctx: Any, spec: Any, parent: str) -> Any:
        return await worker(ctx, changed if spec["label"] == changed["label"] else spec, parent)

    vars(mutant).update(vars(worker))  # the name that the journal has for it
    pid = journal[index].pid
    seen = replay(journal[:index], programs=[mutant, sink], until=pid, now=journal[index].time)
    assert any(text.startswith(f"{pid}:") for text in seen.diverged)


def test_there_are_enough_mutants():
    assert len(MUTANTS) >= MUTANTS_MIN
