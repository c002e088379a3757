"""When a call goes which way: into generated code, or through the machine.

A function with a loop is generated when it is first called, others when they have been called some dozens of times;
for each row of argument kinds once. A call that gives up is made again by the machine, and a function that gives up
often is asked less and less often. Where others may be waiting, a watch sets `STOP` when a call takes long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from lyra.vega.tier2.generate import GiveUp, namespace, python_of, row_name
from lyra.vega.tier2.kinds import kind_of_value, solve

__all__ = ["MISS", "Pure", "Tier"]

WARM: Final = 64  # calls before a function without a loop is worth generating
VARIANTS_MAX: Final = 8  # rows of kinds for one function; further ones are the machine's
SKIP_MAX: Final = 1_024  # calls that are the machine's after one that gave up
TURN_S: Final = 0.01  # between two looks of the watch
IDLE_TURNS: Final = 100  # of a watch that ends itself
MISS: Final = object()  # the machine has to make this call


class Tier:
    """The generated code of one program. `contended` says whether anybody is kept waiting by a long call."""

    def __init__(self, trees: dict[int, list[Any]]) -> None:
        self.trees = trees
        self.names = namespace()
        self.contended: Callable[[], bool] | None = None
        self.watch = Watch(self)

    def make(self, function: int, kinds: tuple[str, ...]) -> Callable[..., Any] | None:
        row = (function, kinds)
        if row_name(row) not in self.names:
            try:
                python_of(self.trees, solve(self.trees, row), self.names)
            except (GiveUp, RecursionError, SyntaxError, MemoryError):  # nested more than Python's compiler takes
                return None
        made: Callable[..., Any] = self.names[row_name(row)]
        return made


class Pure:
    """One function's way into generated code."""

    __slots__ = ("_calls", "_function", "_patience", "_skip", "_tier", "_variants")

    def __init__(self, tier: Tier, function: int) -> None:
        self._tier = tier
        self._function = function
        self._calls = WARM if tier.trees[function][4] else 0
        self._skip = 0  # calls that are the machine's from now on
        self._patience = 1
        self._variants: dict[tuple[type, ...], Callable[..., Any] | None] = {}

    def __call__(self, arguments: list[Any]) -> Any:
        """The value, or MISS."""
        if self._skip:
            self._skip -= 1
            return MISS
        made = self._variants.get(tuple(map(type, arguments)), MISS)
        if made is MISS:
            made = self._made(arguments)
        if made is None:
            return MISS
        tier = self._tier
        if tier.contended is None:
            try:
                return made(*arguments)  # type: ignore[operator]  # it is no MISS by now
            except Exception:  # noqa: BLE001 - whatever it was, the machine finds it too
                return self._gave_up()
        watch = tier.watch
        watch.begin()
        try:
            return made(*arguments)  # type: ignore[operator]
        except Exception:  # noqa: BLE001
            return self._gave_up()
        finally:
            watch.end()

    def _made(self, arguments: list[Any]) -> Callable[..., Any] | None:
        self._calls += 1
        if self._calls < WARM or len(self._variants) >= VARIANTS_MAX:
            return None
        types = tuple(map(type, arguments))
        made = self._tier.make(self._function, tuple(map(kind_of_value, arguments)))
        self._variants[types] = made
        return made

    def _gave_up(self) -> Any:
        self._skip = self._patience
        self._patience = min(self._patience * 2, SKIP_MAX)
        return MISS


class Watch:
    """A thread that looks now and then whether one call is still the same as at its last look."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self._call = 0
        self._is_busy = False
        self._is_awake = False

    def begin(self) -> None:
        self._call += 1
        self._is_busy = True
        if not self._is_awake:
            self._is_awake = True
            threading.Thread(target=self._look, name="vega watch", daemon=True).start()

    def end(self) -> None:
        self._is_busy = False
        names = self._tier.names
        if names["STOP"]:
            names["STOP"] = False

    def _look(self) -> None:
        sleep, last, idle = threading.Event(), -1, 0
        while idle < IDLE_TURNS:
            sleep.wait(TURN_S)
            if not self._is_busy:
                idle += 1
                continue
            idle = 0
            contended = self._tier.contended
            if self._call == last and contended is not None and contended():
                self._tier.names["STOP"] = True
            last = self._call
        self._is_awake = False
