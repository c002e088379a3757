"""`ctx.budget`: the Budget of a process as its program sees it."""

from __future__ import annotations

from typing import Any

from lyra.core.budgets.budget import Budget
from lyra.kernel.process.process import Process
from lyra.kernel.programs.journaled_call import read


class BudgetView:
    """Readings of what was spent and what is left are journaled, since other processes spend from the Budget, too."""

    __slots__ = ("_process",)

    def __init__(self, process: Process) -> None:
        self._process = process

    def remaining(self, dimension: str = "usd") -> Any:
        return read(self._process, f"budget.{dimension}", lambda: self._process.budget.remaining(dimension))

    def used(self, dimension: str = "usd") -> Any:
        return read(self._process, f"used.{dimension}", lambda: self._process.budget.used(dimension))

    def limit(self, dimension: str = "usd") -> Any:
        """Limits never change during a life, so reading one needs no row."""
        return self._process.budget.limit(dimension)

    @property
    def scope(self) -> Budget:
        return self._process.budget
