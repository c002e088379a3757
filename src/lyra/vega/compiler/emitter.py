"""One function's code while it is being made: registers, constants, jumps, and the ways out of loops and `finally`.

Registers are handed out like a stack: variables of a block, then temporaries above them, all given back at its end.
Constants get registers of their own behind the rest; as their numbers are known only at the end, an operand that
means pinned constant k is written as -1 - k until `finish` turns it into a register.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from lyra.core.limits import VEGA_CODE_MAX, VEGA_REGISTERS_MAX
from lyra.vega.bytecode.opcodes import BY_NAME, OP_CONSTANT, OP_JUMP, OP_MOVE, OPCODES
from lyra.vega.bytecode.program import Function, Handler, Instruction, Parameter, pack_place
from lyra.vega.plan.names import ModuleScope, Symbol, Unit, Variable, complaint
from lyra.vega.plan.plan import Notes
from lyra.vega.plan.straight_line import Site
from lyra.vega.plan.summaries import Summaries
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
    it by the dispatch on `mode`: 0 continues, 1 throws again, others are in `ways`."""

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

    def emit(self, op: int, a: int = 0, b: int = 0, c: int = 0) -> int:
        self.code.append([op, a, b, c])
        self.places.append(self.here)
        if len(self.code) > VEGA_CODE_MAX:
            raise complaint(self.source, ast.SyntaxNode(), f"`{self.name}` is too long")
        return len(self.code) - 1

    def at(self, node: ast.SyntaxNode) -> None:
        """Give the instructions that follow the place of this node."""
        self.here = pack_place(*self.source.place(node.at))

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
        """Errors from `start` up to `end` (or here) continue at `target`."""
        end = len(self.code) if end is None else end
        if end > start:
            self.handlers.append(Handler(start, end, target, register))

    def register(self, count: int = 1) -> int:
        """Return the first of `count` fresh registers in a row."""
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

    def pin(self, value: Any) -> int | None:
        """Return the operand that means a constant's own register, or None when there is no room for one more."""
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
        """Return the index of a constant for a `constant` operand; shifted behind the pinned ones at the end."""
        key = _key(value)
        index = self.other_index.get(key)
        if index is None:
            index = len(self.others)
            self.others.append(value)
            self.other_index[key] = index
        return index

    def constant(self, value: Any, into: int | None = None) -> int:
        """Return a register that holds the constant: `into`, or its own, or a temporary one."""
        pinned = self.pin(value)
        if pinned is not None:
            if into is None:
                return pinned
            self.emit(OP_MOVE, into, pinned)
            return into
        register = self.register() if into is None else into
        self.emit(OP_CONSTANT, register, self.other(value))
        return register

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


# One function while it is compiled: its code so far, what its names mean, and the rules that compile its parts.


class ProgramParts(Protocol):
    """What the functions of one program share; `compiler.Linker` is it."""

    host_names: frozenset[str]
    keep: list[Any]  # nodes that the compiler made; meanings go by id, so none may be collected
    notes: Notes
    summaries: Summaries

    def file(self, module: ModuleScope) -> int: ...
    def slot(self, variable: Variable) -> int: ...
    def function_of(self, symbol: Symbol) -> int: ...
    def function(self, module: ModuleScope, node: Any, unit: Unit, name: str, *, is_hidden: bool = False) -> int: ...
    def configuration(self, symbol: Symbol) -> int: ...
    def prelude(self, full: str) -> tuple[int, int, int]: ...
    def wrapper(self, module: str, name: str, count: int) -> int: ...
    def may_overlap(self, symbol: Symbol) -> bool: ...


class CompileRules(NamedTuple):
    """How each kind of node is compiled: what expressions, statements and blocks reach one another through."""

    expressions: Mapping[type, Callable[[FunctionCode, Any, int | None], int]]
    statements: Mapping[type, Callable[[FunctionCode, Any], None]]
    sequence: Callable[[FunctionCode, list[ast.Statement]], None]  # the statements of a block


class FunctionCode(Emitter):
    """The state that the functions of the compiler work on. `group` to `stops` are about the stretch of statements
    whose calls are made ahead of their turn, see `early_calls`."""

    def __init__(
        self, linker: ProgramParts, module: ModuleScope, unit: Unit, name: str, rules: CompileRules, *, is_hidden: bool
    ) -> None:
        super().__init__(module.source, name, linker.file(module))
        self.linker = linker
        self.module = module
        self.unit = unit
        self.expression_rules, self.statement_rules, self.sequence = rules
        self.is_hidden = is_hidden  # the library's own code
        self.captured: dict[int, int] = {}  # id(Variable) → register, for what the function captured
        self.defers = -1  # the register of the list of deferred closures
        self.group = -1  # the register of the group of early calls; -1 outside a stretch
        self.sites: dict[int, Site] = {}  # the early calls, by id(node)
        self.spawns: dict[int, int] = {}  # the numbers of the spawns, by id(node)
        self.level = 0  # the level of the pass that looks ahead; 0 in the stretch itself
        self.copies: dict[int, int] | None = None  # id(Variable) → register of its copy, in a pass that looks ahead
        self.stops: list[int] = []  # jumps that end the look ahead

    def target(self, into: int | None) -> int:
        """Return the register for a value: the one that is asked for, or a fresh one."""
        return self.register() if into is None else into

    def home(self, variable: Variable) -> int:
        """Return the register of a variable, or of its cell, in this function; in a look ahead that of its copy."""
        copy = None if self.copies is None else self.copies.get(id(variable))
        return self.captured.get(id(variable), variable.register) if copy is None else copy

    def fail(self, node: ast.SyntaxNode, message: str, hint: str = "") -> Exception:
        return complaint(self.source, node, message, hint)
