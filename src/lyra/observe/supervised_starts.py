"""How often supervisors have started each of their children, as the rows tell that make processes.

A journal has no row for a restart: a child of a supervisor with the same name, program and arguments as an earlier one
is that child, started again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.core.naming import SUPERVISE, fixed_name

_ARGUMENT_CHARS: Final = 400  # by which two children of one supervisor are told apart


class SupervisedStarts:
    """Give it the rows `process.created` in order."""

    __slots__ = ("_counts", "_supervisors")

    def __init__(self) -> None:
        self._supervisors: set[str] = set()
        self._counts: dict[tuple[str, str], int] = {}  # by supervisor and what the child is

    def add(self, pid: str, data: Mapping[str, Any], arguments: Any) -> int:
        """Which start of a supervised child this is, from 1; 0 for a process that no supervisor started."""
        program, parent = fixed_name(str(data.get("program", ""))), str(data.get("parent") or "")
        if program == SUPERVISE:
            self._supervisors.add(pid)
        if parent not in self._supervisors:
            return 0
        child = (parent, f"{data.get('name')}|{program}|{repr(arguments)[:_ARGUMENT_CHARS]}")
        self._counts[child] = self._counts.get(child, 0) + 1
        return self._counts[child]
