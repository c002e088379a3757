"""A Python module for a node: one function named like the node id, which checks, computes and returns its outputs.

`generate(program)` builds the syntax tree and says how to call the function; `source(program)` is the module's text.
The function takes the inputs as keywords, in JSON shape or as Python values. It returns a dict of outputs or raises a
NodeError. A node with effects becomes a coroutine function whose first parameter performs the effects. Where a node can
end in several places, its steps stand in a function of their own, so that contracts about the answer are in one place.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

import msgspec

from lyra.vesper.ir import expressions as ir
from lyra.vesper.ir.program import (
    Assign,
    Check,
    Contract,
    ForEach,
    Input,
    Output,
    Parallel,
    Program,
    Return,
    Step,
    Validate,
)
from lyra.vesper.python.checks import Checks
from lyra.vesper.python.expressions import ExpressionWriter, PythonScope
from lyra.vesper.python.kinds import (
    FULL,
    Interval,
    assigned,
    bounds,
    kind_of,
    names_in,
    parts,
    read_too_early,
    settled_after,
    variable_kinds,
)
from lyra.vesper.python.layout import SourceComment, module_text
from lyra.vesper.python.names import Names, function_name
from lyra.vesper.python.steps import (
    StepWriter,
    acts_outside,
    code_field,
    never_ends,
    new_function,
    output_type,
)
from lyra.vesper.python.syntax import ModuleParts, assign, attribute, call, if_, name, raise_, store
from lyra.vesper.python.unused import drop_unused, names_read
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
    Type,
    describe,
)

__all__ = ["HEADER", "Generated", "generate", "source"]

HEADER: Final = "# AUTO-GENERATED - DO NOT EDIT"
_DOC_WIDTH: Final = 100


class Generated(msgspec.Struct, frozen=True):
    """A module's tree, and how its function is called."""

    tree: ast.Module
    function: str
    parameters: dict[str, str]  # the Python name of each input
    needs_run: bool
    is_async: bool


def generate(program: Program) -> Generated:
    """The module of a node."""
    return _ModuleGenerator(program).module()


def source(program: Program) -> str:
    """The text of the node's module."""
    return module_text([HEADER], generate(program).tree)


def input_type(declared: Input) -> Type:
    """The type of an input's value: null too, where it may be absent without a default."""
    is_absent_null = not declared.required and declared.default in (msgspec.UNSET, None)
    return Nullable(declared.type) if is_absent_null and not isinstance(declared.type, Nullable) else declared.type


