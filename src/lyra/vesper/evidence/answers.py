"""What the outside world may answer a program's requests with: right values, wrong ones, errors.

Most answers have no declared type. `AnswerForms` finds what a program makes of them: `response.id` that becomes an
output of type string is a text, a field that is added to a number is a number, one that is compared with `'paid'` is
that text now and then. `right` draws such an answer, `wrong` anything else, `error` a kind of error that the step, the
node or the kind of act knows. `guessed` are the variables whose values come from answers. A contract about them says as
much about the world as about the node where an answer has no declared type; `is_own_relation` tells those that the node
alone decides: equations of which both sides come from the same parts of the answers, such as `left == had - wanted`.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random  # noqa: TID251 - the type; generators come from core.ids
from typing import Any, Final

from lyra.vesper import ir
from lyra.vesper.evidence.inputs import Boundaries, Draw, drawer, parts_of, pick
from lyra.vesper.evidence.likely_inputs import fitting_drawer
from lyra.vesper.evidence.rooms import rooms_of_answer
from lyra.vesper.values.types import ANY, BOOLEAN, DECIMAL, INTEGER, STRING, Array, ValueType, without_null

_CHANGES: Final = ("db.write", "db.update", "db.delete")
_EMPTY_SHARE: Final = 0.4  # of queries that have no rows
_ERRORS: Final = ("timeout", "overloaded", "declined")
_HTTP_ERRORS: Final = ("timeout", "http_500", "http_404", "http_429", "unreachable")
_TRANSACTION_ERRORS: Final = ("conflict", "timeout", "database_unavailable")
# What the call of a node fails with although the node that is called has no such answer.
_CALL_FAILURES: Final = ("timeout", "resource_limit", "capability_denied", "circuit_open", "in_doubt", "unknown_node")
_PASSES: Final = 4  # over a program, until what is known of a variable has come to where it is used
_DEPTH_MAX: Final = 6


class _Shape:
    """What a program makes of a value of the outside world."""

    def __init__(self) -> None:
        self.types: dict[str, ValueType] = {}  # by their text: wanted of the value
        self.constants: dict[Any, None] = {}
        self.fields: dict[str, _Shape] = {}
        self.item: _Shape | None = None

    def field(self, name: str) -> _Shape:
        return self.fields.setdefault(name, _Shape())

    def element(self) -> _Shape:
        self.item = self.item or _Shape()
        return self.item

    def want(self, kind: ValueType) -> None:
        if without_null(kind) != ANY:
            self.types[repr(kind)] = without_null(kind)

    def drawer(self, boundaries: Boundaries, depth: int = 0) -> Draw:
        if depth > _DEPTH_MAX:
            return drawer(STRING, boundaries)
        if self.fields:
            draws = [(name, shape.drawer(boundaries, depth + 1)) for name, shape in self.fields.items()]
            return lambda rng: {name: draw(rng) for name, draw in draws}
        if self.item is not None:
            item = self.item.drawer(boundaries, depth + 1)
            return lambda rng: [item(rng) for _ in range(rng.randrange(0, 4))]
        kinds = [fitting_drawer(kind, (), {}, boundaries) for kind in self.types.values()] or [
            fitting_drawer(STRING, (), {}, boundaries)
        ]
        constants = list(self.constants)
        if not constants:
            return lambda rng: kinds[0](rng) if rng.random() < 0.8 else pick(rng, kinds)(rng)
        return lambda rng: pick(rng, constants) if rng.random() < 0.6 else pick(rng, kinds)(rng)


class AnswerForms:
    """What the acts of a program answer with, made once for all its executions."""

    def __init__(self, program: ir.NodeProgram) -> None:
        boundaries = Boundaries(program)
        reading = _Reading(program)
        self.guessed = reading.guessed
        self.ambient = frozenset(program.ambient) - {"error"}  # which contracts have a value of
        self.is_own_relation = reading.is_own_relation
        self._anything = drawer(ANY, boundaries)
        self._draws: dict[str, Draw] = {}
        self._errors: dict[str, list[str]] = {}
        self.is_declared: dict[str, bool] = {}  # by step: whether its answers have a type
        node_errors = [rule.error for rule in program.rules if rule.error != "*"]
        for step in reading.effects:
            shape = reading.shapes[step.name]
            declared = without_null(step.output_type)
            is_declared = declared not in (ANY, Array(ANY)) or step.kind in (
                "db.write",
                "db.update",
                "db.delete",
                "event.publish",
            )
            self.is_declared[step.name] = is_declared or not (shape.fields or shape.item or shape.types)
            if declared not in (ANY, Array(ANY)):
                self._draws[step.name] = fitting_drawer(declared, ("value",), rooms_of_answer(step.checks), boundaries)
            else:
                self._draws[step.name] = shape.drawer(boundaries)
            own = [rule.error for rule in step.rules if rule.error != "*"]
            usual = _HTTP_ERRORS if step.kind == "http.call" else _ERRORS
            self._errors[step.name] = [*own, *own, *node_errors, *usual]
        for transaction in reading.transactions:
            own = [rule.error for rule in transaction.rules if rule.error != "*"]
            self._errors[transaction.name] = [*own, *own, *node_errors, *_TRANSACTION_ERRORS]
        self.call_failures = list_call_failures(program)

    def right(self, step: str, kind: str, payload: Any, rng: Random) -> Any:
        """Return an answer of the form that such an act has."""
        if kind == "state.transition":
            return payload["to"]
        if kind in _CHANGES:
            return {"rows": 1 if rng.random() < 0.9 else 0}
        if kind in ("event.publish", "event.subscribe"):
            return None
        if kind == "db.query" and rng.random() < _EMPTY_SHARE:
            return []
        answer = self._draws[step](rng)
        if kind == "db.query":
            return answer if isinstance(answer, list) and answer else [answer] if isinstance(answer, dict) else [{}]
        return answer

    def wrong(self, rng: Random) -> Any:
        return self._anything(rng)

    def error(self, step: str, kind: str, rng: Random) -> str:
        """Return a kind of error that such an act may end with."""
        if kind == "state.transition":
            return "invalid_transition"
        return pick(rng, self._errors[step])


def list_call_failures(program: ir.NodeProgram) -> dict[str, list[str]]:
    """Return, by the step of each call of a node, the failures that its rules name and no called node answers with."""
    calls = [
        part
        for part in parts_of((program.steps, program.rules))
        if isinstance(part, ir.EffectStep) and part.kind == "node.call"
    ]
    named = {step.name: {rule.error for rule in (*step.rules, *program.rules)} for step in calls}
    return {step: [code for code in _CALL_FAILURES if code in codes] for step, codes in named.items()}


class _Reading:
    """What a program reads from its answers."""

    def __init__(self, program: ir.NodeProgram) -> None:
        self.parts = list(parts_of((program.steps, program.rules, program.postconditions, program.invariants)))
        self.effects = [part for part in self.parts if isinstance(part, ir.EffectStep)]
        self.transactions = [part for part in self.parts if isinstance(part, ir.TransactionStep)]
        self.shapes = {step.name: _Shape() for step in self.effects}
        self._names: dict[str, _Shape] = {}
        self._locals: dict[int, dict[str, _Shape]] = {}
        for step in self.effects:
            if step.kind == "node.call":
                continue
            shape = self.shapes[step.name]
            for name in {step.output, "query_result" if step.kind == "db.query" else "response"} - {""}:
                self._names[name] = shape
            if step.kind == "db.query":
                shape.element()
        self._outputs = frozenset(self._names)  # what holds an answer as a whole
        for _ in range(_PASSES):
            for part in self.parts:
                self._read(part)
        for output in program.success:
            if output.name in self._names:
                self._names[output.name].want(output.type)
        wanted = {output.name: output.type for output in program.success}
        for part in self.parts:
            if isinstance(part, ir.ReturnStep):
                for name, value in part.success or ():
                    self._use(value, wanted.get(name, ANY))
        self.guessed = self._find_tainted(program)

    def _shape(self, value: ir.TypedExpression) -> _Shape | None:
        """Return the shape of an expression that leads into an answer."""
        match value:
            case ir.NodeVariable():
                return self._names.get(value.name)
            case ir.FieldOf():
                target = self._shape(value.target)
                if target is None:
                    return None
                return (target.item or target).field(value.name)
            case ir.Projection():
                target = self._shape(value.target)
                return None if target is None else target.element().field(value.name)
            case ir.ItemOf():
                target = self._shape(value.target)
                if target is None:
                    return None
                if isinstance(value.index, ir.Constant) and isinstance(value.index.value, str):
                    return target.field(value.index.value)
                return target.element()
        return None

    def _use(self, value: ir.TypedExpression, kind: ValueType) -> None:
        if isinstance(value, ir.Rounded | ir.Negate):
            return self._use(value.operand, DECIMAL)
        shape = self._shape(value)
        if shape is not None:
            (shape.item if isinstance(value, ir.Projection) and shape.item else shape).want(kind)
        return None

    def _read(self, part: Any) -> None:
        match part:
            case ir.AssignStep():
                self._alias(part.target, part.value)
            case ir.EffectStep():
                if part.kind == "node.call":
                    return
                for name, value in part.extract:
                    self._alias(name, value)
            case ir.ForEachStep():
                self._element(part.variable, part.collection)
            case ir.Quantifier() | ir.MapOver() | ir.Filter() | ir.GroupBy() | ir.Reduce():
                self._element(part.name, part.collection)
            case ir.Arithmetic():
                is_text = STRING in (without_null(part.left.type), without_null(part.right.type))
                for side, other in ((part.left, part.right), (part.right, part.left)):
                    number = INTEGER if without_null(other.type) == INTEGER else DECIMAL
                    self._use(side, STRING if is_text and part.operator == "+" else number)
            case ir.Rounded() | ir.Negate():
                self._use(part.operand, DECIMAL)
            case ir.Aggregate():
                shape = self._shape(part.collection)
                if shape is not None and part.function != "count":
                    target = shape if isinstance(part.collection, ir.Projection) else shape.element()
                    target.want(DECIMAL)
            case ir.Compare():
                self._note_comparison(part.left, part.right)
                self._note_comparison(part.right, part.left)
            case ir.Membership():
                shape = self._shape(part.item)
                if shape is not None and isinstance(part.collection, ir.ListOf):
                    for item in part.collection.items:
                        self._note_comparison(part.item, item)
            case ir.Logic():
                self._use(part.left, BOOLEAN)
                self._use(part.right, BOOLEAN)
            case ir.Not():
                self._use(part.operand, BOOLEAN)
            case ir.BranchStep() | ir.LoopStep():
                self._use(part.condition, BOOLEAN)
            case ir.Condition():
                self._use(part.expression, BOOLEAN)
            case ir.TemplateText():
                for piece in part.parts:
                    if not isinstance(piece, str):
                        self._use(piece, STRING)

    def _alias(self, name: str, value: ir.TypedExpression) -> None:
        shape = self._shape(value)
        if shape is not None:
            self._names.setdefault(name, shape)

    def _element(self, name: str, collection: ir.TypedExpression) -> None:
        shape = self._shape(collection)
        if shape is not None:
            self._names.setdefault(name, shape.element())

    def _note_comparison(self, value: ir.TypedExpression, other: ir.TypedExpression) -> None:
        shape = self._shape(value)
        if shape is None:
            return
        if isinstance(other, ir.Constant):
            if other.value is None:
                return
            shape.want(other.type)
            neighbours = (other.value - 1, other.value, other.value + 1) if _is_number(other.value) else (other.value,)
            shape.constants.update(dict.fromkeys(neighbours))
        else:
            shape.want(other.type)

    def is_own_relation(self, expression: ir.TypedExpression) -> bool:
        """Return whether the node decides a contract, whatever values of their types the acts answer with."""
        match expression:
            case ir.Logic():
                return self.is_own_relation(expression.left) and self.is_own_relation(expression.right)
            case ir.Not():
                return self.is_own_relation(expression.operand)
            case ir.Compare(operator="=="):
                left, right = self._sources(expression.left, {}), self._sources(expression.right, {})
                return left == right and (bool(left) or not self.guessed & names_in(expression))
        return not self.guessed & names_in(expression)

    def _sources(self, value: ir.TypedExpression, known: dict[str, set[int]]) -> set[int]:
        """Return the parts of answers that a value comes from, as the ids of their shapes."""
        paths = [part for part in parts_of(value) if isinstance(part, ir.FieldOf | ir.ItemOf | ir.Projection)]
        sources = {id(shape) for shape in map(self._shape, paths) if shape is not None}
        names = names_in(value)
        if not sources:
            sources = {id(self._names[name]) for name in names & self._outputs}
        for name in names - self._outputs:
            if name not in known:
                known[name] = set()
                extracts = (pair for step in self.effects for pair in step.extract)
                for target, source in (*self._flows(), *extracts):
                    if target == name:
                        known[name] |= self._sources(source, known)
            sources |= known[name]
        return sources

    def _find_tainted(self, program: ir.NodeProgram) -> frozenset[str]:
        """Return the variables, outputs among them, that hold what comes from answers or from ambient objects."""
        names = {*program.ambient, "response", "query_result"}
        for step in self.effects:
            if step.kind != "node.call":
                names |= {step.output, *(name for name, _ in step.extract)}
        names -= {""}
        flows = list(self._flows())
        while True:
            more = {name for name, value in flows if name not in names and names & names_in(value)}
            if not more:
                return frozenset(names)
            names |= more

    def _flows(self) -> Iterator[tuple[str, Any]]:
        for part in self.parts:
            match part:
                case ir.AssignStep():
                    yield part.target, part.value
                case ir.ReturnStep():
                    yield from part.success or ()
                case ir.ForEachStep():
                    yield part.variable, part.collection
                    for inner in parts_of(part.steps):  # how often it is assigned depends on the collection
                        if isinstance(inner, ir.AssignStep):
                            yield inner.target, part.collection
                case ir.BranchStep():
                    for inner in parts_of((part.then, part.otherwise)):
                        if isinstance(inner, ir.AssignStep):
                            yield inner.target, part.condition


def names_in(value: Any) -> set[str]:
    """Return the variables that an expression names."""
    return {part.name for part in parts_of(value) if isinstance(part, ir.NodeVariable)}


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool | str) and hasattr(value, "__sub__")
