"""When a call goes which way: into generated code, or through the machine.

A function with a loop is generated when it is first called, others when they have been called some dozens of times;
for each row of argument kinds once. A call that gives up is made again by the machine, and a function that gives up
often is asked less and less often. Where others may be waiting, a watch sets `STOP` when a turn takes long: generated
code gives up, and until the turn is over all calls are the machine's, whose fuel soon ends it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.vega.tier2 import MISS
from lyra.vega.values import Fault

if TYPE_CHECKING:
    from lyra.vega.tier2.kinds import Kinds, Trees

__all__ = ["Pure", "Tier"]

WARM: Final = 64  # calls before a function without a loop is worth generating
VARIANTS_MAX: Final = 8  # rows of kinds for one function; further ones are the machine's
SKIP_MAX: Final = 1_024  # calls that are the machine's after one that gave up
TURN_S: Final = 0.005  # between two looks of the watch
IDLE_TURNS: Final = 200  # of a watch that ends itself

# What generated code may raise, besides its own GiveUp. Anything else is a mistake in it; the machine is asked all the
# same, but a strict tier lets the mistake be seen.
_EXPECTED: Final = (Fault, IndexError, KeyError, ZeroDivisionError, OverflowError, RecursionError, MemoryError)


class GiveUp(Exception):
    """The machine has to make this call."""


class Tier:
    """The generated code of one program. `contended` says whether anybody is kept waiting by a long call. An `is_eager`
    one generates at once and never loses patience, an `is_strict` one hides no mistake of its own: both for tests."""

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self.names: dict[str, Any] = {"STOP": False}
        self.contended: Callable[[], bool] | None = None
        self.watch = Watch(self)
        self.is_eager = False
        self.is_strict = False

    def make(self, function: int, kinds: Kinds) -> Callable[..., Any] | None:
        from lyra.vega.tier2.generate import namespace, python_of, row_name
        from lyra.vega.tier2.kinds import solve

        if len(self.names) == 1:
            self.names.update(namespace())
        row = (function, kinds)
        if row_name(row) not in self.names:
            try:
                python_of(self.trees, solve(self.trees, row), self.names)
            except (GiveUp, RecursionError, SyntaxError, MemoryError):  # nested more than Python's compiler takes
                return None
        made: Callable[..., Any] = self.names[row_name(row)]
        return made

    def turn(self) -> None:
        """A process begins its turn: nobody has been kept waiting yet."""
        self.watch.turn += 1
        if self.names["STOP"]:
            self.names["STOP"] = False


class Pure:
    """One function's way into generated code."""

    __slots__ = ("_calls", "_function", "_names", "_patience", "_skip", "_tier", "_variants")

    def __init__(self, tier: Tier, function: int) -> None:
        self._tier = tier
        self._names = tier.names
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
        if self._tier.contended is None:
            try:
                return made(*arguments)  # type: ignore[operator]  # it is no MISS by now
            except Exception as error:  # noqa: BLE001 - whatever it was, the machine finds it too
                return self._gave_up(error)
        if self._names["STOP"]:
            return MISS
        watch = self._tier.watch
        watch.begin()
        try:
            return made(*arguments)  # type: ignore[operator]
        except Exception as error:  # noqa: BLE001
            return self._gave_up(error)
        finally:
            watch.is_busy = False

    def _made(self, arguments: list[Any]) -> Callable[..., Any] | None:
        self._calls += 1
        tier = self._tier
        if (self._calls < WARM and not tier.is_eager) or len(self._variants) >= VARIANTS_MAX:
            return None
        from lyra.vega.tier2.kinds import kind_of_value

        made = tier.make(self._function, tuple(map(kind_of_value, arguments)))
        self._variants[tuple(map(type, arguments))] = made
        return made

    def _gave_up(self, error: Exception) -> Any:
        """Whose turn is over is trusted as before."""
        if self._tier.is_strict and not isinstance(error, (GiveUp, *_EXPECTED)):
            raise error
        if not self._names["STOP"] and not self._tier.is_eager:
            self._skip = self._patience
            self._patience = min(self._patience * 2, SKIP_MAX)
        return MISS


class Watch:
    """A thread that looks now and then whether a turn is still the same as at its last look, and busy with a call."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self.turn = 0
        self.is_busy = False
        self._is_awake = False

    def begin(self) -> None:
        self.is_busy = True
        if not self._is_awake:
            self._is_awake = True
            threading.Thread(target=self._look, name="vega watch", daemon=True).start()

    def _look(self) -> None:
        pause, names = threading.Event(), self._tier.names
        last, idle = -1, 0
        while idle < IDLE_TURNS:
            pause.wait(TURN_S)
            idle = 0 if self.is_busy else idle + 1
            turn, contended = self.turn, self._tier.contended
            if self.is_busy and turn == last and contended is not None and contended():
                names["STOP"] = True
            last = turn
        self._is_awake = False
