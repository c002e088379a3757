"""Names and what they represent, while a module is checked.

A `Binding` is one name: a variable, a constant, a function and so on, with what is known of it. `ModuleCheck` is the
state of one check: the chain of scopes and the list of remarks. The functions of the other checker modules work on it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from lyra.core.checking.check import did_you_mean
from lyra.core.limits import VEGA_PROBLEMS_MAX
from lyra.vega.checker.types import ANY, ValueKind, accepts, an, kind_from_type, kind_from_word, kind_of_literal
from lyra.vega.stdlib.table import GLOBALS, LIBRARY, LibraryEntry
from lyra.vega.syntax.ast import Argument, Import, ListLiteral, Literal, MapLiteral, Parameter, SyntaxNode, Type
from lyra.vega.syntax.source import Diagnostic, Source

# What a message calls each role.
ROLES: Final[dict[str, str]] = {
    "variable": "a variable",
    "constant": "a constant",
    "function": "a function",
    "tool": "a tool",
    "agent": "an agent",
    "supervisor": "a supervisor",
    "import": "an import",
}


_WORD: Final = re.compile(r"\w+")
_KNOWN_MAX: Final = 2_000  # names that a wrong one is compared with


class Signature(msgspec.Struct, frozen=True):
    """How something is called: its parameters with their kinds, how many must be given, what it gives."""

    parameters: tuple[tuple[str, ValueKind], ...]
    optional: frozenset[str]
    result: ValueKind
    is_library: bool = False


class Binding(msgspec.Struct):
    role: str
    kind: ValueKind = ANY
    signature: Signature | None = None
    is_declared: bool = False  # its kind was written, so it holds for assignments too
    members: dict[str, Binding] | None = None  # of an import; None where the file was not read


class CheckScope:
    """One block's names."""

    __slots__ = ("names", "parent")

    def __init__(self, parent: CheckScope | None = None) -> None:
        self.parent = parent
        self.names: dict[str, Binding] = {}

    def find(self, name: str) -> Binding | None:
        scope: CheckScope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def all_names(self) -> set[str]:
        names: set[str] = set()
        scope: CheckScope | None = self
        while scope is not None:
            names.update(scope.names)
            scope = scope.parent
        return names


class CheckContext(msgspec.Struct, frozen=True):
    """What surrounds a statement: a function (and what it gives), a loop, a `defer`, a test, a `try` that catches."""

    in_function: bool = False
    in_loop: bool = False
    in_defer: bool = False
    in_test: bool = False
    in_try: bool = False
    result: ValueKind = ANY


KindRule: TypeAlias = "Callable[[ModuleCheck, Any], ValueKind]"  # checks one kind of expression


class CheckRules(NamedTuple):
    """How each kind of expression is checked, and a block: what expressions and statements reach each other through."""

    kinds: Mapping[type, KindRule]
    block: Callable[..., None]  # (check, block, scope of its own)