class _ModuleGenerator:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.function = function_name(program.node_id)
        self.names = Names(self.function)
        self.parts = ModuleParts(self.names, _own_names(program))
        self.helpers: list[ast.stmt] = []  # functions before the node's own
        self.needs_run = False
        self.is_async = not program.pure
        self.parameters = {declared.name: self.names.own(declared.name) for declared in program.inputs}
        self.kinds = {declared.name: input_type(declared) for declared in program.inputs}
        self.intervals = self._input_intervals()
        self.entry = PythonScope(self.parameters, self.kinds)
        self.checks = Checks(self.parts)
        self.olds: dict[str, str] = {}
        self.old_kinds: dict[str, Type] = {}
        self.conditional: frozenset[str] = frozenset()  # outputs that may be ABSENT at the end
        self.flow: PythonScope | None = None  # variables, where the steps stand in the node's own function

    # ------------------------------------------------------------ the module
    def module(self) -> Generated:
        body = self._entry_statements()
        body += self._flow_statements()
        if self.needs_run:
            body = [*self._run_statements(), *body]
        function = self._public_function(body)
        origin = f"Generated from the node {self.program.node_id}."
        doc = ast.Expr(ast.Constant("\n".join([*_wrapped(self.program.intent), "", origin])))
        tree = ast.Module([doc, *self.parts.constants, *self.helpers, function], [])
        drop_unused(tree)
        tree.body[1:1] = self._imports(names_read(tree))
        _fill_empty_bodies(tree)
        ast.fix_missing_locations(tree)
        return Generated(tree, self.function, self.parameters, self.needs_run, self.is_async)

    def _imports(self, used: set[str]) -> list[ast.stmt]:
        self.parts.imported("__future__", "annotations")
        modules = sorted(self.parts.imports, key=lambda text: (text.startswith("lyra"), text != "__future__", text))
        return [statement for module in modules for statement in self._imports_of(module, used)]

    def _imports_of(self, module: str, used: set[str]) -> list[ast.stmt]:
        """The imports from one module; names that go by another name here stand on lines of their own."""
        aliases = self.parts.aliases if module.startswith("lyra") else {}
        needed = {text for text in self.parts.imports[module] if aliases.get(text, text) in {*used, "annotations"}}
        names = _import_order(needed)
        plain = [text for text in names if text not in aliases]
        lines: list[ast.stmt] = []
        for text in names:
            if text in aliases:
                lines.append(ast.ImportFrom(module, [ast.alias(text, aliases[text])], 0))
            elif text == plain[0]:
                lines.append(ast.ImportFrom(module, [ast.alias(other) for other in plain], 0))
        return lines

    def _public_function(self, body: list[ast.stmt]) -> ast.stmt:
        words = [
            ast.arg(self.parameters[item.name], self.parts.annotation(self.kinds[item.name]))
            for item in self.program.inputs
        ]
        defaults = [self._default(item) for item in self.program.inputs]
        if self.needs_run:
            optional = ast.BinOp(self.parts.runtime("NodeRun"), ast.BitOr(), ast.Constant(None))
            words.append(ast.arg("run", optional))
            defaults.append(ast.Constant(None))
        first = [ast.arg("effects", self.parts.runtime("Effects"))] if self.is_async else []
        arguments = ast.arguments([], first, None, words, defaults, None, [])
        kind = ast.AsyncFunctionDef if self.is_async else ast.FunctionDef
        doc = ast.Expr(ast.Constant(self._documentation()))
        return kind(self.function, arguments, [doc, *body], [], self.parts.dict_type())

    def _default(self, declared: Input) -> ast.expr | None:
        if declared.required:
            return None
        if declared.default is msgspec.UNSET or declared.default is None:
            return ast.Constant(None)
        value = self.parts.literal(declared.default)
        is_plain = isinstance(value, ast.Constant | ast.UnaryOp | ast.Name)
        return value if is_plain else self.parts.constant(f"{declared.name}_default", value)

    def _documentation(self) -> str:
        lines = _wrapped(self.program.intent)
        if self.program.inputs:
            lines += ["", "Inputs:"]
            for item in self.program.inputs:
                note = f": {_one_line(item.description)}" if item.description else ""
                lines += _wrapped(f"{self.parameters[item.name]} ({describe(item.type)}){note}", "    ")
        if self.program.success:
            lines += ["", "Returns:"]
            for output in self.program.success:
                lines += _wrapped(f"{output.name} ({describe(output.type)})", "    ")
        for title, contracts in (
            ("Requires", self.program.preconditions),
            ("Ensures", self.program.postconditions),
            ("Keeps", self.program.invariants),
        ):
            if contracts:
                lines += ["", f"{title}:", *(line for item in contracts for line in _wrapped(item.text, "    "))]
        return "\n".join([*lines, ""]).rstrip("\n") if len(lines) > 1 else lines[0]

    def _run_statements(self) -> list[ast.stmt]:
        limits = self.program.limits
        fresh = ast.BoolOp(ast.Or(), [name("run"), call(self.parts.runtime("NodeRun"))])
        effects = name("effects") if self.is_async else ast.Constant(None)
        arguments: list[ast.expr] = [effects, ast.Constant(limits.steps), ast.Constant(limits.time_s)]
        key = self.parameters.get(self.program.idempotency_key)
        if key is not None:
            arguments.append(name(key))
        return [assign("run", fresh), ast.Expr(call(attribute(name("run"), "start"), *arguments))]

    # ------------------------------------------------------------ the entry
    def _entry_statements(self) -> list[ast.stmt]:
        program = self.program
        statements: list[ast.stmt] = [line for item in program.inputs for line in self._coercion(item)]
        refused = self._leading_validations()
        checks: list[ast.stmt] = []
        for item in program.inputs:
            for check in item.constraints:
                checks += self._constraint(item, check, refused)
        for contract in program.preconditions:
            broken = self.checks.broken("precondition_failed", contract.text, "precondition")
            checks += self.checks.contract(contract, self.entry, [*refused, broken])
        known = {*self.parameters, *program.ambient}
        for contract in program.invariants:
            if names_in(contract.expression) <= known or not self._is_about_variables(contract):
                broken = self.checks.broken("invariant_failed", contract.text, "invariant")
                checks += self.checks.contract(contract, self.entry, [*refused, broken])
        self.needs_run |= self.checks.uses_run
        if checks:
            checks.insert(0, SourceComment("What the caller must see to"))
        return [*statements, *checks, *self._old_statements()]

    def _is_about_variables(self, contract: Contract) -> bool:
        """Whether a contract names what has no value before the first step."""
        later = {*assigned(self.program.steps), "success", "error"}
        later |= {output.name for output in (*self.program.success, *self.program.error)}
        return bool(names_in(contract.expression) & (later - {*self.parameters}))

    def _coercion(self, item: Input) -> list[ast.stmt]:
        python, kind = self.parameters[item.name], self.kinds[item.name]
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

    def _constraint(self, item: Input, check: Check, refused: list[ast.stmt]) -> list[ast.stmt]:
        kind = self.kinds[item.name]
        python = self.parameters[item.name]
        inner = kind.type if isinstance(kind, Nullable) else kind
        scope = self.entry.bind("value", python, inner)
        broken = self.checks.broken("invalid_input", f"{item.name}: {check.text}", "input")
        statements = self.checks.condition(check, scope, [*refused, broken])
        if not isinstance(kind, Nullable):
            return statements
        return [if_(ast.Compare(name(python), [ast.IsNot()], [ast.Constant(None)]), statements)]

    def _leading_validations(self) -> list[ast.stmt]:
        """A call of the validations at the start of the flow: if one of them fails, its error is the answer."""
        leading = tuple(takewhile(lambda step: isinstance(step, Validate), self.program.steps))
        has_checks = self.program.preconditions or self.program.invariants
        if not leading or not (has_checks or any(item.constraints for item in self.program.inputs)):
            return []
        used = names_in((leading, self.program.rules))
        scope = PythonScope(self.parameters, self.kinds)
        declared: list[ast.stmt] = []
        for variable in assigned((*self.program.steps, *_compensations(self.program))):
            if variable in used and variable not in self.parameters:
                scope = scope.bind(variable, self.names.own(variable), ANY)
                declared.append(ast.AnnAssign(store(scope.python[variable]), self.parts.any(), ast.Constant(None), 1))
        steps = StepWriter(self.parts, self.program, scope, set())
        body = steps.steps(leading)
        if self.program.rules:
            body = steps.with_rules(body, self.program.rules, may_act=False)
        function = self.names.private("validate_first")
        parameters, arguments = self._passed(used, uses_run=steps.uses_run)
        doc = ast.Expr(ast.Constant("Raise the error of the first validation that fails."))
        self.helpers.append(new_function(function, parameters, [doc, *declared, *body], ast.Constant(None)))
        return [ast.Expr(call(name(function), *arguments))]

    def _passed(
        self, used: set[str], *, uses_run: bool
    ) -> tuple[list[tuple[str, ast.expr, ast.expr | None]], list[ast.expr]]:
        """Parameters of a helper function for the inputs that it uses, and the arguments at its call."""
        parameters: list[tuple[str, ast.expr, ast.expr | None]] = []
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

    def _input_intervals(self) -> dict[str, Interval]:
        """What constraints and preconditions say about integers."""
        intervals: dict[str, Interval] = {}
        for item in self.program.inputs:
            if self.kinds[item.name] != INTEGER:
                continue
            limits = [bounds(check.expression, "value") for check in item.constraints]
            conditions = [contract.expression for contract in self.program.preconditions]
            limits += [bounds(condition, item.name) for condition in conditions if condition is not None]
            low = max([FULL[0], *(limit[0] for limit in limits)])
            intervals[item.name] = low, min([FULL[1], *(limit[1] for limit in limits)])
        return intervals

    def _old_statements(self) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for number, node in enumerate(self.program.olds):
            python = self.names.fresh(f"old_{number}")
            self.olds[f"old({number})"] = python
            kind = kind_of(node, self.kinds)
            before: list[ast.stmt] = []
            writer = ExpressionWriter(self.parts, self.entry, before)
            value = writer.value(node)
            self.needs_run |= writer.uses_run
            is_plain = kind in (STRING, INTEGER, BOOLEAN, TIMESTAMP, BYTES) or isinstance(kind, DecimalType | EnumType)
            if not writer.may_raise and is_plain:
                self.old_kinds[f"old({number})"] = kind
                statements += [*before, assign(python, value)]
                continue
            copied = call(self.parts.runtime("snapshot"), value)
            annotated = ast.AnnAssign(store(python), self.parts.any(), copied, 1)
            if not writer.may_raise:
                statements += [*before, annotated]
                continue
            problem = self.names.fresh("problem")
            errors = ast.Tuple([self.parts.runtime("NodeError"), name("ArithmeticError")], ast.Load())
            keep = assign(python, call(self.parts.runtime("as_error"), name(problem)))
            handler = ast.ExceptHandler(errors, problem, [keep])
            statements.append(ast.Try([*before, annotated], [handler], [], []))
        return statements

    # ------------------------------------------------------------ the flow
    def _flow_scope(self) -> tuple[PythonScope, list[ast.stmt], set[str]]:
        """The scope of the steps, and declarations of variables that need one."""
        program = self.program
        acts = (*program.steps, *_compensations(program))
        variables = assigned(acts)
        kinds = variable_kinds(program.steps, self.kinds)
        python = {**self.parameters, **{variable: self.names.own(variable) for variable in variables}}
        settled = settled_after(program.steps, frozenset(self.parameters), set())
        wanted = {output.name for output in program.success} if _falls_through(program.steps) else set()
        absent = {item for item in variables if item in wanted and item not in settled}
        absent |= {item for item in variables if item in names_in(program.invariants)} - set(self.parameters)
        early = read_too_early(program.steps, frozenset(self.parameters)) | absent
        early |= names_in((program.rules, *(getattr(step, "rules", ()) for step in parts(program.steps))))
        early |= _shared(program.steps) | _of_several_types(acts, kinds)
        first: list[ast.stmt] = []
        declared: set[str] = set()
        for variable in variables:
            if variable in self.parameters:
                value: ast.expr = name(self.parameters[variable])
            elif variable in early:
                value = self.parts.runtime("ABSENT") if variable in absent else ast.Constant(None)
            else:
                continue
            declared.add(variable)
            first.append(ast.AnnAssign(store(python[variable]), self.parts.any(), value, 1))
        kinds.update({item: ANY for item in variables if item in absent})
        intervals = {item: limits for item, limits in self.intervals.items() if item not in variables}
        return PythonScope(python, kinds, intervals, frozenset(absent)), first, declared

    def _flow_statements(self) -> list[ast.stmt]:
        scope, first, declared = self._flow_scope()
        steps = StepWriter(self.parts, self.program, scope, declared)
        if self._is_straight():
            return self._straight(steps, first)
        return self._apart(steps, first)

    def _is_straight(self) -> bool:
        """Whether success is reached in one place only, at the end, and no rule looks at errors."""
        program = self.program
        if self.is_async or program.rules:
            return False
        returns = [step for step in parts(program.steps) if isinstance(step, Return) and step.success is not None]
        last = program.steps[-1] if program.steps else None
        return not returns or (returns == [last] and not returns[0].guards)

    def _straight(self, steps: StepWriter, first: list[ast.stmt]) -> list[ast.stmt]:
        """The steps inside the node's function itself."""
        program = self.program
        flow = program.steps
        last = flow[-1] if flow else None
        if isinstance(last, Return) and last.success is not None:
            body = steps.steps(flow[:-1])
            before, values = steps.success_values(last.success)
        else:
            body = steps.steps(flow)
            settled = settled_after(flow, frozenset(self.parameters), set())
            before, values = steps.fall_through(settled)
        self.needs_run |= steps.uses_run
        ends = bool(body and never_ends(body)) or bool(before and isinstance(before[-1], ast.Raise))
        if ends and not values:
            before = before if not (body and never_ends(body)) else []
            return self._guarded([*first, *body, *before], steps)
        kept, outputs = self._kept(values)
        results = ast.Return(steps.outputs(outputs))
        self.conditional = frozenset(steps.conditional)
        self.flow = steps.scope
        ensured = self._ensured({output.name: value for output, value in outputs})
        if not ensured:
            return self._guarded([*first, *body, *before, *kept, results], steps)
        return [*self._guarded([*first, *body, *before, *kept], steps), *ensured, results]

    def _kept(self, values: Sequence[tuple[Output, ast.expr]]) -> tuple[list[ast.stmt], list[tuple[Output, ast.expr]]]:
        """Outputs in variables, where contracts look at them."""
        used = names_in((self.program.postconditions, self.program.invariants))
        statements: list[ast.stmt] = []
        outputs: list[tuple[Output, ast.expr]] = []
        for output, value in values:
            is_looked_at = bool(self.program.postconditions or self.program.invariants) or output.name in used
            if is_looked_at and not isinstance(value, ast.Name | ast.Constant):
                variable = self.names.fresh(f"{output.name}_result")
                statements.append(assign(variable, value))
                outputs.append((output, name(variable)))
            else:
                outputs.append((output, value))
        return statements, outputs

    def _guarded(self, body: list[ast.stmt], steps: StepWriter) -> list[ast.stmt]:
        """The statements, with the handlers for errors that they raise."""
        refusal = self._refusal() if steps.may_raise else None
        if refusal is None and not _uses_exact(body):
            return body
        problem = self.names.fresh("problem")
        if refusal is None:
            error = call(self.parts.runtime("arithmetic_error"), name(problem))
            handler = ast.ExceptHandler(name("ArithmeticError"), problem, [raise_(error, plainly=True)])
        else:
            errors = ast.Tuple([self.parts.runtime("NodeError"), name("ArithmeticError")], ast.Load())
            handler = ast.ExceptHandler(errors, problem, [raise_(refusal(name(problem)), plainly=True)])
        return [ast.Try(body, [handler], [], [])]

    def _apart(self, steps: StepWriter, first: list[ast.stmt]) -> list[ast.stmt]:
        """The steps in a function of their own, which returns the outputs."""
        program = self.program
        body = steps.steps(program.steps)
        if not never_ends(body):
            settled = settled_after(program.steps, frozenset(self.parameters), set())
            before, values = steps.fall_through(settled)
            body += before
            if not (before and isinstance(before[-1], ast.Raise)):
                body.append(ast.Return(steps.outputs(values)))
        if any(rule.action in ("map_to", "return_error", "compensate") for rule in program.rules):
            body = steps.with_rules(body, program.rules, may_act=self.is_async)
        function = self.names.private("steps")
        used = names_in((program.steps, program.rules, program.invariants)) | set(assigned(program.steps))
        used |= {output.name for output in program.success}
        parameters, arguments = self._passed(used, uses_run=steps.uses_run or self.is_async)
        doc = ast.Expr(ast.Constant("Run the steps and return the outputs."))
        self.helpers.append(
            new_function(function, parameters, [doc, *first, *body], self.parts.dict_type(), is_async=self.is_async)
        )
        flow: ast.expr = call(name(function), *arguments)
        flow = ast.Await(flow) if self.is_async else flow
        outputs_name = self.names.fresh("outputs")
        ensured = self._ensured_apart(outputs_name)
        if self.is_async:
            return self._apart_async(flow, outputs_name, ensured)
        if not ensured:
            return self._guarded_call([ast.Return(flow)], body, steps)
        return [
            *self._guarded_call([assign(outputs_name, flow)], body, steps),
            *ensured,
            ast.Return(name(outputs_name)),
        ]

    def _guarded_call(self, statements: list[ast.stmt], body: list[ast.stmt], steps: StepWriter) -> list[ast.stmt]:
        guarded = self._guarded([*statements, *body], steps)
        if len(guarded) == 1 and isinstance(guarded[0], ast.Try):
            guarded[0].body = statements
            return guarded
        return statements

    def _apart_async(self, flow: ast.expr, outputs: str, ensured: list[ast.stmt]) -> list[ast.stmt]:
        self.needs_run = True
        refusal = self._refusal()
        problem = self.names.fresh("problem")
        errors = ast.Tuple([self.parts.runtime("NodeError"), name("ArithmeticError")], ast.Load())
        error: ast.expr = ast.Await(call(attribute(name("run"), "settled"), name(problem)))
        handler = ast.ExceptHandler(errors, problem, [raise_(refusal(error) if refusal else error, plainly=True)])
        result: list[ast.stmt] = [ast.Try([assign(outputs, flow)], [handler], [], [])]
        if ensured and self.program.invariants:
            second = self.names.fresh("problem")
            undo = ast.Await(call(attribute(name("run"), "settled"), name(second)))
            caught = ast.ExceptHandler(self.parts.runtime("NodeError"), second, [raise_(undo, plainly=True)])
            ensured = [ast.Try(ensured, [caught], [], [])]
        return [*result, *ensured, ast.Return(name(outputs))]

    # ------------------------------------------------------------ contracts about the answer
    def _answer_scope(self, fields: dict[str, str], kinds: dict[str, Type]) -> PythonScope:
        python = {**self.parameters, **fields, **self.olds}
        return PythonScope(python, {**self.kinds, **kinds, **self.old_kinds}, None, self.conditional)

    def _ensured(self, values: dict[str, ast.expr]) -> list[ast.stmt]:
        """Postconditions and invariants about a success whose fields have these values."""
        if not (self.program.postconditions or self.program.invariants):
            return []
        used = names_in((self.program.postconditions, self.program.invariants))
        statements: list[ast.stmt] = []
        fields: dict[str, str] = {}
        for field, value in values.items():
            if isinstance(value, ast.Name):
                fields[field] = value.id
            elif field in used:
                fields[field] = self.names.own(field)
                statements.append(assign(fields[field], value))
        return [*statements, *self._success_checks(fields, set(values))]

    def _ensured_apart(self, outputs: str) -> list[ast.stmt]:
        if not (self.program.postconditions or self.program.invariants):
            return []
        used = names_in((self.program.postconditions, self.program.invariants))
        statements: list[ast.stmt] = []
        fields: dict[str, str] = {}
        present: set[str] = set()
        for output in self.program.success:
            if output.name not in used:
                continue
            fields[output.name] = self.names.own(output.name)
            value: ast.expr = ast.Subscript(name(outputs), ast.Constant(output.name), ast.Load())
            if output.required:
                present.add(output.name)
            else:
                fallback = self.parameters.get(output.name)
                arguments = [ast.Constant(output.name), *([name(fallback)] if fallback else [])]
                value = call(attribute(name(outputs), "get"), *arguments)
            statements.append(assign(fields[output.name], value))
        return [*statements, *self._success_checks(fields, present)]

    def _success_checks(self, fields: dict[str, str], present: set[str]) -> list[ast.stmt]:
        program = self.program
        used = names_in((program.postconditions, program.invariants))
        kinds = {output.name: output_type(output) for output in program.success if output.name in present}
        kinds.update({field: ANY for field in fields if field not in present})
        statements: list[ast.stmt] = []
        for output in (*program.success, *program.error):
            if output.name in used and output.name not in fields and output.name not in self.parameters:
                fields[output.name] = self.names.own(output.name)
                statements.append(ast.AnnAssign(store(fields[output.name]), self.parts.any(), ast.Constant(None), 1))
        statements += self._results(fields, kinds, used, ast.Constant(None))
        scope = self._answer_scope(fields, kinds)
        for contract in program.postconditions:
            broken = self.checks.broken("postcondition_failed", contract.text, "postcondition")
            statements += self.checks.contract(contract, scope, [broken])
        statements += self._final_invariants(fields, kinds)
        self.needs_run |= self.checks.uses_run
        return statements

    def _final_invariants(self, fields: dict[str, str], kinds: dict[str, Type]) -> list[ast.stmt]:
        """Invariants at the end of a success. One about a variable without a value says nothing."""
        statements: list[ast.stmt] = []
        variables = set(assigned(self.program.steps)) - set(fields)
        for contract in self.program.invariants:
            used = names_in(contract.expression) & variables
            broken = [self.checks.broken("invariant_failed", contract.text, "invariant")]
            if self.flow is None or not used:
                if not used - set(self.parameters):
                    statements += self.checks.contract(contract, self._answer_scope(fields, kinds), broken)
                continue
            scope = self._answer_scope(fields, kinds)
            for variable in used:
                scope = scope.bind(variable, self.flow.python[variable], self.flow.kinds.get(variable, ANY))
            check = self.checks.contract(contract, scope, broken)
            waiting = sorted(used & self.flow.absent)
            for variable in waiting:
                python, absent = name(self.flow.python[variable]), self.parts.runtime("ABSENT")
                check = [if_(ast.Compare(python, [ast.IsNot()], [absent]), check)]
            statements += check
        return statements

    def _results(
        self, fields: dict[str, str], kinds: dict[str, Type], used: set[str], error: ast.expr
    ) -> list[ast.stmt]:
        """`success` and `error`, where a contract names them."""
        statements: list[ast.stmt] = []
        if "success" in used:
            fields["success"] = self.names.fresh("success")
            kinds["success"] = BOOLEAN
            is_success = isinstance(error, ast.Constant)
            statements.append(assign(fields["success"], ast.Constant(is_success)))
        if "error" in used:
            fields["error"] = self.names.fresh("error")
            kinds["error"] = ANY
            statements.append(assign(fields["error"], call(self.parts.runtime("error_object"), error)))
        return statements

    def _refusal(self) -> _Refusal | None:
        """How an error is turned into the answer, if a contract has a say in it."""
        contracts = [item for item in self.program.postconditions if not self._is_vacuous(item)]
        contracts_left = [item for item in contracts if item.expression is None or self._can_judge(item)]
        if not contracts_left:
            return None
        function = self.names.private("refused")
        used = names_in(tuple(contracts_left))
        cause = self.names.fresh("problem")
        body, uses_run = self._refusal_body(contracts_left, used, cause)
        olds = {f"old({part.slot})" for part in parts(tuple(contracts_left)) if hasattr(part, "slot")}
        parameters, arguments = self._passed(used | olds, uses_run=uses_run)
        problem = ast.BinOp(self.parts.runtime("NodeError"), ast.BitOr(), name("ArithmeticError"))
        doc = ast.Expr(ast.Constant("Return the error as the answer, if the postconditions allow it."))
        self.helpers.append(
            new_function(function, [(cause, problem, None), *parameters], [doc, *body], self.parts.runtime("NodeError"))
        )
        return _Refusal(function, arguments)

    def _is_vacuous(self, contract: Contract) -> bool:
        """Whether it is about success fields only, and so says nothing about an error."""
        names = names_in(contract.expression)
        elsewhere = {*self.parameters, *(output.name for output in self.program.error)}
        fields = {output.name for output in self.program.success} - elsewhere
        return bool(names & fields) and not names & {"success", "error"}

    @staticmethod
    def _can_judge(contract: Contract) -> bool:
        return contract.expression is not None

    def _refusal_body(self, contracts: Sequence[Contract], used: set[str], cause: str) -> tuple[list[ast.stmt], bool]:
        error = self.names.fresh("error_answer")
        statements: list[ast.stmt] = [assign(error, call(self.parts.runtime("as_error"), name(cause)))]
        declared = [output.name for output in (*self.program.success, *self.program.error) if output.name in used]
        fields: dict[str, str] = {}
        kinds: dict[str, Type] = {}
        facts = self.names.fresh("fields")
        if declared:
            arguments = name(error), ast.Constant(code_field(self.program))
            statements.append(assign(facts, call(self.parts.runtime("error_fields"), *arguments)))
        for field in dict.fromkeys(declared):
            fields[field] = self.names.own(field)
            kinds[field] = ANY
            fallback = self.parameters.get(field)
            arguments_of_get = [ast.Constant(field), *([name(fallback)] if fallback else [])]
            statements.append(assign(fields[field], call(attribute(name(facts), "get"), *arguments_of_get)))
        statements += self._results(fields, kinds, used, name(error))
        scope = self._answer_scope(fields, kinds)
        checks = Checks(self.parts)
        shared = {output.name for output in self.program.success} & {output.name for output in self.program.error}
        for contract in contracts:
            broken = checks.broken("postcondition_failed", contract.text, "postcondition")
            written = checks.contract(contract, scope, [broken])
            names = names_in(contract.expression)
            doubtful = sorted((names & shared) - {*self.parameters, "message"})
            if doubtful and not names & {"success", "error"}:
                tests: list[ast.expr] = [
                    ast.Compare(ast.Constant(field), [ast.In()], [name(facts)]) for field in doubtful
                ]
                written = [if_(tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests), written)]
            statements += written
        return [*statements, ast.Return(name(error))], checks.uses_run


