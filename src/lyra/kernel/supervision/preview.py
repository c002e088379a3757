"""What a supervisor that comes back knows, before it is back.

A supervisor's table is rebuilt by replaying its program, which takes its turn after the kernel has opened. `preview`
answers callers that ask before: the same program runs ahead on a copy of the journal's answers, in a process that is in
no table, and is dropped where the answers end. Nothing is performed, written or told.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from lyra.errors import LyraError
from lyra.kernel.process.process import Process
from lyra.kernel.programs.context import Context, ExitProgram
from lyra.kernel.supervision.child import Plan
from lyra.kernel.supervision.children import ChildTable
from lyra.kernel.supervision.supervisor import Run, read_kept


def preview(process: Process, plan: Any) -> ChildTable:
    """What a supervisor that comes back will know once its replay is done, for callers that ask before."""
    ahead = Process(
        process.core,
        process.pid,
        process.program,
        process.parent,
        process.budget,
        process.grant,
        process.priority,
        process.context,
    )
    ahead.keys, ahead.branches, ahead.restored = process.keys, process.branches, process.restored
    ahead.replay = _Answers(process.replay or {})
    ahead.stepping = True
    ctx = Context(ahead)
    looking = Run(ctx, read_kept(ctx, plan, Plan))
    program = looking.run()
    try:
        with suppress(_CaughtUp, StopIteration, ExitProgram, LyraError):
            while program.send(None) is None:
                pass
    finally:
        program.close()
    return looking.table


class _CaughtUp(BaseException):
    """The journal has no more answers."""


class _Answers(dict[Any, Any]):
    """What a journal holds, for a look ahead: where it ends the look does too, before anything is done."""

    def pop(self, key: Any, _default: Any = None) -> Any:
        if key not in self:
            raise _CaughtUp
        return super().pop(key)

    def __bool__(self) -> bool:
        return True
