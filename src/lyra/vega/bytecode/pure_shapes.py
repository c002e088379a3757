"""What a tree may look like: one row for each kind of statement and value, and the check of trees that come in a file.

A tree is taken from a `.vgb` only when every node has its row's shape, slots and functions exist, library functions are
pure ones with a fitting count, nothing is nested or repeated without bound, and the function changes nothing but what
it made itself. What passes can do no more than the register code beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from lyra.core.limits import VEGA_REGISTERS_MAX, VEGA_TREE_DEPTH_MAX, VEGA_TREE_NODES_MAX
from lyra.vega.stdlib.natives import native
from lyra.vega.stdlib.table import GLOBALS, LIBRARY, LibraryEntry
from lyra.vega.values.values import INT_MAX, INT_MIN

if TYPE_CHECKING:
    from lyra.vega.bytecode.program import Function, Program


STATEMENTS: Final[dict[str, tuple[str, ...]]] = {
    "set": ("slot", "value"),
    "store": ("slot", "value", "value"),
    "if": ("value", "block", "block"),
    "while": ("value", "loop", "step"),
    "each": ("slot", "value", "loop"),
    "return": ("value",),
    "do": ("value",),
    "break": (),
    "continue": (),
    "give up": (),
}
VALUES: Final[dict[str, tuple[str, ...]]] = {
    "constant": ("constant",),
    "slot": ("slot",),
    "binary": ("operator", "value", "value"),
    "not": ("value",),
    "negate": ("value",),
    "list": ("values",),
    "map": ("pairs",),
    "index": ("value", "value"),
    "length": ("value",),
    "join": ("values",),
    "call": ("callee", "values"),
    "library": ("library", "values"),
    "push": ("slot", "value"),
    "variant": ("flag", "value"),
}
OPERATORS: Final = frozenset({"+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||"})
CONSTANTS: Final = frozenset({type(None), bool, int, float, str})

# Library functions that change their first argument, and those that give their own list or map.
CHANGING: Final = frozenset({"list::pop", "list::insert", "list::remove", "map::set", "map::remove"})
FRESH: Final = frozenset(
    {
        *("list::reverse", "list::slice", "list::concat", "list::range", "list::unique", "list::flatten", "list::zip"),
        *("str::split", "str::lines", "map::keys", "map::values", "map::entries", "map::merge", "regex::find_all"),
    }
)
LEFT_OUT: Final = frozenset({"str::builder", "assert", "list::push"})  # the last has its own node


def library_row(full: str) -> LibraryEntry | None:
    module, _, name = full.rpartition("::")
    return (LIBRARY.get(module, {}) if module else GLOBALS).get(name)


def nodes(body: list[Any]) -> Iterator[list[Any]]:
    """Every statement and value of a checked tree."""
    todo: list[list[Any]] = [*body]
    while todo:
        node = todo.pop()
        yield node
        for kind, part in zip(STATEMENTS.get(node[0]) or VALUES.get(node[0], ()), node[1:], strict=True):
            if kind == "value":
                todo.append(part)
            elif kind in ("block", "loop", "step", "values"):
                todo.extend(part)
            elif kind == "pairs":
                todo.extend(item for pair in part for item in pair)


def changes_only_its_own(parameters: int, body: list[Any]) -> bool:
    """Check mutations: a list or map is changed only through a slot that never holds anything but what the function
    made itself."""
    changed: set[int] = set()
    borrowed = set(range(parameters))  # slots that may hold what others hold too
    copies: list[tuple[int, int]] = []  # (slot, the slot it was set from)
    for node in nodes(body):
        what = node[0]
        if what == "set":
            value = node[2]
            if value[0] in ("slot", "push"):
                copies.append((node[1], value[1]))
            elif not _is_own(value):
                borrowed.add(node[1])
        elif what == "each":
            borrowed.add(node[1])
        elif what in ("store", "push"):
            changed.add(node[1])
        elif what == "library" and node[1] in CHANGING:
            changed.add(node[2][0][1])
    grown = True
    while grown:
        reached = {slot for slot, source in copies if source in borrowed} - borrowed
        borrowed |= reached
        grown = bool(reached)
    return not changed & borrowed


def _is_own(value: list[Any]) -> bool:
    """Return whether no other variable holds the value: it is new, or it cannot be changed."""
    what = value[0]
    if what in ("index", "call", "variant"):
        return False
    if what != "library" or value[1] in FRESH:
        return True
    row = library_row(value[1])
    return row is not None and row.result in ("int", "float", "str", "bool", "duration")


class _Bad(Exception):
    """Why a tree cannot be used."""


def complaint(program: Program, function: Function) -> str:
    """Return why a function's tree cannot be used; empty when it can."""
    try:
        _Check(program, function).run()
    except _Bad as bad:
        return str(bad)
    return ""


