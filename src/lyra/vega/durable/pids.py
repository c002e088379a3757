"""The pids of a durable run: saved values hold them, so they are the same however often the run was killed.

A kernel numbers processes by the rows of its journal, and a run that was killed has other rows than one that was
not. Here a pid says which call of whom made the process: `p4` was made by the call 4 of the main process, `p4.0`
by the first call of `p4`, `p2_1.0-0` by a call made ahead or in a `parallel` of the main process. Saving a process is a
call too, but when that happens is not the program's to say, so those are not counted. A run that was begun by rows goes
on with them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.vega.durable.record import MAIN

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process


BY_CALL: Final = "call"  # what a run keeps of how its processes are numbered
PID: Final = re.compile(r"\bp\d+(?:[-_.]\w+)*")
_LENGTH_MAX: Final = 60  # of a pid that tells whose it is: processes may nest a thousand deep
_GROUP: Final = re.compile(r"[a-z]+(?=\d+:)")  # ahead2:1.0/0, parallel2:0/0: no two groups of a process have a number
_WRITTEN: Final = str.maketrans(":/", "_-")


class PidsByCall:
    """How the kernel of a run numbers its processes (`Seams.pids`). `saves` says how often each was saved so far."""

    __slots__ = ("saves",)

    def __init__(self) -> None:
        self.saves: Mapping[str, int] = {}

    def pid_of(self, parent: Process, key: Any) -> str:
        before = "p" if parent.pid == MAIN else f"{parent.pid}."
        saves = self.saves.get(parent.pid, 0)
        call = key - saves if type(key) is int else _GROUP.sub("", key, count=1).translate(_WRITTEN)
        pid = f"{before}{call}"
        if len(pid) <= _LENGTH_MAX:
            return pid
        return f"p0.{hashlib.sha256(f'{parent.pid}.{call}'.encode()).hexdigest()[:24]}"

    def is_given(self, pid: str) -> bool:
        return PID.fullmatch(pid) is not None
