"""What the writers of one generated module share: the node, its Python names and types, and the functions so far.

The entry, the flow, the contracts about the answer and the module itself are written by classes of their own. All of
them hold the same `NodeDraft`. `Checks` writes the statements of constraints, guards and contracts: a condition that
cannot raise becomes one `if`. One that can is evaluated inside a `try`: an error in a contract is a failure of that
contract, and a missing predicate or object makes it unverifiable, which is noted and stops nothing.

A condition that is known before a node runs is not tested by generated code.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from lyra.vesper import ir
from lyra.vesper.python.expressions import ExpressionWriter, PythonScope
from lyra.vesper.python.kinds import get_writes, names_in, parts
from lyra.vesper.python.layout import fits_inside
from lyra.vesper.python.syntax import (
    ModuleParts,
    Names,
    assign,
    attribute,
    call,
    find_records,
    function_name,
    if_,
    name,
    negate,
    raise_,
    replace_record,
    store,
)
from lyra.vesper.values.types import BOOLEAN, Nullable, ValueType

_CONDITIONS = (ir.Not, ir.Compare, ir.Membership, ir.IsNull, ir.Logic, ir.Quantifier)


def fold_answer(condition: ir.TypedExpression, known: Collection[str], *, is_success: bool) -> ir.TypedExpression:
    """Return the condition about a success or an error; `known` are the names that surely have a value."""
    return _Folder(known, is_success=is_success).fold(condition, as_condition=True)


def is_true(condition: ir.TypedExpression | None) -> bool:
    """Return whether the condition is the constant true."""
    return _is_settled(condition, True)


def _is_settled(condition: ir.TypedExpression | None, value: object) -> bool:
    return isinstance(condition, ir.Constant) and condition.value is value


def _make_constant(value: object) -> ir.Constant:
    return ir.Constant(type=BOOLEAN, value=value)


class _Folder:
    def __init__(self, known: Collection[str], *, is_success: bool) -> None:
        self._known = known
        self._is_success = is_success

    def fold(self, node: ir.TypedExpression, *, as_condition: bool) -> ir.TypedExpression:
        match node:
            case ir.NodeVariable(name="success"):
                return _make_constant(self._is_success)
            case ir.FieldOf(target=ir.NodeVariable(name="error"), name="occurred"):
                return _make_constant(not self._is_success)
            case ir.Not():
                operand = self.fold(node.operand, as_condition=True)
                if isinstance(operand, ir.Constant) and isinstance(operand.value, bool):
                    return _make_constant(not operand.value)
                return msgspec.structs.replace(node, operand=operand)
            case ir.Logic():
                return self._logic(node, as_condition=as_condition)
            case ir.Compare():
                left, right = (self.fold(part, as_condition=False) for part in (node.left, node.right))
                return msgspec.structs.replace(node, left=left, right=right)
        return node

    def _logic(self, node: ir.Logic, *, as_condition: bool) -> ir.TypedExpression:
        left, right = (self.fold(part, as_condition=True) for part in (node.left, node.right))
        folded = msgspec.structs.replace(node, left=left, right=right)
        decides = node.operator == "or"  # the value of the left operand that decides alone
        if _is_settled(left, decides):
            return _make_constant(node.operator != "and")
        if _is_settled(left, not decides):
            return right if as_condition or _is_boolean(right) else folded
        if node.operator == "implies":
            return _make_constant(True) if _is_settled(right, True) and self._is_calm(left) else folded
        if _is_settled(right, decides) and self._is_calm(left):
            return _make_constant(decides)
        if _is_settled(right, not decides):
            return left if as_condition or _is_boolean(left) else folded
        return folded

    def _is_calm(self, node: ir.TypedExpression) -> bool:
        """Return whether evaluating a condition surely neither raises nor asks the host."""
        match node:
            case ir.Constant(value=value):
                return isinstance(value, bool)
            case ir.Not():
                return self._is_calm(node.operand)
            case ir.Logic():
                return self._is_calm(node.left) and self._is_calm(node.right)
            case ir.Compare(operator="==" | "!="):
                return self._is_plain(node.left) and self._is_plain(node.right)
            case ir.Membership(collection=ir.ListOf(items=items)):
                texts = all(isinstance(item, ir.Constant) and isinstance(item.value, str) for item in items)
                return texts and self._is_plain(node.item)
            case ir.IsNull():
                return self._is_plain(node.operand)
        return False

    def _is_plain(self, node: ir.TypedExpression) -> bool:
        return isinstance(node, ir.Constant) or (isinstance(node, ir.NodeVariable) and node.name in self._known)


def _is_boolean(node: ir.TypedExpression) -> bool:
    return isinstance(node, _CONDITIONS) or (isinstance(node, ir.Constant) and isinstance(node.value, bool))


_Number = int | Decimal
_Bound = tuple[_Number, bool]  # a limit, and whether the value may be the limit itself
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_REPEATABLE: Final = (
    ir.Constant,
    ir.NodeVariable,
    ir.FieldOf,
    ir.Length,
    ir.Compare,
    ir.Logic,
    ir.Not,
    ir.Membership,
    ir.IsNull,
    ir.ListOf,
    ir.Arithmetic,
    ir.Negate,
)


class KnownFacts:
    """Conditions about inputs that hold from some place on, since a check before it would have raised.

    A fact is a lower or an upper limit of a number or a length, or a condition as it was written. Only inputs that no
    step assigns are known, and only conditions whose value cannot change.
    """

    def __init__(self, inputs: Collection[str] = ()) -> None:
        self._inputs = frozenset(inputs)
        self._lows: dict[Any, _Bound] = {}
        self._highs: dict[Any, _Bound] = {}
        self._conditions: set[Any] = set()

    def learn(self, condition: ir.TypedExpression | None, subject: str = "") -> None:
        """Take over a condition that holds; `subject` is the input that its `value` means."""
        if isinstance(condition, ir.Logic) and condition.operator == "and":
            self.learn(condition.left, subject)
            self.learn(condition.right, subject)
            return
        key = self._key(condition, subject)
        if key is None:
            return
        self._conditions.add(key)
        limit = self._limit(condition, subject)
        if limit is None:
            return
        place, operator, number = limit
        if operator in (">", ">=", "=="):
            self._lows[place] = max(self._lows.get(place, (number, True)), (number, operator != ">"), key=_by_low)
        if operator in ("<", "<=", "=="):
            self._highs[place] = min(self._highs.get(place, (number, True)), (number, operator != "<"), key=_by_high)

    def imply(self, condition: ir.TypedExpression | None, subject: str = "") -> bool:
        """Return whether the condition surely holds."""
        if isinstance(condition, ir.Logic) and condition.operator == "and":
            return self.imply(condition.left, subject) and self.imply(condition.right, subject)
        key = self._key(condition, subject)
        if key is None:
            return False
        limit = self._limit(condition, subject)
        return key in self._conditions or (limit is not None and self._is_within(*limit))

    def _is_within(self, place: Any, operator: str, number: _Number) -> bool:
        if operator in (">", ">=") and place in self._lows:
            return _by_low(self._lows[place]) >= _by_low((number, operator == ">="))
        if operator in ("<", "<=") and place in self._highs:
            return _by_high(self._highs[place]) <= _by_high((number, operator == "<="))
        return False

    def _limit(self, condition: ir.TypedExpression | None, subject: str) -> tuple[Any, str, _Number] | None:
        """Return the subject of a comparison with a number, the operator with the subject on the left, and the
        number."""
        if not isinstance(condition, ir.Compare):
            return None
        mirrored = _MIRRORED[condition.operator]
        for side, operator, other in (
            (condition.left, condition.operator, condition.right),
            (condition.right, mirrored, condition.left),
        ):
            if isinstance(other, ir.Constant) and type(other.value) in (int, Decimal):
                if isinstance(side, ir.Length) and operator in (">", "<") and type(other.value) is int:
                    whole = other.value + 1 if operator == ">" else other.value - 1
                    return self._key(side, subject), f"{operator}=", whole
                return self._key(side, subject), operator, other.value
        return None

    def _key(self, node: object, subject: str) -> Any:
        """Return an expression without its types and places; None of one whose value may change."""
        if isinstance(node, tuple):
            inner = tuple(self._key(part, subject) for part in node)
            return None if None in inner else inner
        if not isinstance(node, _REPEATABLE):
            return node if isinstance(node, str) else None
        if isinstance(node, ir.Constant):
            is_number = type(node.value) in (int, Decimal)
            return (
                "number" if is_number else type(node.value).__name__,
                repr(node.value) if not is_number else node.value,
            )
        if isinstance(node, ir.NodeVariable):
            name = subject if subject and node.name == "value" else node.name
            return ("name", name) if name in self._inputs else None
        fields = [field for field in node.__struct_fields__ if field not in ("type", "place")]
        inner = tuple(self._key(getattr(node, field), subject) for field in fields)
        return None if None in inner else (type(node).__name__, *inner)


def _by_low(bound: _Bound) -> tuple[_Number, bool]:
    """Order lower limits: a value above the limit is further up than one that may be the limit."""
    return bound[0], not bound[1]


def _by_high(bound: _Bound) -> tuple[_Number, bool]:
    return bound[0], bound[1]


Parameter = tuple[str, ast.expr, ast.expr | None]  # the name, the annotation and the default


class NodeDraft:
    """A node's module while it is made."""

    def __init__(self, program: ir.NodeProgram, *, is_watched: bool = False) -> None:
        self.program = program
        self.function = function_name(program.node_id)
        self.names = Names(self.function)
        self.acts = (*program.steps, *compensations(program))
        self.variables = get_writes(self.acts)
        used = _collect_names(program, self.variables)
        self.parts = ModuleParts(self.names, used, memory_mb=program.limits.memory_mb)
        self.helpers: list[ast.stmt] = []  # functions before the node's own
        self.needs_run = False
        self.is_async = not program.pure
        self.parameters = {declared.name: self.names.name_value(declared.name) for declared in program.inputs}
        self.kinds = {declared.name: input_type(declared) for declared in program.inputs}
        for text, record in ({} if is_watched else find_records(program)).items():
            self.kinds[text] = replace_record(self.kinds[text], record, self.parts.dataclass(record))
        self.entry = PythonScope(self.parameters, self.kinds)
        self.olds: dict[str, str] = {}
        fixed = self.parameters.keys() - self.variables
        self.facts = KnownFacts(() if is_watched else fixed)  # a watched step keeps its place
        self.validated = 0  # leading validations that stand before the checks of the entry
        self.old_kinds: dict[str, ValueType] = {}

    @property
    def has_final_contracts(self) -> bool:
        return bool(self.program.postconditions or self.program.invariants)

    def final_names(self) -> set[str]:
        """Return all names in contracts about the answer."""
        return names_in((self.program.postconditions, self.program.invariants))

    def list_watched(self) -> list[str]:
        """Return the variables that invariants name; inputs are among them where a step assigns them."""
        used = names_in(self.program.invariants)
        return [variable for variable in self.variables if variable in used]

    def pass_inputs(self, used: set[str], *, uses_run: bool) -> tuple[list[Parameter], list[ast.expr]]:
        """Return parameters of a helper function for the inputs that it uses, and the arguments at its call."""
        parameters: list[Parameter] = []
        if uses_run:
            self.needs_run = True
            parameters.append(("run", self.parts.runtime("NodeRun"), None))
        for item in self.program.inputs:
            if item.name in used:
                annotation = self.parts.annotation(self.kinds[item.name])
                parameters.append((self.parameters[item.name], annotation, None))
        for label, python in self.olds.items():
            if label in used:
                parameters.append((python, self.parts.any(), None))
        return parameters, [name(text) for text, _, _ in parameters]

    def errors(self) -> ast.expr:
        """Return the tuple of exceptions that a step may raise."""
        return ast.Tuple([self.parts.runtime("NodeError"), name("ArithmeticError")], ast.Load())


