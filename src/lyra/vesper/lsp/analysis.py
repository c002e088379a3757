"""One text of a node, looked at: its remarks, the place of each part, and what each name in it stands for.

An `NodeAnalysis` never changes; a changed text is a new one. The reader and the checker find the mistakes; as their
`Observer` it learns which name of an expression is which variable and of which type. A name of a node (an input, a
variable, an output) is one `NodeSymbol` wherever it stands: a variable and an output of the same name are the same one,
since the end of a flow answers the one with the other. Elements of loops and transforms, and the names that quantifiers
and lambdas bind, are symbols of their own, with the part of the file that they belong to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from lyra.core.checking.document import Path
from lyra.errors import ParseError
from lyra.vesper import ir
from lyra.vesper.check.judge import check_node
from lyra.vesper.check.state import Callees, Element, NameScope, Observer, TextSite
from lyra.vesper.check.transforms import lambda_name
from lyra.vesper.check.types import element_of
from lyra.vesper.expressions.terms import MemberTerm, NameTerm, QuantifierTerm, Term
from lyra.vesper.format.layout import Collection, read_tree
from lyra.vesper.loading import ERROR, Issue, line_starts
from lyra.vesper.nodes.model import FieldDeclaration, Node, StepDeclaration
from lyra.vesper.nodes.sections import read_node
from lyra.vesper.values.types import ANY, ValueType

_ANSWER_KEYS: Final = ("return_success", "return_error", "success", "error", "on_failure")
_ELEMENT_NAMES: Final = {"for_each": ("item", ("steps",))}
_TRANSFORM_NAMES: Final = ("record", ("function", "condition", "field", "group_by", "aggregations"))
BOM: Final = "\ufeff"


class TextSpan(NamedTuple):
    """A key or a plain value in the text."""

    at: int
    end: int
    path: Path
    is_key: bool
    text: str


class NameUse(NamedTuple):
    """A name in an expression. `kind` is variable, parameter, field or ambient."""

    at: int
    end: int
    name: str
    kind: str
    type: ValueType
    path: Path
    offset: int  # in the text of the expression


class NodeSymbol(NamedTuple):
    """What a name stands for; `owner` is the part to which a local name belongs."""

    name: str
    owner: Path = ()


class Occurrence(NamedTuple):
    at: int
    end: int
    symbol: NodeSymbol
    is_declaration: bool


class StepVariable(NamedTuple):
    type: ValueType
    step: StepDeclaration


class _Bound(NamedTuple):
    """A name that a quantifier binds, and the part of its expression where it does."""

    path: Path
    name: str
    at: int
    body_at: int
    body_end: int


class VisibleNames(NamedTuple):
    """What an expression may name: variables, and the fields of the element it is about."""

    names: dict[str, ValueType]
    element: Element | None = None


class NodeAnalysis(Observer):
    """See the module. `callees` gives the nodes that the text calls."""

    def __init__(self, text: str, file: str, callees: Callees | None = None) -> None:
        self.text = text
        self.file = file
        self._clean = text.removeprefix(BOM)
        self._shift = len(text) - len(self._clean)
        self._starts = line_starts(self._clean)
        self.node: Node | None = None
        self.program: ir.NodeProgram | None = None
        self.variables: dict[str, StepVariable] = {}  # by name: the type and the step of the last value
        self._written: dict[Path, str] = {}  # step → the variable that it writes
        self._uses: dict[int, NameUse] = {}
        self._bound: list[_Bound] = []
        self._steps: dict[Path, VisibleNames] = {}
        self._expressions: dict[Path, VisibleNames] = {}
        try:
            self.issues = self._check(callees)
        except RecursionError:
            self.issues = [Issue(severity=ERROR, code="limit", message="the file is nested too deeply")]

    def _check(self, callees: Callees | None) -> list[Issue]:
        try:
            self.node, issues = read_node(self._clean, self.file)
        except ParseError as error:
            return [msgspec.convert(problem, Issue) for problem in error.fields["problems"]]
        if self.node is not None:
            self.program, issues = check_node(self.node, callees=callees, observer=self)
        return issues

    # ------------------------------------------------------------ what the checker tells
    def enter(self, step: StepDeclaration, scope: NameScope) -> None:
        self._steps[step.path] = VisibleNames(dict(scope.names), scope.element)

    def bind(self, step: StepDeclaration, name: str, kind: ValueType) -> None:
        self.variables[name] = StepVariable(kind, step)
        self._written[step.path] = name

    def use(self, term: Term, expression: ir.TypedExpression, scope: NameScope, site: TextSite) -> None:
        self._expressions.setdefault(site.path, VisibleNames(dict(scope.names), scope.element))
        if isinstance(term, QuantifierTerm):
            body = term.body
            self._bound.append(
                _Bound(site.path, term.name, term.start, site.offset + body.start, site.offset + body.end)
            )
        elif isinstance(term, (NameTerm, MemberTerm)):
            kind = _kind_of(term, expression, scope)
            offset = site.offset + term.end - len(term.name)
            start = self._offset_in(site.path, offset)
            if kind and self.text.startswith(term.name, start):
                end = start + len(term.name)
                self._uses[start] = NameUse(start, end, term.name, kind, expression.type, site.path, offset)

    def _offset_in(self, path: Path, offset: int) -> int:
        assert self.node is not None
        return self.offset_of(*self.node.document.place_in(path, offset))

    # ------------------------------------------------------------ places
    def offset_of(self, line: int, column: int) -> int:
        """Return the offset of a line and column from 1."""
        start = self._starts[min(max(line, 1), len(self._starts)) - 1]
        return min(self._shift + start + column - 1, len(self.text))

    @cached_property
    def spans(self) -> list[TextSpan]:
        """All keys and plain values, in order of place; none where the text cannot be read."""
        if self.node is None:
            return []
        try:
            root = read_tree(self._clean)[0]
        except ParseError:
            return []
        return sorted(_spans(root, (), self._shift))

    def span_at(self, offset: int) -> TextSpan | None:
        index = bisect_right(self.spans, offset, key=lambda span: span.at) - 1
        for span in reversed(self.spans[max(0, index - 1) : index + 1]):
            if span.at <= offset <= span.end:
                return span
        return None

    def use_at(self, offset: int) -> NameUse | None:
        return next((use for use in self._uses.values() if use.at <= offset <= use.end), None)

    # ------------------------------------------------------------ names
    @cached_property
    def fields(self) -> dict[str, FieldDeclaration]:
        """The inputs and outputs by name; of an input and an output of one name, the input."""
        node = self.node
        return {} if node is None else {field.name: field for field in (*node.error, *node.success, *node.inputs)}

    def visible(self, path: Path) -> VisibleNames:
        """Return the names that an expression at a path can use."""
        known = self._expressions.get(path)
        if known is not None:
            return known
        for length in range(len(path), 0, -1):
            around = self._steps.get(path[:length])
            if around is not None:
                return self._with_locals(around, path)
        names: dict[str, ValueType] = {}
        program = self.program
        if program is not None:
            names |= {entry.name: entry.type for entry in program.inputs}
            if path[:2] != ("contracts", "preconditions"):
                names |= {entry.name: entry.type for entry in (*program.success, *program.error)}
            if path[:2] == ("contracts", "invariants"):
                names |= {name: variable.type for name, variable in self.variables.items()}
        return VisibleNames(names)

    def _with_locals(self, around: VisibleNames, path: Path) -> VisibleNames:
        names = dict(around.names)
        element = around.element
        for symbol, _ in self._locals_of(self.step_around(path)):
            step = self.step_around(path)
            source = step.settings["input"].value if step is not None and "input" in step.settings else None
            kind = names.get(str(source))
            item = (element_of(kind) if kind is not None else None) or ANY
            names.setdefault(symbol.name, item)
            element = element or Element(symbol.name, item)
        return VisibleNames(names, element)

    def step_around(self, path: Path) -> StepDeclaration | None:
        """Return the innermost step around a part."""
        steps = self._by_path
        return next((steps[path[:length]] for length in range(len(path), 0, -1) if path[:length] in steps), None)

    @cached_property
    def _by_path(self) -> dict[Path, StepDeclaration]:
        return {} if self.node is None else {step.path: step for step in self.node.all_steps()}

    @cached_property
    def occurrences(self) -> list[Occurrence]:
        """Every place where a symbol is written, in order of place."""
        places: dict[int, Occurrence] = {}
        node = self.node
        if node is None:
            return []
        local_spans = {path: symbol for step in node.all_steps() for symbol, path in self._locals_of(step) if path}
        outputs = self._output_paths()
        for span in self.spans:
            symbol = local_spans.get(span.path) if not span.is_key else None
            is_declaration = symbol is not None
            if symbol is None:
                symbol, is_declaration = self._find_symbol(span, outputs)
            if symbol is not None:
                start = self.text.find(symbol.name, span.at, span.end)  # behind a quotation mark, where there is one
                if start >= 0:
                    places[start] = Occurrence(start, start + len(symbol.name), symbol, is_declaration)
        for use in self._uses.values():
            symbol = self._symbol_of(use)
            if symbol is not None:
                places[use.at] = Occurrence(use.at, use.end, symbol, is_declaration=False)
        for bound in self._bound:
            start = self.text.find(
                bound.name, self._offset_in(bound.path, bound.at), self._offset_in(bound.path, bound.body_at)
            )
            if start >= 0:
                symbol = NodeSymbol(bound.name, (*bound.path, bound.body_at))
                places[start] = Occurrence(start, start + len(bound.name), symbol, is_declaration=True)
        return sorted(places.values())

    def occurrence_at(self, offset: int) -> Occurrence | None:
        return next((item for item in self.occurrences if item.at <= offset <= item.end), None)

    def _output_paths(self) -> dict[Path, str]:
        """Return the parts that name the variable of a step: its `output`, else its name."""
        assert self.node is not None
        paths: dict[Path, str] = {}
        for step in self.node.all_steps():
            setting = step.settings.get("output")
            if setting is not None:
                paths[setting.path] = str(setting.value)
            elif self._written.get(step.path) == step.name:
                paths[(*step.path, "step")] = step.name
            extracted = step.settings.get("on_success")
            table = extracted.value.get("extract") if extracted and isinstance(extracted.value, dict) else None
            if extracted is not None and isinstance(table, dict):
                paths |= {(*extracted.path, "extract", name): str(name) for name in table}
        return paths

    def _is_name(self, name: str) -> bool:
        return name in self.fields or name in self.variables or name in self._output_names

    @cached_property
    def _output_names(self) -> frozenset[str]:
        return frozenset(self._output_paths().values()) if self.node is not None else frozenset()

    def _find_symbol(self, span: TextSpan, outputs: dict[Path, str]) -> tuple[NodeSymbol | None, bool]:
        """Return the symbol that a key or a value outside of expressions names, and whether it declares it."""
        path, name = span.path, span.text
        head, last = path[0], path[-1]
        if path in outputs and outputs[path] == name and span.is_key == (path[-2:-1] == ("extract",)):
            return NodeSymbol(name), True
        if not isinstance(last, str) and not (head == "security" and "sensitive_data" in path) and "labels" not in path:
            return None, False
        if len(path) < 2 or not self._is_name(name):
            return None, False
        is_declared = any(path == field.path for field in self._all_fields())
        if span.is_key and is_declared:
            return NodeSymbol(name), True
        if span.is_key:
            is_case = path[:2] == ("testing", "test_cases")
            around = self._by_path.get(path[:-2])
            is_named = (
                (around is not None and around.operation == "return" and path[-2] == "parameters")
                or (is_case and len(path) == 5 and path[3] in ("inputs", "expected_output"))
                or (is_case and len(path) == 6 and path[3] == "expected_output" and path[4] in _ANSWER_KEYS)
                or (head in ("flow", "error_handling") and path[-2] in _ANSWER_KEYS and last not in _ANSWER_KEYS)
            )
            return (NodeSymbol(name) if is_named else None), False
        is_listed = path[:2] == ("security", "sensitive_data") or (head == "observability" and path[-2] == "labels")
        return (NodeSymbol(name) if is_listed else None), False

    def _all_fields(self) -> tuple[FieldDeclaration, ...]:
        assert self.node is not None
        return (*self.node.inputs, *self.node.success, *self.node.error)

    def _symbol_of(self, use: NameUse) -> NodeSymbol | None:
        if use.kind != "variable" or use.path[0] == "types":
            return None
        for bound in reversed(self._bound):
            if (bound.path, bound.name) == (use.path, use.name) and bound.body_at <= use.offset < bound.body_end:
                return NodeSymbol(use.name, (*use.path, bound.body_at))
        path: Path = use.path
        while (step := self.step_around(path)) is not None:
            for symbol, _ in self._locals_of(step):
                inside = any(
                    setting.path == use.path[: len(setting.path)]
                    for key in _local_names(step)[1]
                    if (setting := step.settings.get(key)) is not None
                )
                if symbol.name == use.name and inside:
                    return symbol
            path = step.path[:-1]
        return NodeSymbol(use.name) if self._is_name(use.name) else None

    def _locals_of(self, step: StepDeclaration | None) -> Iterator[tuple[NodeSymbol, Path]]:
        """Yield the names that a step gives to elements, each with the part that says so; () where none does."""
        if step is None or step.operation not in ("for_each", "data_transform"):
            return
        default, keys = _local_names(step)
        for key in ("as", "accumulator"):
            setting = step.settings.get(key)
            if setting is not None and isinstance(setting.value, str):
                yield NodeSymbol(setting.value, (*step.path, key)), setting.path
            elif key == "as" or step.settings.get("transform", None) is not None:
                yield NodeSymbol(default if key == "as" else key, (*step.path, key)), ()
        for key in keys:
            setting = step.settings.get(key)
            name = lambda_name(setting.value) if setting is not None else None
            if setting is not None and name is not None:
                yield NodeSymbol(name, (*step.path, key)), setting.path


def _local_names(step: StepDeclaration) -> tuple[str, tuple[str, ...]]:
    """Return the name of elements where a step gives none, and the settings that may use it."""
    return _ELEMENT_NAMES.get(step.operation, _TRANSFORM_NAMES)


def _kind_of(term: NameTerm | MemberTerm, expression: ir.TypedExpression, scope: NameScope) -> str:
    """Return the kind of thing that a name means; empty where the checker has a remark on it."""
    if isinstance(expression, ir.NodeVariable) and expression.name == term.name:
        is_prefixed = isinstance(term, MemberTerm)
        return "variable" if is_prefixed or term.name in scope.names else "ambient"
    if isinstance(term, NameTerm) and term.name in scope.aliases:
        return "parameter"
    return "field" if isinstance(expression, (ir.FieldOf, ir.Projection, ir.Length, ir.ItemOf)) else ""


def _spans(collection: Collection, path: Path, shift: int) -> Iterator[TextSpan]:
    for index, entry in enumerate(collection.entries):
        part: Path = (*path, index if entry.key is None else entry.key.value)
        if entry.key is not None:
            yield TextSpan(entry.key.start + shift, entry.key.end + shift, part, True, entry.key.value)
        if isinstance(entry.value, Collection):
            yield from _spans(entry.value, part, shift)
        elif entry.value.end > entry.value.start:
            yield TextSpan(entry.value.start + shift, entry.value.end + shift, part, False, entry.value.value)
