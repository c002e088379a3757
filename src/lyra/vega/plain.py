"""Programs that need no kernel: those that compute and print, and ask for nothing else.

They are stepped right here, without a kernel, because starting one costs more than most of them run. Whether a program
is plain is read off its instructions, so the answer never depends on what happens while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from lyra.errors import VegaError
from lyra.vega.bytecode.opcodes import OP_CALL, OP_EFFECT, OP_PRINT, OP_RECEIVE, OP_RETURN
from lyra.vega.bytecode.program import Function, Program, TestInfo
from lyra.vega.machine.fiber import Done, Fiber, VmEffect
from lyra.vega.machine.link import Trees, link
from lyra.vega.machine.vm import run

_FUEL: Final = 1 << 30  # no other process waits for a turn
_HALT: Final = 0xFF
_ANSWERED: Final = frozenset({"env::args"})


def is_plain(program: Program) -> bool:
    """Return whether nothing in the program asks for more than printing and its arguments."""
    if program.agents or program.imports:
        return False
    for function in program.functions:
        for op, _, _, c in function.code:
            if op == OP_EFFECT:
                if function.constants[c][0] not in _ANSWERED:
                    return False
            elif op >= OP_RECEIVE and op not in (OP_PRINT, _HALT):
                return False
    return True


def _pure_tier(trees: Trees) -> Any:
    """Imported for programs with pure functions only: most of the others end sooner than the import takes."""
    from lyra.vega.machine.pure.switch import PureTier

    return PureTier(trees)


def run_plain(program: Program, write: Callable[[str], object], args: Sequence[str] = ()) -> Any:
    """Run it to its end: what `main` returns, as the program has it; a VegaError for what it does not catch."""
    fiber = Fiber.start(link(program, tier=_pure_tier, is_hashed=False))
    while True:
        outcome = run(fiber, _FUEL)
        if isinstance(outcome, VmEffect):
            if outcome.kind == "print":
                write(outcome.arguments[0])
                fiber.resume(None)
            elif outcome.kind == "env::args":
                fiber.resume([str(argument) for argument in args])
            else:
                fiber.throw("CapabilityDenied", f"{outcome.kind} was not expected of this program")
        elif isinstance(outcome, Done):
            if outcome.error is not None:
                raise VegaError.of(outcome.error)
            return outcome.value


# Each runs by itself: the top level of the file first, then the block, and `main` is not called. So no test sees what
# another did.


def test_program(program: Program, test: TestInfo) -> Program:
    """Return the program that runs one of its tests in place of `main`."""
    (op, into, top_level, _), *_ = program.functions[program.entry].code
    assert op == OP_CALL, "a program begins with its top level"
    start = Function(
        name="start",
        file=program.functions[program.entry].file,
        registers=1,
        code=[(OP_CALL, 0, top_level, 0), (OP_CALL, 0, test.function, 0), (OP_RETURN, 0, 0, 0)],
        places=[0, 0, 0],
        is_hidden=True,
    )
    assert into >= 0
    functions = [*program.functions, start]
    return msgspec.structs.replace(program, functions=functions, entry=len(functions) - 1, main=-1)


test_program.__test__ = False  # type: ignore[attr-defined]  # a name that pytest would collect
