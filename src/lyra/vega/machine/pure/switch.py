"""When a call goes which way: into generated code, or through the machine.

A function with a loop is generated when it is first called, others when they have been called some dozens of times;
for each row of argument kinds once. A call that gives up is made again by the machine, and a function that gives up
often is asked less and less often. Where others may be waiting, a watch looks at turns that take long. A function that
loops is asked to `PAUSE`: the turn is over, and the call continues where it was in the process's next one. What does
not pause soon is told to `STOP`: generated code gives up, and until the turn is over all calls are the machine's, whose
fuel soon ends it; what it calls then is quick again, and can pause. What the watch finds at work again and again
becomes machine code, if it is about numbers alone (`native`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from lyra.vega.machine.pure import MISS, GiveUp
from lyra.vega.values.values import Fault

if TYPE_CHECKING:
    from lyra.vega.machine.pure.kinds import Row, RowFacts, Solver, Trees
    from lyra.vega.machine.pure.native import Native


WARM: Final = 64  # calls before a function without a loop is worth generating
VARIANTS_MAX: Final = 8  # rows of kinds for one function; further ones are the machine's
SKIP_MAX: Final = 1_024  # calls that are the machine's after one that gave up
TURN_S: Final = 0.005  # between two looks of the watch
IDLE_TURNS: Final = 200  # of a watch that ends itself
HOT_TICKS: Final = 20  # looks that found one function at work: machine code will pay

# What generated code may raise, besides its own GiveUp. Anything else is a mistake in it; the machine is asked all the
# same, but a strict tier lets the mistake be seen.
_EXPECTED: Final = (Fault, IndexError, KeyError, ZeroDivisionError, OverflowError, RecursionError, MemoryError)


class PureTier:
    """The generated code of one program. `contended` says whether processes wait for a long call. For tests: an
    `is_eager` one generates at once and never loses patience, an `is_strict` one hides no mistake of its own, and
    `native` may be "always" or "never"."""

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self.names: dict[str, Any] = {"STOP": False, "PAUSE": False}
        self.pures: list[Pure] = []
        self._contended: Callable[[], bool] | None = None
        self.paused: Paused | None = None  # the call that was just given back to the machine unfinished
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

    @property
    def contended(self) -> Callable[[], bool] | None:
        return self._contended

    @contended.setter
    def contended(self, contended: Callable[[], bool] | None) -> None:
        self._contended = contended
        for pure in self.pures:
            pure.forget()

    def entry(self, function: int) -> Pure:
        """Return the function that the machine calls in a function's place."""
        return Pure(self, function)

    def pauses(self, function: int) -> bool:
        """Return whether a call of a function from outside is made to its generator: it loops, and others may wait."""
        return bool(self._contended is not None and self.trees[function][4])

    def make(self, row: Row) -> Callable[..., Any] | None:
        """Return the function for one row of kinds."""
        from lyra.vega.machine.pure.generate import namespace, python_of
        from lyra.vega.machine.pure.kinds import outer_name, row_name

        if not self.is_used:
            self.is_used = True
            self.names.update(namespace())
        try:
            facts = self.solve(row)
            fresh = [row for row in facts if row_name(row) not in self.names]
            outer = row if self.pauses(row[0]) and outer_name(row) not in self.names else None
            python_of(self.trees, facts, fresh, self.names, outer)
        except (GiveUp, RecursionError, SyntaxError, MemoryError):  # nested more than Python's compiler takes
            return None
        self._look_for_numbers(facts)
        function: Callable[..., Any] = self.names[(outer_name if self.pauses(row[0]) else row_name)(row)]
        return function

    def solve(self, row: Row) -> dict[Row, RowFacts]:
        """Return what is known of a row and of all it calls."""
        from lyra.vega.machine.pure.kinds import Solver

        with self._solving:
            self._solver = self._solver or Solver(self.trees)
            return self._solver.solve(row)

    def _look_for_numbers(self, facts: dict[Row, RowFacts]) -> None:
        if self.native == "never":
            return
        from lyra.vega.machine.pure.native import is_installed, numeric_rows, worthwhile

        if not is_installed():
            return
        if self.native == "always":
            self.go_native(facts)
        elif not self.may_go_native:
            self.may_go_native = bool(worthwhile(self.trees, numeric_rows(self.trees, facts)))

    def go_native(self, facts: dict[Row, RowFacts]) -> None:
        """Numeric rows that may run long become machine code, under the names that their Python had."""
        from lyra.vega.machine.pure.kinds import outer_name, row_name, size_of
        from lyra.vega.machine.pure.native import NODES_MAX, Native, numeric_rows, worthwhile

        rows = numeric_rows(self.trees, facts)
        entries = [*rows] if self.native == "always" else worthwhile(self.trees, rows)
        if sum(size_of(self.trees, row[0]) for row in (*rows, *entries)) > NODES_MAX:
            return  # LLVM would take long
        if self.native_functions.keys() >= set(map(row_name, entries)):
            return
        if self.machine_code is None:
            self.machine_code = Native(self)
        for row, (function, generator) in self.machine_code.make(self.trees, facts, [*rows], entries).items():
            self.names[row_name(row)] = self.native_functions[row_name(row)] = function
            if generator is not None:
                self.names[outer_name(row)] = generator
        for pure in self.pures:
            pure.forget()

    def heat(self, pure: Pure) -> None:
        """Have a function that took long, one way or another, go native if it can. In its own thread."""
        try:
            with self._heating:
                for row in [*pure.rows]:
                    if threading.main_thread().is_alive():  # else the process ends and would wait for this
                        self.go_native(self.solve(row))
        except Exception:
            if self.is_strict:
                raise
            self.native = "never"  # an llvmlite that does not work here: Python's code continues
            self.may_go_native = False
        else:
            self.watch.has_become_native(pure)

    def turn(self) -> None:
        """Note that a process begins its turn: no other process has waited for it yet."""
        self.watch.turn += 1
        if self.names["PAUSE"]:
            self.names["PAUSE"] = self.names["STOP"] = False
            self.watch.take_restart()