class _Refusal:
    """A call of the function that turns an error into the answer."""

    def __init__(self, function: str, arguments: list[ast.expr]) -> None:
        self.function = function
        self.arguments = arguments

    def __call__(self, problem: ast.expr) -> ast.expr:
        return call(name(self.function), problem, *self.arguments)


# ------------------------------------------------------------ questions about a program
def _own_names(program: Program) -> set[str]:
    """All names that the node gives to values."""
    own = {item.name for item in program.inputs} | {item.name for item in (*program.success, *program.error)}
    own |= names_in(program) | set(assigned((*program.steps, *_compensations(program))))
    for part in parts(program):
        match part:
            case ForEach():
                own.add(part.variable)
            case ir.Reduce():
                own |= {part.name, part.accumulator}
            case ir.Quantifier() | ir.MapOver() | ir.Filter() | ir.GroupBy():
                own.add(part.name)
    return own


def _compensations(program: Program) -> tuple[Step, ...]:
    return tuple(step for rule in program.rules for step in rule.compensation)


def _falls_through(steps: tuple[Step, ...]) -> bool:
    return not (steps and isinstance(steps[-1], Return) and not steps[-1].guards)


def _shared(steps: tuple[Step, ...]) -> set[str]:
    """Variables that steps of a Parallel assign while others run."""
    shared: set[str] = set()
    for step in parts(steps):
        if isinstance(step, Parallel) and acts_outside(step):
            shared |= set(assigned(step.steps))
    return shared


