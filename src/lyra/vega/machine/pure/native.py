"""Machine code for numbers alone, by llvmlite where that is installed.

A row is numeric when its slots, its result and all it computes are int, float or bool, and it calls numeric rows only.
Numeric rows that loop or call themselves take the place of their Python in the tier's namespace, so that every caller,
generated or not, gets the quicker one. Ints are checked by the processor's overflow flag; whatever Python's code gives
up on, this does too, and recursion deeper than a counter allows besides. Loops and calls poll a flag: the watch sets it
now and then, and a function of Python's own says whether to continue, so that signals and other processes are served.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from lyra.vega.bytecode.pure_shapes import nodes
from lyra.vega.machine.pure import GiveUp
from lyra.vega.machine.pure.kinds import Look, Row, RowFacts, Trees, choose_row

if TYPE_CHECKING:
    from lyra.vega.machine.pure.switch import PureTier


KINDS: Final = frozenset({"int", "float", "bool"})
SLOTS_MAX: Final = 64  # of a function: its frame stays small
NODES_MAX: Final = 800  # of all rows that LLVM gets at once: some tenths of a second of its time
STACK_BYTES_LEFT: Final = 128 * 1024  # below machine code, for what Python does when it is asked whether to continue
GO_ON, STOP, PAUSE = 1, 2, 3  # nothing else means continue, so that a failure does not
LEFT: Final = 2  # what machine code gives that wants to be entered again
EXACT: Final = 1 << 53  # ints up to here are floats without a loss
_NO_STACK: Final = 1 << 62
_NUMBERS: Final = frozenset({"int", "float"})
_FIT: Final = frozenset(
    {
        *("set", "if", "while", "return", "do", "break", "continue", "give up"),
        *("constant", "slot", "binary", "not", "negate", "call"),
    }
)
_C_TYPES: Final[dict[str, Any]] = {"int": ctypes.c_int64, "float": ctypes.c_double, "bool": ctypes.c_bool}


@cache
def is_installed() -> bool:
    return find_spec("llvmlite") is not None


def numeric_rows(trees: Trees, facts: dict[Row, RowFacts]) -> dict[Row, set[Row]]:
    """Return the numeric rows, each with those it calls."""
    numeric: dict[Row, set[Row]] = {}
    for row in facts:
        calls = _calls(trees, row, facts)
        if calls is not None:
            numeric[row] = calls
    while True:
        unfit = [row for row, calls in numeric.items() if not calls <= numeric.keys()]
        for row in unfit:
            del numeric[row]
        if not unfit:
            return numeric


def worthwhile(trees: Trees, rows: dict[Row, set[Row]]) -> list[Row]:
    """Return the rows that may run long, because they loop or call themselves."""
    return [row for row in rows if trees[row[0]][4] or _reaches(rows, row, row)]


def _reaches(rows: dict[Row, set[Row]], start: Row, end: Row) -> bool:
    seen: set[Row] = set()
    todo = [*rows[start]]
    while todo:
        row = todo.pop()
        if row == end:
            return True
        if row not in seen:
            seen.add(row)
            todo.extend(rows[row])
    return False


def _calls(trees: Trees, row: Row, facts: dict[Row, RowFacts]) -> set[Row] | None:
    """Return the rows that a row calls; None if it computes more than numbers."""
    known = facts[row]
    if known.result not in KINDS or len(known.slots) > SLOTS_MAX or not KINDS.issuperset(known.slots):
        return None
    look = Look.again(trees, row, facts)
    calls: set[Row] = set()
    for node in nodes(trees[row[0]][2]):
        if node[0] not in _FIT or not _is_numeric(look, node):
            return None
        if node[0] == "call":
            calls.add(choose_row(node[1], tuple(map(look.kind, node[2])), look.results))
    return calls


def _is_numeric(look: Look, node: list[Any]) -> bool:
    what = node[0]
    if what in ("if", "while", "not"):
        return look.kind(node[1]) == "bool"
    if what == "constant":
        return look.kind(node) in KINDS
    if what == "negate":
        return look.kind(node[1]) in _NUMBERS
    if what in ("set", "return", "do"):
        return look.kind(node[-1]) in KINDS
    if what == "binary":
        return _is_numeric_pair(node, look.kind(node[2]), look.kind(node[3]))
    return True


def _is_numeric_pair(node: list[Any], left: str, right: str) -> bool:
    operator = node[1]
    if operator in ("&&", "||"):
        return left == right == "bool"
    if operator == "%":
        return left == right == "int"
    if operator in ("+", "-", "*", "/"):
        return left in _NUMBERS and right in _NUMBERS
    if left == right:
        return left in _NUMBERS or operator in ("==", "!=")
    # An int and a float are compared as they are: only an int that is a float without a loss may become one.
    operand = node[2 if left == "int" else 3]
    return bool({left, right} == _NUMBERS and operand[0] == "constant" and -EXACT <= operand[1] <= EXACT)


class _Stack(threading.local):
    """How far down machine code may continue the stack of each thread."""

    def __init__(self) -> None:
        self.floor = _stack_end() + STACK_BYTES_LEFT


def _stack_end() -> int:
    """Return the lowest address of this thread's stack, as the C library tells it; where it does not, nothing is known
    to be left, and all calls are Python's."""
    attributes, place, size = ctypes.create_string_buffer(256), ctypes.c_void_p(), ctypes.c_size_t()
    try:
        library = ctypes.CDLL(None)
        library.pthread_self.restype = ctypes.c_void_p
        if library.pthread_getattr_np(ctypes.c_void_p(library.pthread_self()), attributes):
            return _NO_STACK
        library.pthread_attr_getstack(attributes, ctypes.byref(place), ctypes.byref(size))
        library.pthread_attr_destroy(attributes)
    except (AttributeError, OSError):  # another system's C library
        return _NO_STACK
    return place.value or _NO_STACK