def input_type(declared: ir.NodeInput) -> ValueType:
    """Return the type of an input's value: null too, where it may be absent without a default."""
    is_absent_null = not declared.required and declared.default in (msgspec.UNSET, None)
    return Nullable(declared.type) if is_absent_null and not isinstance(declared.type, Nullable) else declared.type


def compensations(program: ir.NodeProgram) -> tuple[ir.Step, ...]:
    """Return the steps of all compensations, of steps and of the node."""
    return tuple(step for rule in parts(program) if isinstance(rule, ir.ErrorRule) for step in rule.compensation)


def _collect_names(program: ir.NodeProgram, variables: list[str]) -> set[str]:
    """Return all names that the node gives to values."""
    own = {item.name for item in program.inputs} | {item.name for item in (*program.success, *program.error)}
    own |= names_in(program) | set(variables)
    for part in parts(program):
        match part:
            case ir.ForEachStep():
                own.add(part.variable)
            case ir.Reduce():
                own |= {part.name, part.accumulator}
            case ir.Quantifier() | ir.MapOver() | ir.Filter() | ir.GroupBy():
                own.add(part.name)
    return own


class Checks:
    """Writes checks into one function. `uses_run` says whether one of them needs the run's state."""

    def __init__(self, module: ModuleParts) -> None:
        self.module = module
        self.uses_run = False

    def all_true(
        self, checks: Sequence[ir.Condition], scope: PythonScope, sink: list[ast.stmt], *, in_loop: bool
    ) -> ast.expr:
        """Return whether all checks are true, from left to right."""
        writer = ExpressionWriter(self.module, scope, sink, in_loop=in_loop)
        first, *rest = checks
        tests = [writer.condition(first.expression)]
        tests += [writer.lazy(check.expression, as_condition=True) for check in rest]
        self.uses_run |= writer.uses_run
        return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)

    def contract(
        self, contract: ir.Contract, scope: PythonScope, failure: Sequence[ast.stmt], *, in_loop: bool = False
    ) -> list[ast.stmt]:
        """Return statements that do `failure` where the contract does not hold."""
        note = ast.Expr(call(attribute(name("run"), "note_unverifiable"), ast.Constant(contract.text)))
        if contract.expression is None:
            self.uses_run = True
            return [note]
        check = ir.Condition(contract.text, contract.expression)
        return self.condition(check, scope, failure, is_contract=True, in_loop=in_loop)

    def condition(
        self,
        check: ir.Condition,
        scope: PythonScope,
        failure: Sequence[ast.stmt],
        *,
        is_contract: bool = False,
        in_loop: bool = False,
    ) -> list[ast.stmt]:
        """Return statements that do `failure` where the condition is not true, or raises."""
        statements: list[ast.stmt] = []
        writer = ExpressionWriter(self.module, scope, statements)
        test = writer.condition(check.expression)
        self.uses_run |= writer.uses_run
        if not writer.may_raise:
            return [*statements, _for_every(test, failure) or if_(negate(test), failure)]
        if not statements and not in_loop and fits_inside(test):
            later = ast.Lambda(ast.arguments([], [], None, [], [], None, []), test)
            if is_contract and writer.uses_host:
                self.uses_run = True
                is_kept: ast.expr = call(attribute(name("run"), "holds"), later, ast.Constant(check.text))
            else:
                is_kept = call(self.module.runtime("holds"), later)
            return [if_(ast.UnaryOp(ast.Not(), is_kept), failure)]
        is_met = self.module.names.fresh("is_met")
        handlers = []
        if is_contract and writer.uses_host:
            self.uses_run = True
            noted = call(attribute(name("run"), "note_unverifiable"), ast.Constant(check.text))
            handlers.append(self._handler(self.module.runtime("Unverifiable"), assign(is_met, noted)))
        errors = ast.Tuple([self.module.runtime("NodeError"), name("ArithmeticError")], ast.Load())
        handlers.append(self._handler(errors, assign(is_met, ast.Constant(False))))
        first: ast.stmt = assign(is_met, test)
        if isinstance(test, ast.BoolOp) and isinstance(test.values[-1], ast.Constant):
            first = ast.AnnAssign(store(is_met), name("bool"), test, 1)  # or it is a bool of one value to type checkers
        attempt = ast.Try([*statements, first], handlers, [], [])
        return [attempt, if_(ast.UnaryOp(ast.Not(), name(is_met)), failure)]

    def check_answer(
        self, step: ir.EffectStep, act: ast.expr, scope: PythonScope, statements: list[ast.stmt], *, in_loop: bool
    ) -> ast.expr:
        """Write the checks of an agent's answer, and return the answer that kept them."""
        answer = self.module.names.fresh(f"answer_of_{step.name}")
        statements.append(assign(answer, act))
        inner = scope.bind("value", answer, step.output_type)
        for check in step.checks:
            texts = ast.Constant(step.name), ast.Constant(f"does not hold: {check.text}")
            wrong = raise_(call(self.module.runtime("WrongAnswer"), *texts))
            statements += self.condition(check, inner, [wrong], in_loop=in_loop)
        return name(answer)

    @staticmethod
    def _handler(kind: ast.expr, *body: ast.stmt) -> ast.ExceptHandler:
        return ast.ExceptHandler(kind, None, list(body))

    def raise_contract_error(self, code: str, text: str, phase: str) -> ast.stmt:
        arguments = (ast.Constant(part) for part in (code, text, phase))
        return raise_(call(self.module.runtime("contract_error"), *arguments))


def _for_every(test: ast.expr, failure: Sequence[ast.stmt]) -> ast.stmt | None:
    """Return a loop in place of `all(…)`, which would make a generator; None for another test. The name of the element
    is no other's, and the failure ends the function."""
    match test:
        case ast.Call(
            func=ast.Name("all"), args=[ast.GeneratorExp(elt=body, generators=[ast.comprehension(ifs=[]) as loop])]
        ):
            if isinstance(failure[-1], ast.Raise):
                return ast.For(loop.target, loop.iter, [if_(negate(body), failure)], [])
    return None
