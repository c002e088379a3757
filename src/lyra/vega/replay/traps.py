"""Stopping the machine at the next line: instructions that begin a line are replaced by one that hands out an effect.

The machine has no slow mode. While traps are set, the first instruction of every line of the program's own functions is
`PAR_BEGIN` into no register, which changes nothing; the caller of the machine sees the effect, puts the fiber back by
one instruction, and runs it on with that one trap lifted.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from lyra.vega.bytecode.opcodes import OP_PAR_BEGIN
from lyra.vega.machine.fiber import Done, Fiber, VmEffect
from lyra.vega.machine.link import LinkedProgram
from lyra.vega.machine.vm import run
from lyra.vega.replay.silent_effects import answered

_TRAP: Final = (OP_PAR_BEGIN, -1, 0, 0)
_FUEL: Final = 65_536


class Traps:
    """`with Traps(linked) as traps: traps.run(fiber)` until it gives None for a line, or what the fiber came to."""

    def __init__(self, *programs: LinkedProgram) -> None:
        self._places: dict[int, tuple[list[Any], dict[int, Any]]] = {}
        for code in (code for linked in programs for code in linked.functions):
            if code.function.is_hidden:
                continue
            starts: dict[int, Any] = {}
            last = 0
            for pc, instruction in enumerate(code.code):
                line, _ = code.function.place(pc)
                if line and line != last:
                    starts[pc] = instruction
                last = line or last
            self._places[id(code.code)] = (code.code, starts)

    def __enter__(self) -> Self:
        for code, starts in self._places.values():
            for pc in starts:
                code[pc] = _TRAP
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for code, starts in self._places.values():
            for pc, instruction in starts.items():
                code[pc] = instruction

    def run(self, fiber: Fiber, fuel: int, give_up: Callable[[], object] | None = None) -> VmEffect | Done | None:
        """On to the next line: None. An effect, or the end: that. One that needs more than `fuel` is given up."""
        code, pc = fiber.code.code, fiber.pc
        lifted = self._places[id(code)][1][pc] if code[pc] is _TRAP else None
        if lifted is not None:
            code[pc] = lifted
        try:
            while True:
                outcome = run(fiber, _FUEL)
                if type(outcome) is VmEffect:
                    if outcome.kind == "parallel_begin" and fiber.code.code[fiber.pc - 1] is _TRAP:
                        fiber.pc -= 1
                        return None
                    if answered(fiber, outcome):
                        continue
                    return outcome
                if type(outcome) is Done:
                    return outcome
                fuel -= _FUEL
                if fuel <= 0:
                    if give_up is not None:
                        give_up()
                    return None
        finally:
            if lifted is not None:
                code[pc] = _TRAP
