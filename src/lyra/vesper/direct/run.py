"""Runs programs on the direct path: `run` for pure ones, `start` for those with effects.

A program is compiled once for its digest. An execution binds and coerces the inputs, judges constraints, preconditions
and invariants, keeps the values of `old`, runs the steps, and judges postconditions and invariants about the answer.
Neither function raises for bad inputs: every end of a node is an Outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.vesper.direct.program import DirectProgram
from lyra.vesper.effects.drive import drive
from lyra.vesper.effects.request import Effects
from lyra.vesper.ir import NodeProgram
from lyra.vesper.values.outcome import Execution, Outcome

_KEPT_MAX: Final = 1024
_LAYOUTS_MAX: Final = 4  # programs of one digest: they differ in the places of their steps alone
_compiled: Final[dict[str, tuple[tuple[NodeProgram, DirectProgram], ...]]] = {}  # by digest, the newest first


def compile_program(program: NodeProgram) -> DirectProgram:
    """The compiled program; the same one for the same program."""
    kept = _compiled.get(program.digest, ())
    for known, compiled in kept:
        if known is program:
            return compiled
    for known, compiled in kept:
        if known == program:
            return compiled
    compiled = DirectProgram(program)
    while len(_compiled) >= _KEPT_MAX:
        _compiled.pop(next(iter(_compiled)), None)
    _compiled[program.digest] = ((program, compiled), *kept[: _LAYOUTS_MAX - 1])
    return compiled


def run(
    program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None = None
) -> Outcome:
    """The outcome of an execution. Effects, if there are any, must answer at once."""
    compiled = compile_program(program)
    if program.pure:
        return compiled.execute(inputs, execution)
    return drive(compiled.execute_async(inputs, execution, effects))


async def start(
    program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None = None
) -> Outcome:
    """The outcome of an execution whose effects take time."""
    compiled = compile_program(program)
    if program.pure:
        return compiled.execute(inputs, execution)
    return await compiled.execute_async(inputs, execution, effects)
