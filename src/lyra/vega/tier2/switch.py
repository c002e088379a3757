"""When a call goes which way: into generated code, or through the machine.

A function with a loop is generated when it is first called, others when they have been called some dozens of times;
for each row of argument kinds once. A call that gives up is made again by the machine, and a function that gives up
often is asked less and less often. Where others may be waiting, a watch sets `STOP` when a turn takes long: generated
code gives up, and until the turn is over all calls are the machine's, whose fuel soon ends it. What the watch finds at
work again and again becomes machine code, if it is about numbers alone (`native`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

from lyra.vega.tier2 import MISS, GiveUp
from lyra.vega.values import Fault

if TYPE_CHECKING:
    from lyra.vega.tier2.kinds import Facts, Row, Solver, Trees
    from lyra.vega.tier2.native import Native

__all__ = ["Pure", "Tier"]

WARM: Final = 64  # calls before a function without a loop is worth generating
VARIANTS_MAX: Final = 8  # rows of kinds for one function; further ones are the machine's
SKIP_MAX: Final = 1_024  # calls that are the machine's after one that gave up
TURN_S: Final = 0.005  # between two looks of the watch
IDLE_TURNS: Final = 200  # of a watch that ends itself
HOT_TICKS: Final = 20  # looks that found one function at work: machine code will pay

# What generated code may raise, besides its own GiveUp. Anything else is a mistake in it; the machine is asked all the
# same, but a strict tier lets the mistake be seen.
_EXPECTED: Final = (Fault, IndexError, KeyError, ZeroDivisionError, OverflowError, RecursionError, MemoryError)


class Tier:
    """The generated code of one program. `contended` says whether anybody is kept waiting by a long call. For tests: an
    `is_eager` one generates at once and never loses patience, an `is_strict` one hides no mistake of its own, and
    `native` may be "always" or "never"."""

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self.names: dict[str, Any] = {"STOP": False}
        self.pures: list[Pure] = []
        self.contended: Callable[[], bool] | None = None
        self.watch = Watch(self)
        self.machine_code: Native | None = None
        self.native_functions: dict[str, Any] = {}  # by the name of their row
        self.is_used = False  # something has been generated
        self.may_go_native = False  # something here is worth it
        self._solver: Solver | None = None
        self._solving = threading.Lock()
        self._heating = threading.Lock()
        self.is_eager = False
        self.is_strict = False
        self.native: Literal["hot", "always", "never"] = "hot"

    def make(self, row: Row) -> Callable[..., Any] | None:
        """The function for one row of kinds."""
        from lyra.vega.tier2.generate import namespace, python_of
        from lyra.vega.tier2.kinds import row_name

        if not self.is_used:
            self.is_used = True
            self.names.update(namespace())
        try:
            facts = self.solved(row)
            fresh = [row for row in facts if row_name(row) not in self.names]
            python_of(self.trees, facts, fresh, self.names)
        except (GiveUp, RecursionError, SyntaxError, MemoryError):  # nested more than Python's compiler takes
            return None
        self._look_for_numbers(facts)
        made: Callable[..., Any] = self.names[row_name(row)]
        return made

    def solved(self, row: Row) -> dict[Row, Facts]:
        """What is known of a row and of all it calls."""
        from lyra.vega.tier2.kinds import Solver

        with self._solving:
            self._solver = self._solver or Solver(self.trees)
            return self._solver.solve(row)

    def _look_for_numbers(self, facts: dict[Row, Facts]) -> None:
        if self.native == "never":
            return
        from lyra.vega.tier2.native import is_installed, numeric_rows, worthwhile

        if not is_installed():
            return
        if self.native == "always":
            self.go_native(facts)
        elif not self.may_go_native:
            self.may_go_native = bool(worthwhile(self.trees, numeric_rows(self.trees, facts)))

    def go_native(self, facts: dict[Row, Facts]) -> None:
        """Numeric rows that may run long become machine code, under the names that their Python had."""
        from lyra.vega.tier2.kinds import row_name, size_of
        from lyra.vega.tier2.native import NODES_MAX, Native, numeric_rows, worthwhile

        rows = numeric_rows(self.trees, facts)
        if sum(size_of(self.trees, row[0]) for row in rows) > NODES_MAX:
            return  # LLVM would take long
        entries = [*rows] if self.native == "always" else worthwhile(self.trees, rows)
        if self.native_functions.keys() >= set(map(row_name, entries)):
            return
        if self.machine_code is None:
            self.machine_code = Native(self)
        for row, function in self.machine_code.make(self.trees, facts, [*rows], entries).items():
            self.names[row_name(row)] = self.native_functions[row_name(row)] = function
        for pure in self.pures:
            pure.forget()

    def heat(self, pure: Pure) -> None:
        """A function that took long, one way or another, goes native if it can. In a thread of its own."""
        try:
            with self._heating:
                for row in [*pure.rows]:
                    if threading.main_thread().is_alive():  # else the process ends and would wait for this
                        self.go_native(self.solved(row))
        except Exception:
            if self.is_strict:
                raise
            self.native = "never"  # an llvmlite that does not work here: Python's code goes on
            self.may_go_native = False
        else:
            self.watch.has_become_native(pure)

    def turn(self) -> None:
        """A process begins its turn: nobody has been kept waiting yet."""
        self.watch.turn += 1
        if self.names["STOP"]:
            self.names["STOP"] = False
            self.watch.settled()


class Pure:
    """One function's way into generated code. `ticks` counts the looks of the watch that found it at work."""

    __slots__ = ("_calls", "_function", "_names", "_patience", "_skip", "_tier", "_variants", "is_hot", "rows", "ticks")

    def __init__(self, tier: Tier, function: int) -> None:
        self._tier = tier
        self._names = tier.names
        self._function = function
        self._calls = WARM if tier.trees[function][4] else 0
        self._skip = 0  # calls that are the machine's from now on
        self._patience = 1
        self._variants: dict[tuple[type, ...], Callable[..., Any] | None] = {}
        self.rows: set[Row] = set()
        self.ticks = 0
        self.is_hot = False
        tier.pures.append(self)

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
        if tier.contended is not None or tier.may_go_native:
            return self._watched(made, arguments)
        try:
            return made(*arguments)  # type: ignore[operator]  # it is no MISS by now
        except Exception as error:  # noqa: BLE001 - whatever it was, the machine finds it too
            return self._gave_up(error)

    def _watched(self, made: Any, arguments: list[Any]) -> Any:
        watch = self._tier.watch
        if self._names["STOP"] and not watch.settled():
            return MISS  # this turn is over
        watch.begin(self)
        try:
            return made(*arguments)
        except Exception as error:  # noqa: BLE001
            watch.busy = None
            if watch.settled():
                return self(arguments)  # again, natively
            return self._gave_up(error)
        finally:
            watch.busy = None

    def _made(self, arguments: list[Any]) -> Callable[..., Any] | None:
        self._calls += 1
        tier = self._tier
        if (self._calls < WARM and not tier.is_eager) or len(self._variants) >= VARIANTS_MAX:
            return None
        from lyra.vega.tier2.kinds import kind_of_value

        row = (self._function, tuple(map(kind_of_value, arguments)))
        made = tier.make(row)
        self.rows.add(row)
        self._variants[tuple(map(type, arguments))] = made
        return made

    def forget(self) -> None:
        """Other functions have taken the place of those known here."""
        self._variants.clear()

    def _gave_up(self, error: Exception) -> Any:
        """Whose turn is over is trusted as before."""
        if self._tier.is_strict and not isinstance(error, (GiveUp, *_EXPECTED)):
            raise error
        if not self._names["STOP"] and not self._tier.is_eager:
            self._skip = self._patience
            self._patience = min(self._patience * 2, SKIP_MAX)
        return MISS