class Pure:
    """One function's way into generated code. `ticks` counts the looks of the watch that found it at work."""

    __slots__ = (
        "_calls",
        "_function",
        "_names",
        "_patience",
        "_skip",
        "_tier",
        "_variants",
        "is_hot",
        "pauses",
        "rows",
        "ticks",
    )

    def __init__(self, tier: PureTier, function: int) -> None:
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
        self.pauses = tier.pauses(function)
        tier.pures.append(self)

    def __call__(self, arguments: list[Any]) -> Any:
        """Return the value, or MISS."""
        if self._skip:
            self._skip -= 1
            return MISS
        function = self._variants.get(tuple(map(type, arguments)), MISS)
        if function is MISS:
            function = self._generate(arguments)
        if function is None:
            return MISS
        tier = self._tier
        if tier.contended is not None or tier.may_go_native:
            return self._call_watched(function, arguments)
        try:
            return function(*arguments)  # type: ignore[operator]  # it is no MISS by now
        except Exception as error:  # noqa: BLE001 - whatever it was, the machine finds it too
            return self._give_up(error)

    def _call_watched(self, function: Any, arguments: list[Any]) -> Any:
        watch = self._tier.watch
        if self._names["STOP"] and not watch.take_restart():
            return MISS  # this turn is over
        watch.begin(self)
        if self.pauses:
            return self.go_on(function(*arguments), arguments)
        try:
            return function(*arguments)
        except Exception as error:  # noqa: BLE001
            watch.busy = None
            if watch.take_restart():
                return self(arguments)  # again, natively
            return self._give_up(error)
        finally:
            watch.busy = None

    def go_on(self, begun: Iterator[None], arguments: list[Any]) -> Any:
        """Continue a call that may pause from where it is; gives the value, or MISS; then it has given up, or
        paused."""
        watch = self._tier.watch
        watch.busy = self
        try:
            next(begun)
        except StopIteration as end:
            return end.value
        except Exception as error:  # noqa: BLE001
            watch.busy = None
            if watch.take_restart():
                return self(arguments)  # again, natively
            return self._give_up(error)
        finally:
            watch.busy = None
        if watch.take_restart():
            return self(arguments)
        self._tier.paused = Paused(self, begun, arguments)
        return MISS

    def _generate(self, arguments: list[Any]) -> Callable[..., Any] | None:
        self._calls += 1
        tier = self._tier
        if (self._calls < WARM and not tier.is_eager) or len(self._variants) >= VARIANTS_MAX:
            return None
        from lyra.vega.machine.pure.kinds import kind_of_value

        row = (self._function, tuple(map(kind_of_value, arguments)))
        function = tier.make(row)
        self.rows.add(row)
        self._variants[tuple(map(type, arguments))] = function
        return function

    def forget(self) -> None:
        """Other functions have taken the place of those known here."""
        self._variants.clear()
        self.pauses = self._tier.pauses(self._function)

    def _give_up(self, error: Exception) -> Any:
        """Skip the next calls of a function that gave up, twice as many each time; not where its turn was ended."""
        if self._tier.is_strict and not isinstance(error, (GiveUp, *_EXPECTED)):
            raise error
        if not self._names["STOP"] and not self._tier.is_eager:
            self._skip = self._patience
            self._patience = min(self._patience * 2, SKIP_MAX)
        return MISS


class Paused(NamedTuple):
    """A call in the middle of a loop. It belongs to the fiber that made it, and is made again from its beginning where
    the fiber is saved and restored."""

    pure: Pure
    begun: Iterator[None]
    arguments: list[Any]

    def go_on(self) -> Any:
        return self.pure.go_on(self.begun, self.arguments)


class Watch:
    """A thread that looks now and then what is at work: whether it has kept others waiting since the last look, and
    whether it has been found so often that machine code is worth its price."""

    def __init__(self, tier: PureTier) -> None:
        self._tier = tier
        self.turn = 0
        self.busy: Pure | None = None
        self._calls = 0
        self._ready: tuple[Pure, int] | None = None  # native since this call
        self._is_restart = False  # `STOP` is meant for a call that could continue natively
        self.is_awake = False

    def begin(self, pure: Pure) -> None:
        self._calls += 1
        self.busy = pure
        if not self.is_awake:
            self.is_awake = True
            threading.Thread(target=self._look, name="vega watch", daemon=True).start()

    def take_restart(self) -> bool:
        """Return whether `STOP` asked for nothing but to begin again, natively."""
        if not self._is_restart:
            return False
        self._is_restart = self._tier.names["STOP"] = self._tier.names["PAUSE"] = False
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
        self.is_awake = False

    def _weigh(self, pure: Pure, *, is_long: bool) -> None:
        tier = self._tier
        pure.ticks += 1
        if pure.ticks >= HOT_TICKS and tier.may_go_native and not pure.is_hot:
            pure.is_hot = True
            # Not a daemon: nothing may end the process in the middle of LLVM.
            threading.Thread(target=tier.heat, args=(pure,), name="vega native").start()
        if self._ready == (pure, self._calls):
            self._ready = None
            self._is_restart = tier.names["STOP"] = tier.names["PAUSE"] = True
        elif is_long and tier.contended is not None and tier.contended():
            self._is_restart = False
            tier.names["STOP"] = tier.names["PAUSE"] or not pure.pauses  # at once, or where it does not pause by itself
            tier.names["PAUSE"] = True
        if tier.machine_code is not None:
            tier.machine_code.flag.value = 1
