"""`.vgb`: a Program in a file.

    4 bytes   b"VGB\\x00"
    2 bytes   version, big-endian
    32 bytes  SHA-256 of what follows
    rest      the Program as MessagePack of plain data

Loading checks the hash, the shape of the data and then every instruction (`verify`), so that whatever is in the file
either runs or is a BytecodeError. The hash is also the name under which saved processes ask for their code.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from lyra.core.budgets.money import Money
from lyra.core.limits import VEGA_BYTECODE_BYTES_MAX, VEGA_FUNCTIONS_MAX, VEGA_GLOBALS_MAX, VEGA_REGISTERS_MAX
from lyra.errors import BytecodeError, LyraError
from lyra.vega.bytecode.opcodes import OPCODES, Opcode
from lyra.vega.bytecode.program import Function, Program, ToolInfo
from lyra.vega.bytecode.pure_shapes import complaint
from lyra.vega.stdlib.natives import native
from lyra.vega.stdlib.table import GLOBALS, LIBRARY
from lyra.vega.values.values import INT_MAX, INT_MIN, UNSET, Duration, render

MAGIC: Final = b"VGB\x00"
VERSION: Final = 2
HEAD: Final = len(MAGIC) + 2 + 32

# Constants: plain ones as they are, the others as a map of one key.
_MONEY, _DURATION, _UNSET = "money", "nanoseconds", "unset"


def dump(program: Program) -> bytes:
    body = _body(program)
    return MAGIC + VERSION.to_bytes(2, "big") + hashlib.sha256(body).digest() + body


def content_hash(program: Program) -> str:
    return hashlib.sha256(_body(program)).hexdigest()


def load(data: bytes) -> Program:
    """Return the program in a file; BytecodeError for anything else."""
    if len(data) > VEGA_BYTECODE_BYTES_MAX:
        raise _make_load_error("it is too large")
    if not data.startswith(MAGIC) or len(data) < HEAD:
        raise _make_load_error("it does not begin as one")
    version = int.from_bytes(data[4:6], "big")
    if version != VERSION:
        raise _make_load_error(f"it is of version {version}, this machine runs version {VERSION}")
    body = data[HEAD:]
    if hashlib.sha256(body).digest() != data[6:HEAD]:
        raise _make_load_error("its content does not fit its hash")
    try:
        program = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _make_load_error(str(error)) from None
    for function in program.functions:
        function.constants = [_constant_from(constant) for constant in function.constants]
    verify(program)
    return program


def _make_load_error(why: str) -> BytecodeError:
    return BytecodeError(f"this is not a usable .vgb file: {why}", hint="compile the source again")


_DECODER: Final = msgspec.msgpack.Decoder(Program)


def _body(program: Program) -> bytes:
    plain = msgspec.to_builtins(program, builtin_types=(bytes,), enc_hook=_constant_to)
    return msgspec.msgpack.encode(plain)


def _constant_to(value: Any) -> Any:
    """Return a constant that msgspec does not know as one that it does."""
    if isinstance(value, Money):
        return {_MONEY: int(value)}
    if isinstance(value, Duration):
        return {_DURATION: value.nanoseconds}
    if value is UNSET:
        return {_UNSET: True}
    raise TypeError(f"{value!r} cannot be a constant")


def _constant_from(value: Any) -> Any:
    """Return a constant as it was; whatever no compiler writes is refused."""
    kind = type(value)
    if value is None or kind in (bool, float, str):
        return value
    if kind is int and INT_MIN <= value <= INT_MAX:
        return value
    if kind is list and all(type(item) in (str, int) for item in value):
        return value
    if kind is dict and len(value) == 1:
        ((key, inner),) = value.items()
        if key == _UNSET:
            return UNSET
        if type(inner) is int:
            if key == _MONEY:
                try:
                    return Money(inner)
                except LyraError:
                    raise _make_load_error("it has an amount of money that is too large") from None
            if key == _DURATION and INT_MIN <= inner <= INT_MAX:
                return Duration(inner)
    raise _make_load_error("it has a constant of an unknown kind")


# ---------------- A program as people read it: functions, constants, one instruction a line


def disassemble(program: Program) -> str:
    parts = [f"program {program.name}: {len(program.functions)} functions, {len(program.globals)} globals"]
    for agent in program.agents.values():
        tools = ", ".join(tool.name for tool in agent.tools)
        parts.append(f"{agent.kind} {agent.name}" + (f" with tools {tools}" if tools else ""))
    parts.extend(disassemble_function(program, index) for index in range(len(program.functions)))
    return "\n\n".join(parts) + "\n"


def disassemble_function(program: Program, index: int) -> str:
    function = program.functions[index]
    names = ", ".join(parameter.name for parameter in function.parameters)
    lines = [f"fn #{index} {function.name}({names})  registers {function.registers}, {program.files[function.file]}"]
    for place, (op, *operands) in enumerate(function.code):
        row = OPCODES[op]
        texts = [
            _operand(program, function, kind, value)
            for kind, value in zip((row.a, row.b, row.c), operands, strict=True)
            if kind != "-"
        ]
        line, column = function.place(place)
        lines.append(f"  {place:>4}  {row.name:<16} {', '.join(texts):<32} {line}:{column}".rstrip())
    lines.extend(
        f"  errors in {handler.start}–{handler.end - 1} → {handler.target} as r{handler.register}"
        for handler in function.handlers
    )
    return "\n".join(lines)


def _operand(program: Program, function: Function, kind: str, value: int) -> str:
    if kind in ("to", "from", "run"):
        if kind == "run" or value < function.registers:
            return f"r{value}"
        return _constant(function.constants[value - function.registers])
    if kind == "constant":
        return _constant(function.constants[value])
    if kind == "target":
        return f"→ {value}"
    if kind == "function":
        return f"#{value} {program.functions[value].name}"
    if kind == "global":
        return f"global {program.globals[value]}"
    return str(value)


def _constant(value: Any) -> str:
    if value is UNSET:
        return "(left out)"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:39] + "…")
    return render(value)


PINNED_MAX: Final = 4_096

_BACKWARD: Final = frozenset({"LOOP", "LOOP_IF", "LOOP_EQ", "LOOP_NE", "LOOP_LT", "LOOP_LE", "NEXT"})
_NOT_IN_FILES: Final = frozenset({"HALT", "CALL_PURE"})  # the second is made by linking alone
_PRIVATE_ARITY: Final = {"list::sorted": (1, 1)}


def verify(program: Program) -> None:
    """BytecodeError unless the program can be run."""
    functions = program.functions
    if not program.files or not functions:
        raise _make_error(None, 0, "it is empty")
    if len(functions) > VEGA_FUNCTIONS_MAX or len(program.globals) > VEGA_GLOBALS_MAX:
        raise _make_error(None, 0, "it has too many functions or globals")
    _check_no_parameters(program, program.entry, "entry")
    if program.main != -1:
        _function_index(program, program.main, "main")
    for agent in program.agents.values():
        _check_no_parameters(program, agent.configuration, f"agent {agent.name}")
        if not 0 <= agent.file < len(program.files):
            raise _make_error(None, 0, f"agent {agent.name} has no file")
        for tool in agent.tools:
            _tool(program, tool)
    for tool in program.tools.values():
        _tool(program, tool)
        if tool.configuration != -1:
            _check_no_parameters(program, tool.configuration, f"tool {tool.name}")
    for test in program.tests:
        _check_no_parameters(program, test.function, f"test {test.name}")
    if any(len(row) != 3 and (len(row) < 5 or row[0] != "node") for row in program.imports):
        raise _make_error(None, 0, "an import is not kind, target and name")
    for function in functions:
        _FunctionVerifier(program, function).verify()


def _make_error(function: Function | None, index: int, why: str) -> BytecodeError:
    where = f" in `{function.name}` at {index}" if function is not None else ""
    return BytecodeError(f"this bytecode cannot be run: {why}{where}", hint="compile the source again")


def _function_index(program: Program, index: int, what: str) -> Function:
    if not 0 <= index < len(program.functions):
        raise _make_error(None, 0, f"{what} has no function")
    function = program.functions[index]
    if function.captures:
        raise _make_error(None, 0, f"{what} is a function that captures variables")
    return function


def _check_no_parameters(program: Program, index: int, what: str) -> None:
    """One that is called without arguments."""
    if _function_index(program, index, what).parameters:
        raise _make_error(None, 0, f"{what} has parameters")


def _tool(program: Program, tool: ToolInfo) -> None:
    function = _function_index(program, tool.function, f"tool {tool.name}")
    if len(function.parameters) != len(tool.parameters):
        raise _make_error(None, 0, f"tool {tool.name} has other parameters than its function")


class _FunctionVerifier:
    def __init__(self, program: Program, function: Function) -> None:
        self.program = program
        self.function = function
        self.at = 0

    def fail(self, why: str) -> BytecodeError:
        return _make_error(self.function, self.at, why)

    def verify(self) -> None:
        function = self.function
        if not 0 <= function.file < len(self.program.files):
            raise self.fail("it has no file")
        if not 0 <= function.registers <= VEGA_REGISTERS_MAX:
            raise self.fail("it has too many registers")
        if not 0 <= function.pinned <= min(len(function.constants), PINNED_MAX):
            raise self.fail("it has no such constants")
        if not 0 <= function.captures <= function.registers - len(function.parameters):
            raise self.fail("its parameters do not fit its registers")
        if not function.code or len(function.places) != len(function.code):
            raise self.fail("it has no code, or no places for it")
        if any(place < 0 for place in function.places):
            raise self.fail("it has a place before the file")
        for self.at, (op, a, b, c) in enumerate(function.code):
            row = OPCODES.get(op)
            if row is None or row.name in _NOT_IN_FILES:
                raise self.fail(f"there is no instruction {op:#04x}")
            self.instruction(row, a, b, c)
        if not OPCODES[function.code[-1][0]].leaves:
            raise self.fail("its last instruction does not leave it")
        self.handlers()
        if function.tree is not None:
            why = complaint(self.program, function)
            if why:
                raise self.fail(why)

    def handlers(self) -> None:
        size = len(self.function.code)
        for handler in self.function.handlers:
            if not 0 <= handler.start < handler.end <= handler.target < size:
                raise self.fail("a handler has no place in the code")
            if not 0 <= handler.register < self.function.registers:
                raise self.fail("a handler has no register")

    def instruction(self, row: Opcode, a: int, b: int, c: int) -> None:
        run = count = -1
        for kind, value in ((row.a, a), (row.b, b), (row.c, c)):
            if kind == "run":
                run = value
            elif kind == "count":
                count = value
            else:
                self.operand(row, kind, value)
        if run >= 0 or "run" in (row.a, row.b, row.c):
            self.run(row, run, self.run_length(row, count, b, c))
        if row.name == "CLOSURE":
            self.closure(b, self.function.constants[c])
        elif row.name == "CALL":
            _function_index(self.program, b, "a call")
        elif row.name == "ITERATE":
            self.run(row, a, 2)
        elif row.name == "BUDGET_CHECK" and b > 2:
            raise self.fail("unknown budget query")

    def operand(self, row: Opcode, kind: str, value: int) -> None:
        function = self.function
        if kind == "to":
            is_fine = 0 <= value < function.registers
        elif kind == "from":
            is_fine = 0 <= value < function.registers + function.pinned
        elif kind == "target":
            is_fine = 0 <= value < len(function.code)
            if is_fine and row.name not in _BACKWARD and value <= self.at:
                raise self.fail("a jump that costs no fuel goes back")
        elif kind == "constant":
            is_fine = 0 <= value < len(function.constants)
            if is_fine:
                self.constant(row, function.constants[value])
        elif kind == "function":
            is_fine = 0 <= value < len(self.program.functions)
        elif kind == "global":
            is_fine = 0 <= value < len(self.program.globals)
        elif kind == "number":
            is_fine = 0 <= value < 1 << 31
        else:
            is_fine = True
        if not is_fine:
            raise self.fail(f"{row.name} has no such {kind} as {value}")

    def run(self, row: Opcode, first: int, length: int) -> None:
        if first < 0 or length < 0 or first + length > self.function.registers:
            raise self.fail(f"{row.name} needs more registers than there are")

    def run_length(self, row: Opcode, count: int, b: int, c: int) -> int:
        if "count" in (row.a, row.b, row.c):
            if row.name in ("MAP", "MAP_ADD") and count % 2:
                raise self.fail("a map has a key without a value")
            return count + int(row.length or 0) if count >= 0 else -1
        if isinstance(row.length, int):
            return row.length
        if row.length == "parameters":
            return len(self.program.functions[b].parameters)
        constant = self.function.constants[c]
        return len(constant) if row.length == "named" else int(constant[1])

    def constant(self, row: Opcode, constant: Any) -> None:
        kind = row.constant
        if kind == "name" and type(constant) is not str:
            raise self.fail(f"{row.name} needs a name")
        if kind == "" and type(constant) is list:
            raise self.fail(f"{row.name} needs a value")
        if kind == "registers" and not (type(constant) is list and all(type(item) is int for item in constant[1:])):
            raise self.fail(f"{row.name} needs registers")
        if kind == "counted":
            if type(constant) is not list or list(map(type, constant)) != [str, int] or constant[1] < 0:
                raise self.fail(f"{row.name} needs a name and a count")
            if row.name == "METHOD" and constant[1] < 1:
                raise self.fail("a method needs its value")
            if row.name == "LIBRARY":
                least, most = _arity(constant[0])
                if native(constant[0]) is None or not least <= constant[1] <= most:
                    raise self.fail(f"the library has no {constant[0]!r} with {constant[1]} arguments")
        if kind == "names":
            self.names(row, constant)

    def names(self, row: Opcode, constant: Any) -> None:
        if type(constant) is not list:
            raise self.fail(f"{row.name} needs names")
        kinds = [type(item) for item in constant]
        wanted = _NAMES.get(row.name)
        if wanted is None:
            wanted = [str] * max(len(constant), 1)
        if kinds != wanted:
            raise self.fail(f"{row.name} needs names")

    def closure(self, index: int, constant: list[Any]) -> None:
        registers = constant[1:]
        if len(registers) != self.program.functions[index].captures:
            raise self.fail("a closure captures another number of variables than its function wants")
        if any(not 0 <= register < self.function.registers for register in registers):
            raise self.fail("a closure captures a register that is not there")


# What the constant of an instruction holds where that is not just names.
_NAMES: Final[dict[str, list[type]]] = {
    "SPAWN": [str] * 4,
    "SPAWN_SUPERVISED": [str] * 4,
    "PAR_SPAWN": [str, str, int, int, int],
    "PAR_JOIN": [str, str, int, int, int],
}


def _arity(name: str) -> tuple[int, int]:
    module, _, function = name.partition("::")
    row = LIBRARY.get(module, {}).get(function) if function else GLOBALS.get(name)
    if row is not None:
        return row.required, row.most
    return _PRIVATE_ARITY.get(name, (0, -1))