class Watch:
    """A thread that looks now and then what is at work: whether it has kept others waiting since the last look, and
    whether it has been found so often that machine code is worth its price."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self.turn = 0
        self.busy: Pure | None = None
        self._calls = 0
        self._ready: tuple[Pure, int] | None = None  # native since this call
        self._is_restart = False  # `STOP` is meant for a call that could go on natively
        self._is_awake = False

    def begin(self, pure: Pure) -> None:
        self._calls += 1
        self.busy = pure
        if not self._is_awake:
            self._is_awake = True
            threading.Thread(target=self._look, name="vega watch", daemon=True).start()

    def settled(self) -> bool:
        """Whether `STOP` asked for nothing but to begin again, natively."""
        if not self._is_restart:
            return False
        self._is_restart = self._tier.names["STOP"] = False
        return True

    def has_become_native(self, pure: Pure) -> None:
        self._ready = (pure, self._calls)

    def _look(self) -> None:
        pause, last, idle = threading.Event(), -1, 0
        while idle < IDLE_TURNS:
            pause.wait(TURN_S)
            pure, turn = self.busy, self.turn
            idle = 0 if pure is not None else idle + 1
            if pure is not None:
                self._weigh(pure, is_long=turn == last)
            last = turn
        self._is_awake = False

    def _weigh(self, pure: Pure, *, is_long: bool) -> None:
        tier = self._tier
        pure.ticks += 1
        if pure.ticks >= HOT_TICKS and tier.may_go_native and not pure.is_hot:
            pure.is_hot = True
            # Not a daemon: nothing may end the process in the middle of LLVM.
            threading.Thread(target=tier.heat, args=(pure,), name="vega native").start()
        if is_long and tier.contended is not None and tier.contended():
            self._is_restart, tier.names["STOP"] = False, True
        elif self._ready == (pure, self._calls):
            self._is_restart = tier.names["STOP"] = True
        if tier.machine_code is not None:
            tier.machine_code.flag.value = 1
