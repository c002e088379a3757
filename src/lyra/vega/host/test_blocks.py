"""`test "name" { … }` blocks as programs: what `vega test` runs.

Each test runs by itself: the file's top level first, as when it is imported, then the block; `main` is not called. So
no test sees what another did.
"""

from __future__ import annotations

import msgspec

from lyra.vega.bytecode.opcodes import OP_CALL, OP_RETURN
from lyra.vega.bytecode.program import Function, Program, TestInfo


def test_program(program: Program, test: TestInfo) -> Program:
    """The program that runs one of its tests in place of `main`."""
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
