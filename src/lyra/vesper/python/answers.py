"""Contracts about the answer: postconditions, then invariants, at the end of every answer that the flow gives.

Names mean, the last of these that has one: an input, for invariants a variable as it stands at the end, a field of the
answer, `success` and `error`. A declared field that the answer lacks is null; where an input has its name, it is the
input. A postcondition that names a success field says nothing about an error, unless it names `success` or `error`; an
invariant that names one says nothing about an error at all. An invariant about a variable without a value says nothing.
The check of an error stands in a function of its own, since errors come from many places.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from lyra.vesper.ir import Contract, NodeOutput
from lyra.vesper.python.draft import Checks, NodeDraft, Parameter, fold_answer, is_true
from lyra.vesper.python.expressions import PythonScope
from lyra.vesper.python.kinds import names_in, output_type, parts
from lyra.vesper.python.steps import code_field, new_function
from lyra.vesper.python.syntax import all_of, assign, attribute, call, if_, name, store
from lyra.vesper.values.outcome import NOT_CONFIGURED
from lyra.vesper.values.types import ANY, BOOLEAN, ValueType


class Refusal:
    """A call of the function that turns an error into the answer."""

    def __init__(self, function: str, arguments: list[ast.expr]) -> None:
        self.function = function
        self.arguments = arguments

    def __call__(self, problem: ast.expr) -> ast.expr:
        return call(name(self.function), problem, *self.arguments)


class AnswerWriter:
    """Writes the contracts about the answers of one node. `flow` is the scope of its steps."""

    def __init__(self, draft: NodeDraft, flow: PythonScope) -> None:
        self.draft = draft
        self.program = draft.program
        self.parts = draft.parts
        self.flow = flow
        self.watched = draft.list_watched()
        self.conditional: frozenset[str] = frozenset()  # outputs that may be ABSENT at the end

    # ------------------------------------------------------------ success
    def keep_outputs(
        self, values: Sequence[tuple[NodeOutput, ast.expr]]
    ) -> tuple[list[ast.stmt], list[tuple[NodeOutput, ast.expr]]]:
        """Assign outputs to variables where the answer has contracts; return the assignments and the outputs by
        name."""
        statements: list[ast.stmt] = []
        outputs: list[tuple[NodeOutput, ast.expr]] = []
        for output, value in values:
            if self.draft.has_final_contracts and not isinstance(value, ast.Name | ast.Constant):
                variable = self.draft.names.fresh(f"{output.name}_result")
                statements.append(assign(variable, value))
                outputs.append((output, name(variable)))
            else:
                outputs.append((output, value))
        return statements, outputs

    def ensure_values(self, values: dict[str, ast.expr]) -> list[ast.stmt]:
        """Return the contracts about a success whose fields have these values."""
        if not self.draft.has_final_contracts:
            return []
        statements: list[ast.stmt] = []
        fields: dict[str, str] = {}
        for field, value in values.items():
            if isinstance(value, ast.Name):
                fields[field] = value.id
            elif field in self.draft.final_names():
                fields[field] = self.draft.names.name_value(field)
                statements.append(assign(fields[field], value))
        return [*statements, *self._success_checks(fields, fields, set(values))]

    def ensure_fields(self, outputs: str) -> list[ast.stmt]:
        """Return the contracts about a success whose fields are in a dict."""
        if not self.draft.has_final_contracts:
            return []
        used = self.draft.final_names()
        statements: list[ast.stmt] = []
        fields: dict[str, str] = {}
        in_invariants: dict[str, str] = {}
        present: set[str] = set()
        for output in self.program.success:
            if output.name not in used:
                continue
            if output.required:
                present.add(output.name)
                value: ast.expr = ast.Subscript(name(outputs), ast.Constant(output.name), ast.Load())
            else:
                value = self._field_or_input(outputs, output.name, self.draft.parameters)
            fields[output.name] = in_invariants[output.name] = self.draft.names.name_value(output.name)
            statements.append(assign(fields[output.name], value))
            if not output.required and self._is_changed_input(output.name):
                in_invariants[output.name] = self.draft.names.name_value(output.name)
                current = self._field_or_input(outputs, output.name, self.flow.python)
                statements.append(assign(in_invariants[output.name], current))
        return [*statements, *self._success_checks(fields, in_invariants, present)]

    def _field_or_input(self, fields: str, field: str, python: dict[str, str]) -> ast.expr:
        """Return the field of an answer; where it lacks it, the input of that name or null."""
        fallback = [name(python[field])] if field in self.draft.parameters else []
        return call(attribute(name(fields), "get"), ast.Constant(field), *fallback)

    def _is_changed_input(self, field: str) -> bool:
        return field in self.draft.parameters and field in self.watched

    def _success_checks(
        self, fields: dict[str, str], in_invariants: dict[str, str], present: set[str]
    ) -> list[ast.stmt]:
        program = self.program
        postconditions = self._leave_unsettled(program.postconditions, is_success=True)
        invariants = self._leave_unsettled(self._find_invariants(), is_success=True)
        used = names_in((*(item for _, item in postconditions), *(item for _, item in invariants)))
        kinds = {output.name: output_type(output) for output in program.success if output.name in present}
        kinds.update({field: ANY for field in fields if field not in present})
        shared: dict[str, str] = {}
        statements: list[ast.stmt] = []
        for output in (*program.success, *program.error):
            is_missing = output.name not in fields and output.name not in shared
            if output.name in used and is_missing and output.name not in self.draft.parameters:
                shared[output.name] = self.draft.names.name_value(output.name)
                kinds[output.name] = ANY
                statements.append(ast.AnnAssign(store(shared[output.name]), self.parts.any(), ast.Constant(None), 1))
        statements += self._results(shared, kinds, used, ast.Constant(None))
        checks = Checks(self.parts)
        scope = self._scope({**fields, **shared}, kinds)
        for _, contract in postconditions:
            broken = checks.raise_contract_error("postcondition_failed", contract.text, "postcondition")
            statements += checks.contract(contract, scope, [broken])
        for _, contract in invariants:
            statements += self._invariant(contract, {**in_invariants, **shared}, kinds, checks, self.flow.python)
        self.draft.needs_run |= checks.uses_run
        return statements

    def _leave_unsettled(self, contracts: Sequence[Contract], *, is_success: bool) -> list[tuple[Contract, Contract]]:
        """Return the contracts that a success, or an error, does not fulfil by itself: as written, and what is left."""
        known = {*self.draft.parameters, *(output.name for output in (*self.program.success, *self.program.error))}
        left: list[tuple[Contract, Contract]] = []
        for contract in contracts:
            if contract.expression is None:
                left.append((contract, contract))
                continue
            expression = fold_answer(contract.expression, known, is_success=is_success)
            if not is_true(expression):
                left.append((contract, msgspec.structs.replace(contract, expression=expression)))
        return left

    def _find_invariants(self) -> list[Contract]:
        """Return the invariants that can be judged; the others were noted before the first step."""
        return [item for item in self.program.invariants if item.expression is not None]

    def _scope(self, fields: dict[str, str], kinds: dict[str, ValueType]) -> PythonScope:
        draft = self.draft
        python = {**draft.parameters, **fields, **draft.olds}
        return PythonScope(python, {**draft.kinds, **kinds, **draft.old_kinds}, None, self.conditional)

    def _invariant(
        self,
        contract: Contract,
        fields: dict[str, str],
        kinds: dict[str, ValueType],
        checks: Checks,
        python: dict[str, str],
    ) -> list[ast.stmt]:
        """Return the check of an invariant at the end; `python` has the names of the variables there."""
        used = [variable for variable in self.watched if variable in names_in(contract.expression)]
        scope = self._scope(fields, kinds)
        waiting: list[ast.expr] = []
        for variable in used:
            if variable in fields:
                continue
            scope = scope.bind(variable, python[variable], self.flow.kinds.get(variable, ANY))
            if variable in self.flow.absent:
                absent = self.parts.runtime("ABSENT")
                waiting.append(ast.Compare(name(python[variable]), [ast.IsNot()], [absent]))
        broken = checks.raise_contract_error("invariant_failed", contract.text, "invariant")
        statements = checks.contract(contract, scope, [broken])
        return [if_(all_of(waiting), statements)] if waiting else statements

    def _results(
        self, fields: dict[str, str], kinds: dict[str, ValueType], used: set[str], error: ast.expr
    ) -> list[ast.stmt]:
        """Assign `success` and `error` to variables where a contract names them."""
        statements: list[ast.stmt] = []
        if "success" in used:
            fields["success"] = self.draft.names.fresh("success")
            kinds["success"] = BOOLEAN
            is_success = isinstance(error, ast.Constant)
            statements.append(assign(fields["success"], ast.Constant(is_success)))
        if "error" in used:
            fields["error"] = self.draft.names.fresh("error")
            kinds["error"] = ANY
            statements.append(assign(fields["error"], call(self.parts.runtime("error_object"), error)))
        return statements

    # ------------------------------------------------------------ errors
    def about_errors(self) -> tuple[list[tuple[Contract, Contract]], list[tuple[Contract, Contract]]]:
        """Return the postconditions and the invariants that an error does not fulfil by itself."""
        postconditions = [item for item in self.program.postconditions if not self._is_vacuous(item)]
        invariants = [item for item in self._find_invariants() if not names_in(item.expression) & self._success_only()]
        unsettled = (self._leave_unsettled(contracts, is_success=False) for contracts in (postconditions, invariants))
        return next(unsettled), next(unsettled)

    def refusal(self) -> Refusal | None:
        """Return how an error is turned into the answer, if a contract has a say in it."""
        postconditions, invariants = self.about_errors()
        if not postconditions and not invariants:
            return None
        function = self.draft.names.private("refused")
        left = tuple(item for _, item in (*postconditions, *invariants))
        used = names_in(left)
        cause = self.draft.names.fresh("problem")
        variables = [
            variable for variable in self.watched if variable in names_in(tuple(item for _, item in invariants))
        ]
        python = {variable: self.draft.names.name_value(variable) for variable in variables}
        checks = Checks(self.parts)
        body = self._refusal_body(postconditions, invariants, cause, python, checks)
        olds = {f"old({part.slot})" for part in parts(left) if hasattr(part, "slot")}
        parameters, arguments = self.draft.pass_inputs(used | olds, uses_run=checks.uses_run)
        current: list[Parameter] = [(text, self.parts.any(), None) for text in python.values()]
        arguments += [name(self.flow.python[variable]) for variable in variables]
        problem = ast.BinOp(self.parts.runtime("NodeError"), ast.BitOr(), name("ArithmeticError"))
        doc = ast.Expr(ast.Constant("Return the error as the answer, if the contracts allow it."))
        first: Parameter = (cause, problem, None)
        result = self.parts.runtime("NodeError")
        self.draft.helpers.append(new_function(function, [first, *parameters, *current], [doc, *body], result))
        return Refusal(function, arguments)

    def _success_only(self) -> set[str]:
        """Return the success fields that have no value in an error answer."""
        elsewhere = {*self.draft.parameters, *(output.name for output in self.program.error)}
        return {output.name for output in self.program.success} - elsewhere

    def _is_vacuous(self, contract: Contract) -> bool:
        """Return whether it is about success fields only, and so says nothing about an error."""
        names = names_in(contract.expression)
        return bool(names & self._success_only()) and not names & {"success", "error"}

    def _refusal_body(
        self,
        postconditions: Sequence[tuple[Contract, Contract]],
        invariants: Sequence[tuple[Contract, Contract]],
        cause: str,
        python: dict[str, str],
        checks: Checks,
    ) -> list[ast.stmt]:
        used = names_in(tuple(item for _, item in (*postconditions, *invariants)))
        error = self.draft.names.fresh("error_answer")
        statements: list[ast.stmt] = [assign(error, call(self.parts.runtime("as_error"), name(cause)))]
        declared = dict.fromkeys(
            output.name for output in (*self.program.success, *self.program.error) if output.name in used
        )
        if not self.program.pure:  # a mistake of the host program is no outcome of the node
            code = ast.Compare(attribute(name(error), "code"), [ast.Eq()], [ast.Constant(NOT_CONFIGURED)])
            statements.append(if_(code, [ast.Return(name(error))]))
        facts = self.draft.names.fresh("fields")
        if declared or any(self._find_doubtful_fields(contract) for contract, _ in (*postconditions, *invariants)):
            arguments = name(error), ast.Constant(code_field(self.program))
            statements.append(assign(facts, call(self.parts.runtime("error_fields"), *arguments)))
        fields: dict[str, str] = {}
        in_invariants: dict[str, str] = {}
        kinds: dict[str, ValueType] = {}
        for field in declared:
            fields[field] = in_invariants[field] = self.draft.names.name_value(field)
            kinds[field] = ANY
            statements.append(assign(fields[field], self._field_or_input(facts, field, self.draft.parameters)))
            if field in python and self._is_changed_input(field):
                in_invariants[field] = self.draft.names.name_value(field)
                current = self._field_or_input(facts, field, python)
                statements.append(assign(in_invariants[field], current))
        shared: dict[str, str] = {}
        statements += self._results(shared, kinds, used, name(error))
        scope = self._scope({**fields, **shared}, kinds)
        for contract, rest in postconditions:
            broken = checks.raise_contract_error("postcondition_failed", contract.text, "postcondition")
            written = checks.contract(rest, scope, [broken])
            is_about_result = bool(names_in(contract.expression) & {"success", "error"})
            statements += written if is_about_result else self._where_set(contract, facts, written)
        for contract, rest in invariants:
            written = self._invariant(rest, {**in_invariants, **shared}, kinds, checks, python)
            statements += self._where_set(contract, facts, written)
        return [*statements, ast.Return(name(error))]

    def _where_set(self, contract: Contract, facts: str, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements where the error has the fields that a success has, too."""
        fields = map(ast.Constant, self._find_doubtful_fields(contract))
        tests: list[ast.expr] = [ast.Compare(field, [ast.In()], [name(facts)]) for field in fields]
        return [if_(all_of(tests), statements)] if tests else statements

    def _find_doubtful_fields(self, contract: Contract) -> list[str]:
        """Return the fields of a success that the contract names and an error may have or lack."""
        both = {output.name for output in self.program.success} & {output.name for output in self.program.error}
        return sorted((names_in(contract.expression) & both) - {*self.draft.parameters, "message"})