class ModuleCheck:
    """The state of checking one module: its scopes, what surrounds the present statement, the remarks so far."""

    own_tools: frozenset[str] = frozenset()  # names of the tools of the agent that is being checked
    has_foreign_tools = False  # some import brings tools whose names are only known when the program runs
    has_foreign_errors = False  # some import is a node, which raises errors that are named by its codes
    assigned: frozenset[str] = frozenset()  # names that some statement assigns to: the kind of their value may change
    changed: frozenset[str] = frozenset()  # names of which some statement changes a part
    thrown: frozenset[str] = frozenset()  # names of the errors that some statement throws

    def __init__(
        self,
        source: Source,
        host_names: Collection[str],
        rules: CheckRules,
        resolve_import: Callable[[Import], Binding],
    ) -> None:
        self.source = source
        self.kind_rules, self.block_rule = rules
        self.resolve_import = resolve_import  # what an import's name represents
        self.problems: list[Diagnostic] = []
        host = CheckScope()
        host.names.update((name, Binding("function", ValueKind("function"))) for name in host_names)
        self.top = CheckScope(host)
        self.scope = self.top
        self.context = CheckContext()
        self.agents: set[str] = set()

    # ---------------------------------------------------------------- remarks

    def error(self, offset: int, end: int, message: str, hint: str | None = None) -> None:
        self.problems.append(self.source.problem(offset, end, message, hint=hint))

    def error_on(self, node: SyntaxNode, message: str, hint: str | None = None) -> None:
        self.error(node.at, node.end, message, hint)

    def fault(self, node: SyntaxNode, message: str, hint: str | None = None) -> None:
        """Report something that fails when it runs: an error, or a warning inside a `try` that may be meant to catch
        it."""
        severity = "warning" if self.context.in_try else "error"
        self.problems.append(self.source.problem(node.at, node.end, message, hint=hint, severity=severity))

    def warn(self, offset: int, end: int, message: str, hint: str | None = None) -> None:
        self.problems.append(self.source.problem(offset, end, message, hint=hint, severity="warning"))

    def name_place(self, node: SyntaxNode, name: str) -> tuple[int, int]:
        """Return the place of a declaration's own name: behind its keyword."""
        words = [word.start() for word in _WORD.finditer(self.source.text, node.at, node.end) if word[0] == name]
        offset = words[-1] if words and isinstance(node, Import) else words[0] if words else node.at
        return offset, offset + len(name)

    # ---------------------------------------------------------------- names

    def declare(self, node: SyntaxNode, name: str, binding: Binding) -> None:
        """Declare a new name in this scope. A `let` may follow a `let`; two of anything else are one too many."""
        before = self.scope.names.get(name)
        if before is not None and not (before.role == binding.role == "variable"):
            offset, end = self.name_place(node, name)
            self.error(offset, end, f"`{name}` is already {ROLES[before.role]} here", "choose another name")
            return
        if before is not None and self.scope is self.top:
            binding = Binding("variable", ANY)  # functions may see either of the two
        self.scope.names[name] = binding

    def unknown(self, node: SyntaxNode, name: str, hint: str | None = None) -> None:
        # Problems beyond the limit are not shown, so their hints are not computed.
        many = len(self.problems) >= VEGA_PROBLEMS_MAX
        near = None if many else nearest(name, self.scope.all_names() | set(GLOBALS))
        if near is None and name in LIBRARY:
            hint = hint or f"`{name}` is a module: `{name}::{next(iter(LIBRARY[name]))}(…)`"
        elif near is None and (
            candidates := [f"`{module}::{name}`" for module, rows in LIBRARY.items() if name in rows]
        ):
            hint = f"did you mean {' or '.join(candidates[:3])}?"
        self.error_on(node, f"unknown name `{name}`", f"did you mean `{near}`?" if near else hint)

    def kind_of_type(self, written: Type | None) -> ValueKind:
        if written is None:
            return ANY
        return kind_from_type(written, self.agents, self._type_problem)

    def _type_problem(self, written: Type, message: str, hint: str | None) -> None:
        self.error(written.at, written.at + len(written.name), message, hint)

    def signature(self, parameters: list[Parameter], result: Type | None) -> Signature:
        return signature_from_parameters(parameters, self.kind_of_type(result), self.kind_of_type)

    # ---------------------------------------------------------------- calls

    def require_kind(
        self, node: SyntaxNode, wanted: ValueKind, given: ValueKind, what: str, *, is_library: bool = False
    ) -> None:
        """Complain if a value of one kind stands where another is declared; the library finds out when it is run."""
        if not accepts(wanted, given):
            tell = self.fault if is_library else self.error_on
            tell(node, f"{what} must be {an(wanted)}, and this is {an(given)}", how_to_write(wanted, given))
        elif wanted.inner or wanted.fields:
            self._inside(node, wanted, what)

    def _inside(self, node: SyntaxNode, wanted: ValueKind, what: str) -> None:
        """Check the parts of a list or map that is written out."""
        if isinstance(node, ListLiteral) and wanted.name == "list" and wanted.inner:
            for item in node.items:
                self._part(item, wanted.inner[0], f"an item of {what}")
        elif isinstance(node, MapLiteral) and wanted.fields:
            given = {key.value: value for key, value in node.entries if isinstance(key, Literal)}
            missing = [f"`{name}`" for name, _ in wanted.fields if name not in given]
            if missing and len(given) == len(node.entries):  # every key can be read
                self.error_on(node, f"{what} lacks {', '.join(missing)}", f"it is {wanted}")
            for name, kind in wanted.fields:
                if name in given:
                    self._part(given[name], kind, f"`{name}` of {what}")
        elif isinstance(node, MapLiteral) and wanted.name == "map" and len(wanted.inner) == 2:
            for key, value in node.entries:
                self._part(key, wanted.inner[0], f"a key of {what}")
                self._part(value, wanted.inner[1], f"a value of {what}")

    def _part(self, node: SyntaxNode, wanted: ValueKind, what: str) -> None:
        if isinstance(node, (Literal, ListLiteral, MapLiteral)):
            written = {ListLiteral: ValueKind("list"), MapLiteral: ValueKind("map")}
            given = kind_of_literal(node.value) if isinstance(node, Literal) else written[type(node)]
            self.require_kind(node, wanted, given, what)

    def arguments(
        self, name: str, call: SyntaxNode, given: list[tuple[Argument, ValueKind]], signature: Signature
    ) -> None:
        """Hold a call's arguments against what the function takes."""
        order = [parameter for parameter, _ in signature.parameters]
        kinds = dict(signature.parameters)
        filled: dict[str, Argument] = {}
        seen_name = False
        for index, (argument, kind) in enumerate(given):
            if not argument.name:
                if seen_name:
                    self.error_on(argument, "an argument by position cannot follow a named one")
                    return
                if index >= len(order):
                    count = "no arguments" if not order else _count_arguments(len(order), signature.optional)
                    self.error_on(
                        argument, f"`{name}` takes {count}, and {len(given)} are given", _heading(name, order)
                    )
                    return
                parameter = order[index]
            else:
                seen_name, parameter = True, argument.name
                if parameter not in kinds:
                    near = nearest(parameter, order)
                    hint = f"did you mean `{near}`?" if near else _heading(name, order)
                    self.error(
                        argument.at, argument.at + len(parameter), f"`{name}` has no parameter `{parameter}`", hint
                    )
                    continue
                if parameter in filled:
                    self.error_on(argument, f"`{parameter}` is given twice")
            filled[parameter] = argument
            of = f"`{parameter}` of `{name}`"
            self.require_kind(argument.value, kinds[parameter], kind, of, is_library=signature.is_library)
        missing = [parameter for parameter in order if parameter not in filled and parameter not in signature.optional]
        if missing and not any(argument.name and argument.name not in kinds for argument, _ in given):
            words = ", ".join(f"`{parameter}`" for parameter in missing)
            self.error_on(call, f"`{name}` also needs {words}", _heading(name, order))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return a known word that was probably meant: a slip of the finger, or only other capitals."""
    known = sorted(known)
    if len(known) > _KNOWN_MAX:  # a generated program: its neighbours in the alphabet have to do
        index = bisect_left(known, name)
        known = known[max(0, index - _KNOWN_MAX // 2) : index + _KNOWN_MAX // 2]
    folded = name.casefold()
    same = next((other for other in known if other.casefold() == folded), None)
    return same or (did_you_mean(name, known) if len(name) > 2 else None)


def how_to_write(wanted: ValueKind, given: ValueKind) -> str | None:
    number = given.name in ("int", "float")
    if wanted.name == "money" and number:
        return "an amount of money is written `$0.50`"
    if wanted.name == "duration" and number:
        return "a duration is written `100ms`, `30s`, `5m` or `1h`"
    return None


def _count_arguments(most: int, optional: frozenset[str]) -> str:
    return f"{'at most ' if optional else ''}{most} argument{'s' if most != 1 else ''}"


def _heading(name: str, order: list[str]) -> str:
    return f"it is `{name}({', '.join(order)})`"


@cache
def read_entry(entry: LibraryEntry, *, is_method: bool = False) -> Signature:
    """Return how a library function is called; as a method its first parameter is the value before the dot."""
    rows = entry.parameters[1:] if is_method else entry.parameters
    first_optional = entry.required - (1 if is_method else 0)
    parameters = tuple((name, kind_from_word(kind)) for name, kind in rows)
    optional = frozenset(name for name, _ in rows[max(0, first_optional) :])
    return Signature(parameters, optional, kind_from_word(entry.result), is_library=True)


def signature_from_parameters(
    parameters: list[Parameter], result: ValueKind, kind_of: Callable[[Type | None], ValueKind]
) -> Signature:
    return Signature(
        tuple((parameter.name, kind_of(parameter.type)) for parameter in parameters),
        frozenset(parameter.name for parameter in parameters if parameter.default is not None),
        result,
    )