_STACK: Final = _Stack()


class Native:
    """The machine code of one program."""

    def __init__(self, tier: PureTier) -> None:
        self._tier = tier
        self._engines: list[Any] = []
        self.flag = ctypes.c_int8(0)
        self._error: BaseException | None = None
        answers = self._answers()
        next(answers)
        self._ask = ctypes.CFUNCTYPE(ctypes.c_int8)(answers.__next__)

    def _answers(self) -> Iterator[int]:
        """Yield whether to continue, once for each time that machine code asks. Signals are handled here, in the middle
        of it: what they raise is kept until the machine code has ended. A generator, because Python handles signals
        first thing in a function, before any `try` of its own; here that is inside of one."""
        answer = GO_ON
        while True:
            try:
                while True:
                    yield answer
                    names = self._tier.names
                    answer = STOP if names["STOP"] else PAUSE if names["PAUSE"] else GO_ON
                    self.flag.value = answer == PAUSE  # not every function can pause: ask again until one does
            except GeneratorExit:
                return
            except BaseException as error:  # noqa: BLE001
                self._error = error
                answer = STOP

    def make(
        self, trees: Trees, facts: dict[Row, RowFacts], rows: list[Row], entries: list[Row]
    ) -> dict[Row, tuple[Any, Any]]:
        """Python functions that run these rows; they raise GiveUp like all generated code. Of rows that loop there are
        generators besides, which pause."""
        from lyra.vega.machine.pure.llvm import Polled, assemble

        ask = ctypes.cast(self._ask, ctypes.c_void_p).value
        polled = Polled(ctypes.addressof(self.flag), ask or 0, GO_ON, PAUSE)
        engine, addresses = assemble(trees, facts, rows, entries, polled)
        self._engines.append(engine)
        return {
            row: (self._function(plain, row, facts[row]), self._generator(outer, row, facts[row]) if outer else None)
            for row, (plain, outer) in addresses.items()
        }

    def _generator(self, address: int, row: Row, facts: RowFacts) -> Callable[..., Iterator[None]]:
        place, frame_of = _C_TYPES[facts.result], ctypes.c_int64 * (len(facts.slots) + 1)
        kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, *map(_C_TYPES.__getitem__, row[1]))
        code = ctypes.CFUNCTYPE(ctypes.c_int8, *kinds)(address)
        address_of, stack = ctypes.addressof, _STACK

        def run(*arguments: Any) -> Any:
            value, frame = place(), frame_of()
            while True:
                end = code(address_of(value), stack.floor, address_of(frame), *arguments)
                if not end:
                    return value.value
                if end != LEFT or self._error is not None:
                    raise self._failure()
                yield

        return run

    def _function(self, address: int, row: Row, facts: RowFacts) -> Callable[..., Any]:
        place = _C_TYPES[facts.result]
        kinds_in_c = (ctypes.c_void_p, ctypes.c_int64, *map(_C_TYPES.__getitem__, row[1]))
        code = ctypes.CFUNCTYPE(ctypes.c_int8, *kinds_in_c)(address)
        address_of, stack = ctypes.addressof, _STACK

        def run(*arguments: Any) -> Any:
            value = place()
            if code(address_of(value), stack.floor, *arguments):
                raise self._failure()
            return value.value

        return run

    def _failure(self) -> BaseException:
        error, self._error = self._error, None
        return GiveUp() if error is None else error
