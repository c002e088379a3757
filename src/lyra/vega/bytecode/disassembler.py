"""A program as people read it: functions, constants, one instruction a line.

fn fib(n)                                         registers 4, constants [2]
    0  UNLESS_LT    → 2, r0, 2                    3:8   goes on at a unless b < c
"""

from __future__ import annotations

from typing import Any

from lyra.vega.bytecode.opcodes import OPCODES
from lyra.vega.bytecode.program import Function, Program
from lyra.vega.values.values import UNSET, shown


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
    return shown(value)
