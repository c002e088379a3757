"""Which kinds a pure function's variables have, given the kinds of its arguments.

A kind is a word: `int float str bool null list map any`, and `never` for what nothing is known of yet. Each function is
looked at for each row of kinds it is called with; results of calls are found together, from `never` upwards, until
nothing changes. What is in a list that the function made is known by its slot, because no other code changes it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from lyra.vega.bytecode.pure_shapes import FRESH, nodes
from lyra.vega.machine.pure import GiveUp
from lyra.vega.stdlib.table import GLOBALS, LIBRARY

Kinds = tuple[str, ...]
Row = tuple[int, Kinds]  # a function and the kinds of its arguments
Trees = dict[int, list[Any]]

_OF_TYPE: Final[dict[type, str]] = {
    int: "int",
    float: "float",
    str: "str",
    bool: "bool",
    type(None): "null",
    list: "list",
    dict: "map",
}
_NUMBERS: Final = frozenset({"int", "float"})
_COMPARED: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "&&", "||"})
_ITEMS: Final = {"list::range": "int", "str::split": "str", "str::lines": "str", "regex::find_all": "str"}
_ROWS_MAX: Final = 64  # functions and kinds looked at together; beyond it arguments count as `any`
_NODES_MAX: Final = 3_000  # of all rows; when there would be more, there are fewer rows
_FUNCTION_NODES_MAX: Final = 1_500  # of one function: Python is slow with larger frames than this makes
_FUNCTIONS_NODES_MAX: Final = 6_000  # of a function and all it calls; what is larger is the machine's


def row_name(row: Row) -> str:
    return f"f{row[0]}_{'_'.join(row[1])}"


def outer_name(row: Row) -> str:
    """Return the name of the function that the machine calls for a row, where that is not the one that generated code
    calls."""
    return f"outer_{row_name(row)}"


def kind_of_value(value: Any) -> str:
    return _OF_TYPE.get(type(value), "any")


def join_kinds(left: str, right: str) -> str:
    if left == right or right == "never":
        return left
    return right if left == "never" else "any"


class RowFacts(NamedTuple):
    """What is known of one row: kinds of its slots and of what is in their lists, its result, the slots that are never
    negative, the slots that are set but once or never (parameters)."""

    slots: list[str]
    items: list[str]
    result: str
    positive: frozenset[int]
    steady: frozenset[int]


class Results(dict[Row, str]):
    """What rows give, as far as that is known, and how many of them there may be."""

    most = 0


def size_of(trees: Trees, function: int) -> int:
    """Return the nodes of a function."""
    return sum(1 for _ in nodes(trees[function][2]))


def find_reachable(trees: Trees, function: int) -> set[int]:
    """Return a function and all that it calls, those that they call, and so on."""
    functions, todo = {function}, [function]
    while todo:
        fresh = set(trees[todo.pop()][3]) - functions
        functions |= fresh
        todo += fresh
    return functions


class Solver:
    """The facts of a program's rows, each found once."""

    def __init__(self, trees: Trees) -> None:
        self._trees = trees
        self._known: dict[Row, RowFacts] = {}
        self._calls: dict[Row, set[Row]] = {}
        self._sizes: dict[int, int] = {}

    def solve(self, root: Row) -> dict[Row, RowFacts]:
        """Return the facts of a row and of all it calls. What would take long is given up: the caller waits for
        this."""
        if root not in self._known:
            self._find(root)
        facts, todo = {root: self._known[root]}, [root]
        while todo:
            for row in self._calls[todo.pop()]:
                if row not in facts:
                    facts[row] = self._known[row]
                    todo.append(row)
        return facts

    def _find(self, root: Row) -> None:
        """Look at each row, and again when something that it calls turns out to give something else."""
        results = self._results(root)
        facts: dict[Row, RowFacts] = {}
        calls: dict[Row, set[Row]] = {}
        callers: dict[Row, set[Row]] = {}
        todo = {root: None}
        while todo:
            row, _ = todo.popitem()
            look = Look(self._trees, row, results)
            facts[row], calls[row] = look.facts(), look.calls
            for other in look.calls:
                callers.setdefault(other, set()).add(row)
            result = join_kinds(results[row], facts[row].result)
            if result != results[row]:
                results[row] = result
                todo.update(dict.fromkeys(callers.get(row, ())))
            todo.update(dict.fromkeys(look.calls - facts.keys() - self._known.keys()))  # the last are first
        self._known.update(facts)
        self._calls.update(calls)

    def _size(self, function: int) -> int:
        if function not in self._sizes:
            self._sizes[function] = size_of(self._trees, function)
        return self._sizes[function]

    def _results(self, root: Row) -> Results:
        functions = find_reachable(self._trees, root[0])
        sizes = [self._size(function) for function in functions]
        size = sum(sizes)
        if size > _FUNCTIONS_NODES_MAX or max(sizes) > _FUNCTION_NODES_MAX:
            raise GiveUp
        results = Results({row: facts.result for row, facts in self._known.items()})
        results.most = len(results) + min(_ROWS_MAX, max(1, _NODES_MAX // size) * len(functions))
        results[root] = "never"
        return results


def choose_row(row_function: int, kinds: Kinds, results: Results) -> Row:
    """Return the row that a call goes to; when there are too many, the one for anything."""
    row = (row_function, tuple("any" if kind == "never" else kind for kind in kinds))
    if row not in results and len(results) >= results.most:
        return (row_function, ("any",) * len(kinds))
    return row


class Look:
    def __init__(self, trees: Trees, row: Row, results: Results) -> None:
        function, kinds = row
        self.parameters, count, self.body = trees[function][:3]
        self.results = results
        self.slots: list[str] = [*kinds, *["never"] * (count - len(kinds))]
        self.items: list[str] = ["any" if kind in ("list", "any") else "never" for kind in kinds]
        self.items += ["never"] * (count - len(kinds))
        self.result = "never"
        self.calls: set[Row] = set()
        self.sets: dict[int, list[list[Any]]] = {}  # every value of a slot; under `~slot`, of what is in its list

    @classmethod
    def again(cls, trees: Trees, row: Row, facts: dict[Row, RowFacts]) -> Look:
        """Return a look at a row when all is known: `kind` gives what was found."""
        look = cls(trees, row, Results({other: known.result for other, known in facts.items()}))
        look.slots, look.items = facts[row].slots[:], facts[row].items[:]
        return look

    def facts(self) -> RowFacts:
        while True:
            before = (self.slots[:], self.items[:], self.result)
            self.sets, self.calls = {}, set()
            falls = self.block(self.body)
            if falls:
                self.result = join_kinds(self.result, "null")
            if before == (self.slots, self.items, self.result):
                break
        set_again = {slot for slot in self.sets if slot >= 0}
        steady = frozenset(set(range(len(self.slots))) - set_again)
        return RowFacts(self.slots, self.items, self.result, self._positive(), steady)

    # ------------------------------------------------------------ statements

    def block(self, statements: list[Any]) -> bool:
        """Return whether control continues after it."""
        falls = True
        for statement in statements:
            falls = self.statement(statement) and falls
        return falls

    def statement(self, node: list[Any]) -> bool:
        what = node[0]
        if what == "set":
            self.set(node[1], node[2])
        elif what == "store":
            self.kind(node[2])
            self.put(node[1], node[3])
        elif what == "if":
            self.kind(node[1])
            then, otherwise = self.block(node[2]), self.block(node[3])
            return then or otherwise
        elif what == "while":
            self.kind(node[1])
            self.block(node[2])
            self.block(node[3])
            return node[1] != ["constant", True] or _breaks(node[2])
        elif what == "each":
            self.each(node)
        elif what == "return":
            self.result = join_kinds(self.result, self.kind(node[1]))
            return False
        elif what == "do":
            self.kind(node[1])
        return what not in ("break", "continue", "give up")

    def set(self, slot: int, value: list[Any]) -> None:
        self.sets.setdefault(slot, []).append(value)
        self.sets.setdefault(~slot, []).append(["items", value])
        self.slots[slot] = join_kinds(self.slots[slot], self.kind(value))
        self.items[slot] = join_kinds(self.items[slot], self.items_of(value))
        if value[0] in ("slot", "push"):  # two names of one list
            self.items[value[1]] = join_kinds(self.items[value[1]], self.items[slot])
            self.sets.setdefault(~value[1], []).append(["items", ["slot", slot]])

    def put(self, slot: int, value: list[Any]) -> None:
        self.items[slot] = join_kinds(self.items[slot], self.kind(value))
        self.sets.setdefault(~slot, []).append(value)

    def each(self, node: list[Any]) -> None:
        _, slot, source, body = node
        over = self.kind(source)
        item = {"str": "str", "list": self.items_of(source)}.get(over, "any" if over != "never" else "never")
        self.sets.setdefault(slot, []).append(["index", source, ["constant", 0]])
        self.slots[slot] = join_kinds(self.slots[slot], item)
        self.items[slot] = "any"
        self.block(body)

    # ------------------------------------------------------------ values

    def kind(self, node: list[Any]) -> str:
        what = node[0]
        if what == "constant":
            return kind_of_value(node[1])
        if what == "slot":
            return self.kind_of_slot(node[1])
        if what == "binary":
            return binary_kind(node[1], self.kind(node[2]), self.kind(node[3]))
        if what == "negate":
            kind = self.kind(node[1])
            return kind if kind in _NUMBERS or kind == "never" else "any"
        if what == "push":
            self.put(node[1], node[2])
            return self.kind_of_slot(node[1])
        if what == "index":
            whole, index = self.kind(node[1]), self.kind(node[2])
            if whole == "str":
                return "str"
            if whole == "list" and index == "int":
                return self.items_of(node[1])
            return "never" if whole == "never" else "any"
        return self._rarer(what, node)

    def kind_of_slot(self, slot: int) -> str:
        return self.slots[slot]

    def _rarer(self, what: str, node: list[Any]) -> str:
        if what == "not":
            self.kind(node[1])
            return "bool"
        if what == "length":
            self.kind(node[1])
            return "int"
        if what == "list":
            for item in node[1]:
                self.kind(item)
            return "list"
        if what == "map":
            for key, value in node[1]:
                self.kind(key)
                self.kind(value)
            return "map"
        if what == "call":
            return self.call(node)
        if what == "library":
            return self.library(node)
        if what == "join":
            for part in node[1]:
                self.kind(part)
            return "str"
        self.kind(node[2])  # a variant
        return "any"

    def call(self, node: list[Any]) -> str:
        kinds = tuple(self.kind(value) for value in node[2])
        row = choose_row(node[1], kinds, self.results)
        if "never" in kinds and row not in self.results:
            return "never"  # no row before its arguments are known; those that never are never come to the call
        self.calls.add(row)
        return self.results.setdefault(row, "never")

    def library(self, node: list[Any]) -> str:
        for value in node[2]:
            self.kind(value)
        full = node[1]
        if full in ("list::insert",):
            self.put(node[2][0][1], node[2][2])
        module, _, name = full.rpartition("::")
        result = (LIBRARY.get(module, {}) if module else GLOBALS)[name].result
        return result if result in ("int", "float", "str", "bool", "list", "map") else "any"

    def items_of(self, node: list[Any]) -> str:
        """Return the kind of what is in the list that a value is."""
        what = node[0]
        if what in ("slot", "push"):
            slot: int = node[1]
            return self.items[slot]
        if what == "list":
            kind = "never"
            for item in node[1]:
                kind = join_kinds(kind, self.kind(item))
            return kind
        if what == "binary" and node[1] == "+":
            return join_kinds(self.items_of(node[2]), self.items_of(node[3]))
        if what == "library" and node[1] in FRESH:
            return _ITEMS.get(node[1], "any")
        return "never" if what in ("constant", "length", "join", "binary", "not", "negate") else "any"

    # ------------------------------------------------------------ signs

    def _positive(self) -> frozenset[int]:
        """Return the int slots that are never below zero (under `~slot`: what is in its list): supposed of all that are
        set here, and dropped where it fails."""
        candidates = {slot for slot in self.sets if self._is_int(slot)}
        while True:
            kept = {slot for slot in candidates if all(is_positive(value, candidates) for value in self.sets[slot])}
            if kept == candidates:
                return frozenset(candidates)
            candidates = kept

    def _is_int(self, slot: int) -> bool:
        if slot < 0:
            return ~slot >= self.parameters and self.slots[~slot] == "list" and self.items[~slot] == "int"
        return slot >= self.parameters and self.slots[slot] == "int"


def is_positive(node: list[Any], slots: set[int] | frozenset[int]) -> bool:
    """Return whether an int value cannot be below zero."""
    what = node[0]
    if what == "constant":
        return type(node[1]) is int and node[1] >= 0
    if what == "slot":
        return node[1] in slots
    if what == "length":
        return True
    if what == "index":
        return node[1][0] == "slot" and ~node[1][1] in slots
    if what == "items":  # all that is in this list
        of = node[1]
        if of[0] == "list":
            return all(is_positive(item, slots) for item in of[1])
        return of[0] in ("slot", "push") and ~of[1] in slots
    if what == "binary":
        if node[1] in ("+", "*", "/"):
            return is_positive(node[2], slots) and is_positive(node[3], slots)
        return node[1] == "%" and is_positive(node[2], slots)
    return False


def binary_kind(operator: str, left: str, right: str) -> str:
    if operator in _COMPARED:
        return "bool"
    if left == "never" or right == "never":
        return "never"
    if operator == "+" and "str" in (left, right):
        return "str"
    if left in _NUMBERS and right in _NUMBERS:
        return "int" if left == right == "int" else "float"
    if operator == "+" and left == right == "list":
        return "list"
    return "any"


def _breaks(statements: list[Any]) -> bool:
    """Return whether a `break` in these leaves the loop around them."""
    return any(
        node[0] == "break" or (node[0] == "if" and (_breaks(node[2]) or _breaks(node[3]))) for node in statements
    )