def _of_several_types(steps: tuple[Step, ...], kinds: dict[str, Type]) -> set[str]:
    """Variables with more than one assignment whose values have no single Python type."""
    sites = [step.target for step in parts(steps) if isinstance(step, Assign)]
    plain = (STRING, INTEGER, BOOLEAN, TIMESTAMP, BYTES)
    return {
        target
        for target in sites
        if sites.count(target) > 1
        and kinds.get(target, ANY) not in plain
        and not isinstance(kinds.get(target), DecimalType)
    }


def _fill_empty_bodies(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if getattr(node, "body", None) == []:
            node.body = [ast.Pass()]  # type: ignore[attr-defined]


def _uses_exact(body: Sequence[ast.stmt]) -> bool:
    """Whether a statement works with decimals without a handler of its own."""
    return any(
        isinstance(node, ast.Name) and node.id in ("EXACT", "total_decimals")
        for item in body
        for node in ast.walk(item)
    )


def _import_order(names: set[str]) -> list[str]:
    """Constants, then classes, then functions, as import sorters have it."""
    return sorted(names, key=lambda text: (not text.isupper(), not text[0].isupper(), text))


def _one_line(text: str) -> str:
    line = " ".join(text.split()) or "A node."
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _wrapped(text: str, indent: str = "") -> list[str]:
    words = (_one_line(text) if not indent else " ".join(text.split())).split(" ")
    lines = [indent + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) >= _DOC_WIDTH:
            lines.append(indent + word)
        else:
            lines[-1] += " " + word
    return lines
