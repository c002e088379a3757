"""`.vgb`: a Program in a file.

    4 bytes   b"VGB\\x00"
    2 bytes   version, big-endian
    32 bytes  SHA-256 of what follows
    rest      the Program as MessagePack of plain data

Loading checks the hash, the shape of the data and then every instruction (`verifier`), so that whatever is in the file
either runs or is a BytecodeError. The hash is also the name under which saved processes ask for their code.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from lyra.core.budgets.money import Money
from lyra.core.limits import VEGA_BYTECODE_BYTES_MAX
from lyra.errors import BytecodeError, LyraError
from lyra.vega.bytecode.opcodes import OPCODES
from lyra.vega.bytecode.program import Function, Program
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
    from lyra.vega.bytecode.verifier import verify

    if len(data) > VEGA_BYTECODE_BYTES_MAX:
        raise _make_error("it is too large")
    if not data.startswith(MAGIC) or len(data) < HEAD:
        raise _make_error("it does not begin as one")
    version = int.from_bytes(data[4:6], "big")
    if version != VERSION:
        raise _make_error(f"it is of version {version}, this machine runs version {VERSION}")
    body = data[HEAD:]
    if hashlib.sha256(body).digest() != data[6:HEAD]:
        raise _make_error("its content does not fit its hash")
    try:
        program = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _make_error(str(error)) from None
    for function in program.functions:
        function.constants = [_constant_from(constant) for constant in function.constants]
    verify(program)
    return program


def _make_error(why: str) -> BytecodeError:
    return BytecodeError(f"this is not a usable .vgb file: {why}", hint="compile the source again")


_DECODER: Final = msgspec.msgpack.Decoder(Program)


def _body(program: Program) -> bytes:
    plain = msgspec.to_builtins(program, builtin_types=(bytes,), enc_hook=_never)
    return msgspec.msgpack.encode(plain)


def _never(value: Any) -> Any:
    return _constant_to(value)


def _constant_to(value: Any) -> Any:
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
            return _exact(key, inner)
    raise _make_error("it has a constant of an unknown kind")


def _exact(key: Any, number: int) -> Any:
    if key == _MONEY:
        try:
            return Money(number)
        except LyraError:
            raise _make_error("it has an amount of money that is too large") from None
    if key == _DURATION and INT_MIN <= number <= INT_MAX:
        return Duration(number)
    raise _make_error("it has a constant of an unknown kind")


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
