"""One function's code while it is being made: registers, constants, jumps, and the ways out of loops and `finally`.

Registers are handed out like a stack: variables of a block, then temporaries above them, all given back at its end.
Constants get registers of their own behind the rest; as their numbers are known only at the end, an operand that
means pinned constant k is written as -1 - k until `finish` turns it into a register.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.core.limits import VEGA_CODE_MAX, VEGA_REGISTERS_MAX
from lyra.vega.bytecode.opcodes import (
    BY_NAME,
    OP_CONSTANT,
    OP_JUMP,
    OP_MOVE,
    OPCODES,
)
from lyra.vega.bytecode.program import Function, Handler, Instruction, Parameter, packed_place
from lyra.vega.plan.names import complaint
from lyra.vega.syntax import ast
from lyra.vega.syntax.source import Source

PINNED_MAX: Final = 64


class LoopExits:
    """A loop being compiled: the jumps that wait for its end and for its next turn. `leave` is emitted on the way
    out of it by `break` and `return`."""

    def __init__(self, leave: Callable[[], None] | None = None) -> None:
        self.breaks: list[int] = []
        self.continues: list[int] = []
        self.leave = leave


class Finally:
    """A `finally` being compiled. Every way out of its body sets `mode`, jumps to its code, and is continued behind
    it by the dispatch on `mode`: 0 goes on, 1 throws again, others are in `ways`."""

    def __init__(self, mode: int, value: int) -> None:
        self.mode = mode
        self.value = value
        self.entries: list[int] = []
        self.ways: list[Callable[[], None]] = []


class Emitter:
    def __init__(self, source: Source, name: str, file: int) -> None:
        self.source = source
        self.name = name
        self.file = file
        self.parameters: list[Parameter] = []
        self.captures = 0
        self.code: list[list[int]] = []
        self.places: list[int] = []
        self.handlers: list[Handler] = []
        self.pinned: list[Any] = []
        self.others: list[Any] = []
        self.constant_index: dict[Any, int] = {}
        self.other_index: dict[Any, int] = {}
        self.next_register = 0
        self.top_register = 0
        self.exits: list[LoopExits | Finally] = []
        self.here = 0  # the packed place of what is being compiled

    # ------------------------------------------------------------ code

    def emit(self, op: int, a: int = 0, b: int = 0, c: int = 0) -> int:
        self.code.append([op, a, b, c])
        self.places.append(self.here)
        if len(self.code) > VEGA_CODE_MAX:
            raise complaint(self.source, ast.SyntaxNode(), f"`{self.name}` is too long")
        return len(self.code) - 1

    def at(self, node: ast.SyntaxNode) -> None:
        """Give the instructions that follow the place of this node."""
        self.here = packed_place(*self.source.place(node.at))

    def jump(self) -> int:
        return self.emit(OP_JUMP)

    def patch(self, index: int, target: int | None = None) -> None:
        """Let the jump at `index` go to `target`, or to what comes next."""
        row = OPCODES[self.code[index][0]]
        position = (row.a, row.b, row.c).index("target") + 1
        self.code[index][position] = len(self.code) if target is None else target

    def patch_all(self, indexes: list[int], target: int | None = None) -> None:
        for index in indexes:
            self.patch(index, target)

    def handle(self, start: int, target: int, register: int, end: int | None = None) -> None:
        """Errors from `start` up to `end` (or here) go on at `target`."""
        end = len(self.code) if end is None else end
        if end > start:
            self.handlers.append(Handler(start, end, target, register))

    # ------------------------------------------------------------ registers

    def register(self, count: int = 1) -> int:
        """The first of `count` fresh registers in a row."""
        first = self.next_register
        self.next_register += count
        if self.next_register > VEGA_REGISTERS_MAX:
            raise complaint(
                self.source, ast.SyntaxNode(), f"`{self.name}` has too many variables", hint="split it into functions"
            )
        self.top_register = max(self.top_register, self.next_register)
        return first

    def move(self, into: int, value: int) -> None:
        if into != value:
            self.emit(OP_MOVE, into, value)

    # ------------------------------------------------------------ constants

    def pin(self, value: Any) -> int | None:
        """The operand that means a constant's own register, or None when there is no room for one more."""
        key = _key(value)
        index = self.constant_index.get(key)
        if index is None:
            if len(self.pinned) >= PINNED_MAX:
                return None
            index = len(self.pinned)
            self.pinned.append(value)
            self.constant_index[key] = index
        return -1 - index

    def other(self, value: Any) -> int:
        """The index of a constant for a `constant` operand; shifted behind the pinned ones at the end."""
        key = _key(value)
        index = self.other_index.get(key)
        if index is None:
            index = len(self.others)
            self.others.append(value)
            self.other_index[key] = index
        return index

    def constant(self, value: Any, into: int | None = None) -> int:
        """A register that holds the constant: `into`, or its own, or a temporary one."""
        pinned = self.pin(value)
        if pinned is not None:
            if into is None:
                return pinned
            self.emit(OP_MOVE, into, pinned)
            return into
        register = self.register() if into is None else into
        self.emit(OP_CONSTANT, register, self.other(value))
        return register

    # ------------------------------------------------------------ the end

    def finish(self, *, is_hidden: bool = False) -> Function:
        registers = self.top_register
        shift = len(self.pinned)
        code: list[Instruction] = []
        for op, *operands in self.code:
            row = OPCODES[op]
            done = []
            for kind, operand in zip((row.a, row.b, row.c), operands, strict=True):
                if kind == "constant":
                    done.append(operand + shift)
                elif operand < 0 and kind == "from":
                    done.append(registers - 1 - operand)
                else:
                    done.append(operand)
            code.append((op, done[0], done[1], done[2]))
        return Function(
            name=self.name,
            file=self.file,
            parameters=self.parameters,
            captures=self.captures,
            registers=registers,
            pinned=shift,
            constants=self.pinned + self.others,
            code=code,
            places=self.places,
            handlers=self.handlers,
            is_hidden=is_hidden,
        )


def _key(value: Any) -> Any:
    """Two constants are one when they are of one type and written alike (0.0 and -0.0 are not, nor 1 and 1.0)."""
    if isinstance(value, list):
        return ("list", *value)
    return (type(value), repr(value) if isinstance(value, float) else value)


assert BY_NAME["MOVE"].b == "from"
