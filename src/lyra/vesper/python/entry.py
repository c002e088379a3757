"""The first statements of a node's function: inputs in their types, constraints, preconditions, invariants, old values.

Where the entry fails, the validations at the start of the flow have the first word: they stand in a function of their
own, which is called before an entry failure is raised.
"""

from __future__ import annotations

import ast
from itertools import takewhile

from lyra.vesper.ir import Condition, Contract, NodeInput, ValidateStep
from lyra.vesper.python.checks import Checks
from lyra.vesper.python.draft import NodeDraft
from lyra.vesper.python.expressions import ExpressionWriter, PythonScope
from lyra.vesper.python.kinds import FULL, Interval, assigned, bounds, kind_of, names_in
from lyra.vesper.python.layout import SourceComment
from lyra.vesper.python.steps import StepWriter, new_function
from lyra.vesper.python.syntax import assign, call, if_, name, store
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    INTEGER,
    STRING,
    TIMESTAMP,
    DecimalType,
    EnumType,
    Nullable,
)


class EntryWriter:
    """Writes what happens before the first step."""

    def __init__(self, draft: NodeDraft) -> None:
        self.draft = draft
        self.program = draft.program
        self.parts = draft.parts
        self.checks = Checks(draft.parts)

    def statements(self) -> list[ast.stmt]:
        draft, program = self.draft, self.program
        statements: list[ast.stmt] = [line for item in program.inputs for line in self._coercion(item)]
        refused = self._leading_validations()
        checks: list[ast.stmt] = []
        for item in program.inputs:
            for check in item.constraints:
                checks += self._constraint(item, check, refused)
        for contract in program.preconditions:
            broken = self.checks.broken("precondition_failed", contract.text, "precondition")
            checks += self.checks.contract(contract, draft.entry, [*refused, broken])
        known = {*draft.parameters, *program.ambient}
        for contract in program.invariants:
            if names_in(contract.expression) <= known or not self._is_about_variables(contract):
                broken = self.checks.broken("invariant_failed", contract.text, "invariant")
                checks += self.checks.contract(contract, draft.entry, [*refused, broken])
        draft.needs_run |= self.checks.uses_run
        if checks:
            checks.insert(0, SourceComment("What the caller must see to"))
        return [*statements, *checks, *self._old_statements()]

    def _is_about_variables(self, contract: Contract) -> bool:
        """Whether a contract names what has no value before the first step."""
        later = {*self.draft.variables(), "success", "error"}
        later |= {output.name for output in (*self.program.success, *self.program.error)}
        return bool(names_in(contract.expression) & (later - {*self.draft.parameters}))

    def _coercion(self, item: NodeInput) -> list[ast.stmt]:
        python, kind = self.draft.parameters[item.name], self.draft.kinds[item.name]
        label = ast.Constant(item.name)
        checked = {INTEGER: ("int", "to_integer"), STRING: ("str", "to_string"), BOOLEAN: ("bool", "to_boolean")}
        accept = self.parts.runtime("accepted")
        if kind not in checked:
            return [assign(python, call(accept, self.parts.coercer(kind), name(python), label))]
        plain, coercer = checked[kind]
        is_other: ast.expr = ast.Compare(call(name("type"), name(python)), [ast.IsNot()], [name(plain)])
        if kind == INTEGER:
            low, high = self.parts.runtime("INTEGER_MIN"), self.parts.runtime("INTEGER_MAX")
            fits = ast.Compare(low, [ast.LtE(), ast.LtE()], [name(python), high])
            is_other = ast.BoolOp(ast.Or(), [is_other, ast.UnaryOp(ast.Not(), fits)])
        value = call(accept, self.parts.runtime(coercer), name(python), label)
        return [if_(is_other, [assign(python, value)])]

    def _constraint(self, item: NodeInput, check: Condition, refused: list[ast.stmt]) -> list[ast.stmt]:
        kind = self.draft.kinds[item.name]
        python = self.draft.parameters[item.name]
        inner = kind.type if isinstance(kind, Nullable) else kind
        scope = self.draft.entry.bind("value", python, inner)
        broken = self.checks.broken("invalid_input", f"{item.name}: {check.text}", "input")
        statements = self.checks.condition(check, scope, [*refused, broken])
        if not isinstance(kind, Nullable):
            return statements
        return [if_(ast.Compare(name(python), [ast.IsNot()], [ast.Constant(None)]), statements)]

    def _leading_validations(self) -> list[ast.stmt]:
        """A call of the validations at the start of the flow: if one of them fails, its error is the answer."""
        draft = self.draft
        leading = tuple(takewhile(lambda step: isinstance(step, ValidateStep), self.program.steps))
        has_checks = self.program.preconditions or self.program.invariants
        if not leading or not (has_checks or any(item.constraints for item in self.program.inputs)):
            return []
        compensated = tuple(step for rule in self.program.rules for step in rule.compensation)
        used = names_in((leading, self.program.rules)) | set(assigned(compensated))
        scope = PythonScope(draft.parameters, draft.kinds)
        declared: list[ast.stmt] = []
        for variable in draft.variables():
            if variable in used and variable not in draft.parameters:
                scope = scope.bind(variable, draft.names.own(variable), ANY)
                declared.append(ast.AnnAssign(store(scope.python[variable]), self.parts.any(), ast.Constant(None), 1))
        steps = StepWriter(self.parts, self.program, scope, set())
        body = steps.steps(leading)
        if self.program.rules:
            body = steps.with_rules(body, self.program.rules, may_act=False)
        function = draft.names.private("validate_first")
        parameters, arguments = draft.passed(used, uses_run=steps.uses_run)
        doc = ast.Expr(ast.Constant("Raise the error of the first validation that fails."))
        draft.helpers.append(new_function(function, parameters, [doc, *declared, *body], ast.Constant(None)))
        return [ast.Expr(call(name(function), *arguments))]

    def _old_statements(self) -> list[ast.stmt]:
        draft = self.draft
        statements: list[ast.stmt] = []
        for number, node in enumerate(self.program.olds):
            python = draft.names.fresh(f"old_{number}")
            draft.olds[f"old({number})"] = python
            kind = kind_of(node, draft.kinds)
            before: list[ast.stmt] = []
            writer = ExpressionWriter(self.parts, draft.entry, before)
            value = writer.value(node)
            draft.needs_run |= writer.uses_run
            is_plain = kind in (STRING, INTEGER, BOOLEAN, TIMESTAMP, BYTES) or isinstance(kind, DecimalType | EnumType)
            if not writer.may_raise and is_plain:
                draft.old_kinds[f"old({number})"] = kind
                statements += [*before, assign(python, value)]
                continue
            copied = call(self.parts.runtime("snapshot"), value)
            annotated = ast.AnnAssign(store(python), self.parts.any(), copied, 1)
            if not writer.may_raise:
                statements += [*before, annotated]
                continue
            problem = draft.names.fresh("problem")
            keep = assign(python, call(self.parts.runtime("as_error"), name(problem)))
            handler = ast.ExceptHandler(draft.errors(), problem, [keep])
            statements.append(ast.Try([*before, annotated], [handler], [], []))
        return statements


def input_intervals(draft: NodeDraft) -> dict[str, Interval]:
    """What constraints and preconditions say about integers."""
    intervals: dict[str, Interval] = {}
    for item in draft.program.inputs:
        if draft.kinds[item.name] != INTEGER:
            continue
        limits = [bounds(check.expression, "value") for check in item.constraints]
        conditions = [contract.expression for contract in draft.program.preconditions]
        limits += [bounds(condition, item.name) for condition in conditions if condition is not None]
        low = max([FULL[0], *(limit[0] for limit in limits)])
        intervals[item.name] = low, min([FULL[1], *(limit[1] for limit in limits)])
    return intervals