class _Check:
    def __init__(self, program: Program, function: Function) -> None:
        self.program = program
        self.function = function
        self.slots = 0
        self.depth = 0
        self.loops = 0
        self.left = VEGA_TREE_NODES_MAX
        self.calls: set[int] = set()

    def run(self) -> None:
        function, tree = self.function, self.function.tree
        if type(tree) is not list or list(map(type, tree)) != [int, int, list, list, bool]:
            raise _Bad("its tree is none")
        parameters, self.slots, body, calls, _ = tree
        if parameters != len(function.parameters) or function.required != parameters or function.captures:
            raise _Bad("its tree has other parameters")
        if not parameters <= self.slots <= VEGA_REGISTERS_MAX:
            raise _Bad("its tree has no such slots")
        self.block(body)
        if calls != sorted(self.calls):
            raise _Bad("its tree calls other functions than it says")
        if not changes_only_its_own(parameters, body):
            raise _Bad("its tree changes what its caller sees")

    def node(self, node: Any, rows: dict[str, tuple[str, ...]]) -> None:
        if type(node) is not list or not node or type(node[0]) is not str:
            raise _Bad("its tree has a node without a name")
        row = rows.get(node[0])
        if row is None or len(node) != len(row) + 1:
            raise _Bad(f"its tree has no {node[0]!r} like that")
        self.left -= 1
        self.depth += 1
        if self.left < 0 or self.depth > VEGA_TREE_DEPTH_MAX:
            raise _Bad("its tree is too large")
        if not self.loops and node[0] in ("break", "continue"):
            raise _Bad("its tree leaves a loop where none is")
        for kind, part in zip(row, node[1:], strict=True):
            getattr(self, kind)(part)
        if node[0] == "call":
            self.call(node)
        elif node[0] == "library":
            self.library_call(node)
        self.depth -= 1

    # ------------------------------------------------------------ parts, by their kind

    def value(self, part: Any) -> None:
        self.node(part, VALUES)

    def values(self, part: Any) -> None:
        for item in self.require_list(part):
            self.value(item)

    def pairs(self, part: Any) -> None:
        for item in self.require_list(part):
            if len(self.require_list(item)) != 2:
                raise _Bad("its tree has a key without a value")
            self.values(item)

    def block(self, part: Any) -> None:
        for item in self.require_list(part):
            self.node(item, STATEMENTS)

    def loop(self, part: Any) -> None:
        self.loops += 1
        self.block(part)
        self.loops -= 1

    def step(self, part: Any) -> None:
        loops, self.loops = self.loops, 0
        self.block(part)
        self.loops = loops

    def require_list(self, part: Any) -> list[Any]:
        if type(part) is not list:
            raise _Bad("its tree has no list where one belongs")
        return part

    def slot(self, part: Any) -> None:
        if type(part) is not int or not 0 <= part < self.slots:
            raise _Bad("its tree has no such slot")

    def flag(self, part: Any) -> None:
        if type(part) is not bool:
            raise _Bad("its tree has no such variant")

    def constant(self, part: Any) -> None:
        if type(part) not in CONSTANTS or (type(part) is int and not INT_MIN <= part <= INT_MAX):
            raise _Bad("its tree has a constant of an unknown kind")

    def operator(self, part: Any) -> None:
        if type(part) is not str or part not in OPERATORS:
            raise _Bad("its tree has an unknown operator")

    def callee(self, part: Any) -> None:
        if type(part) is not int or not 0 <= part < len(self.program.functions):
            raise _Bad("its tree calls a function that is not there")

    def library(self, part: Any) -> None:
        row = library_row(part) if type(part) is str else None
        if row is None or row.how != "pure" or native(part) is None or part in LEFT_OUT:
            raise _Bad("its tree calls what the library does not have, or what is not pure")

    def call(self, node: list[Any]) -> None:
        called = self.program.functions[node[1]]
        if len(node[2]) != len(called.parameters):
            raise _Bad("its tree calls a function with another number of arguments")
        self.calls.add(node[1])

    def library_call(self, node: list[Any]) -> None:
        row = library_row(node[1])
        assert row is not None
        if not row.required <= len(node[2]) <= row.most:
            raise _Bad(f"its tree calls {node[1]} with another number of arguments")
        if node[1] in CHANGING and node[2][0][0] != "slot":
            raise _Bad("its tree changes what has no name")
