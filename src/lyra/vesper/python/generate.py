"""A Python module for a node: one function named like the node id, which checks, computes and returns its outputs.

`generate(program)` builds the syntax tree and says how to call the function; `source(program)` is the module's text,
tidied so that linters have nothing to say about it. The function takes the inputs as keywords, in JSON shape or as
Python values. It returns a dict of outputs or raises a NodeError. A node with effects becomes a coroutine function
whose first parameter performs the effects. Where a node can end in several places, its steps stand in a function of
their own, so that contracts about the answer are in one place.

`FlowWriter` writes the statements of the function before the answer: the entry, then the steps.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

import msgspec

from lyra.vesper import ir
from lyra.vesper.ir import NodeInput, NodeProgram
from lyra.vesper.python.answers import AnswerWriter, Refusal
from lyra.vesper.python.draft import Checks, NodeDraft
from lyra.vesper.python.expressions import ExpressionWriter, PythonScope
from lyra.vesper.python.kinds import (
    FULL,
    NUMBER,
    Interval,
    bounds,
    find_settled_after,
    get_writes,
    kind_of,
    names_in,
    parts,
    read_too_early,
    variable_kinds,
)
from lyra.vesper.python.layout import SourceComment, module_text
from lyra.vesper.python.steps import StepWriter, acts_outside, never_ends, new_function
from lyra.vesper.python.syntax import assign, attribute, call, if_, name, raise_, store
from lyra.vesper.python.tidying import drop_unused, join_loops, names_read, shorten_names, tidy
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
    ValueType,
    describe,
)


class FlowWriter:
    """Writes the flow of one node, and what becomes of its answers."""

    def __init__(self, draft: NodeDraft) -> None:
        self.draft = draft
        self.program = draft.program
        self.parts = draft.parts
        self.declarations: dict[str, ast.stmt] = {}  # of variables that need one before the first step
        self.numbers: set[str] = set()  # variables that are now an integer, now a decimal
        scope = self._scope()
        self.steps = StepWriter(
            draft.parts,
            draft.program,
            scope,
            set(self.declarations),
            draft.facts,
            self.numbers - self.declarations.keys(),
        )
        self.answers = AnswerWriter(draft, scope)

    def statements(self) -> list[ast.stmt]:
        return self._straight() if self._is_straight() else self._apart()

    def _scope(self) -> PythonScope:
        """Return the scope of the steps."""
        draft, program = self.draft, self.program
        variables = draft.variables
        inputs = frozenset(draft.parameters)
        kinds = variable_kinds(program.steps, draft.kinds)
        python = {**draft.parameters, **{variable: draft.names.name_value(variable) for variable in variables}}
        settled = find_settled_after(program.steps, inputs, set())
        wanted = {output.name for output in program.success} if _falls_through(program.steps) else set()
        absent = {item for item in variables if item in wanted and item not in settled}
        absent |= set(draft.list_watched()) - inputs
        of_compensations = set(get_writes(draft.acts[len(program.steps) :]))
        kinds.update(dict.fromkeys(of_compensations | absent, ANY))
        early = read_too_early(program.steps, inputs) | absent | of_compensations
        early |= names_in(
            (
                program.rules,
                program.machines,
                *(step.rules for step in parts(program) if isinstance(step, ir.EffectStep | ir.TransactionStep)),
            )
        )
        mixed = _find_mixed_types(draft.acts, kinds)
        self.numbers = {variable for variable in mixed - early if kinds.get(variable) == NUMBER}
        early |= _find_shared_names(program.steps) | (mixed - self.numbers)
        for variable in variables:
            if variable in draft.parameters:
                value: ast.expr = name(draft.parameters[variable])
            elif variable in early:
                value = self.parts.runtime("ABSENT") if variable in absent else ast.Constant(None)
            else:
                continue
            self.declarations[variable] = ast.AnnAssign(store(python[variable]), self.parts.any(), value, 1)
        intervals = {item: limits for item, limits in input_intervals(draft).items() if item not in variables}
        return PythonScope(python, kinds, intervals, frozenset(absent))

    # ------------------------------------------------------------ steps in the node's function
    def _is_straight(self) -> bool:
        """Return whether success is reached in one place only, at the end, and no rule looks at errors."""
        program = self.program
        if self.draft.is_async or program.rules:
            return False
        returns = [
            step for step in parts(program.steps) if isinstance(step, ir.ReturnStep) and step.success is not None
        ]
        last = program.steps[-1] if program.steps else None
        return not returns or (returns == [last] and not returns[0].guards)

    def _straight(self) -> list[ast.stmt]:
        """Return the steps inside the node's function itself."""
        steps, flow = self.steps, self.program.steps[self.draft.validated :]
        first = list(self.declarations.values())
        last = flow[-1] if flow else None
        if isinstance(last, ir.ReturnStep) and last.success is not None:
            body = steps.steps(flow[:-1])
            before, values = steps.success_values(last.success)
        else:
            body = steps.steps(flow)
            before, values = steps.fall_through(self._find_settled())
        self.draft.needs_run |= steps.uses_run
        ends = bool(body and never_ends(body)) or bool(before and isinstance(before[-1], ast.Raise))
        if ends and not values:
            before = before if not (body and never_ends(body)) else []
            return [*first, *self._add_handlers([*body, *before])]
        kept, outputs = self.answers.keep_outputs(values)
        results = ast.Return(steps.outputs(outputs))
        self.answers.conditional = frozenset(steps.conditional)
        ensured = self.answers.ensure_values({output.name: value for output, value in outputs})
        if not ensured:
            return [*first, *self._add_handlers([*body, *before, *kept, results])]
        return [*first, *self._add_handlers([*body, *before, *kept]), *ensured, results]

    def _find_settled(self) -> frozenset[str]:
        return find_settled_after(self.program.steps, frozenset(self.draft.parameters), set())

    def _add_handlers(self, body: list[ast.stmt], inside: list[ast.stmt] | None = None) -> list[ast.stmt]:
        """Return the statements, with the handlers for errors that they raise; `inside` is what a call among them
        runs."""
        refusal = self.answers.refusal() if self.steps.may_raise else None
        if refusal is None and not _uses_exact([*body, *(inside or [])]):
            return body
        problem = self.draft.names.fresh("problem")
        if refusal is None:
            error = call(self.parts.runtime("arithmetic_error"), name(problem))
            handler = ast.ExceptHandler(name("ArithmeticError"), problem, [raise_(error, plainly=True)])
        else:
            handler = ast.ExceptHandler(self.draft.errors(), problem, [raise_(refusal(name(problem)), plainly=True)])
        return [ast.Try(body, [handler], [], [])]

    # ------------------------------------------------------------ steps in a function of their own
    def _apart(self) -> list[ast.stmt]:
        """Return the steps in a function of their own, which returns the outputs."""
        draft, program = self.draft, self.program
        body = self._body()
        function = draft.names.private("steps")
        used = names_in((program.steps, program.rules, program.invariants, program.machines)) | set(draft.variables)
        used |= {output.name for output in program.success}
        parameters, arguments = draft.pass_inputs(used, uses_run=self.steps.uses_run or draft.is_async)
        before = self._define(function, parameters, body)
        flow: ast.expr = call(name(function), *arguments)
        flow = ast.Await(flow) if draft.is_async else flow
        outputs = draft.names.fresh("outputs")
        ensured = self.answers.ensure_fields(outputs)
        if draft.is_async:
            return [*before, *self._await_flow(flow, outputs, ensured)]
        if not ensured:
            return [*before, *self._add_handlers([ast.Return(flow)], body)]
        return [*before, *self._add_handlers([assign(outputs, flow)], body), *ensured, ast.Return(name(outputs))]

    def _body(self) -> list[ast.stmt]:
        steps, program = self.steps, self.program
        body = steps.steps(program.steps[self.draft.validated :])
        if not never_ends(body):
            before, values = steps.fall_through(self._find_settled())
            body += before
            if not (before and isinstance(before[-1], ast.Raise)):
                body.append(ast.Return(steps.outputs(values)))
        if any(rule.action in ir.ANSWERING for rule in program.rules):
            body = steps.with_rules(body, program.rules, may_act=self.draft.is_async, is_node=True)
        return body

    def _define(
        self, function: str, parameters: Sequence[tuple[str, ast.expr, ast.expr | None]], body: list[ast.stmt]
    ) -> list[ast.stmt]:
        """Return the function of the steps: in the module, or before its call where invariants watch its variables."""
        draft = self.draft
        watched = self.answers.watched
        doc = ast.Expr(ast.Constant("Run the steps and return the outputs."))
        inner = [line for variable, line in self.declarations.items() if variable not in watched]
        if not watched:
            draft.helpers.append(
                new_function(
                    function, parameters, [doc, *inner, *body], self.parts.dict_type(), is_async=draft.is_async
                )
            )
            return []
        outer = [self.declarations[variable] for variable in watched]
        current = ast.Nonlocal(sorted(self.answers.flow.python[variable] for variable in watched))
        statements = [doc, current, *inner, *body]
        return [*outer, new_function(function, parameters, statements, self.parts.dict_type(), is_async=draft.is_async)]

    def _await_flow(self, flow: ast.expr, outputs: str, ensured: list[ast.stmt]) -> list[ast.stmt]:
        """Return the call of steps that act outside. A broken invariant takes back what was done."""
        self.draft.needs_run = True
        attempt = self._attempt([assign(outputs, flow)], self.answers.refusal())
        if not self.program.invariants:
            return [attempt, *ensured, ast.Return(name(outputs))]
        return [self._attempt([attempt, *ensured], None), ast.Return(name(outputs))]

    def _attempt(self, body: list[ast.stmt], refusal: Refusal | None) -> ast.stmt:
        problem = self.draft.names.fresh("problem")
        error: ast.expr = ast.Await(call(attribute(name("run"), "resolve_error"), name(problem)))
        failure = raise_(refusal(error) if refusal else error, plainly=True)
        return ast.Try(body, [ast.ExceptHandler(self.draft.errors(), problem, [failure])], [], [])


# ------------------------------------------------------------ questions about steps
def _falls_through(steps: tuple[ir.Step, ...]) -> bool:
    return not (steps and isinstance(steps[-1], ir.ReturnStep) and not steps[-1].guards)


def _find_shared_names(steps: tuple[ir.Step, ...]) -> set[str]:
    """Return variables that steps in functions of their own assign: those of a Parallel and of a transaction."""
    shared: set[str] = set()
    for step in parts(steps):
        if isinstance(step, ir.TransactionStep) or (isinstance(step, ir.ParallelStep) and acts_outside(step)):
            shared |= set(get_writes(step.steps))
    return shared


def _find_mixed_types(steps: tuple[ir.Step, ...], kinds: dict[str, ValueType]) -> set[str]:
    """Return variables with more than one assignment whose values have no single Python type."""
    sites = [step.target for step in parts(steps) if isinstance(step, ir.AssignStep)]
    plain = (STRING, INTEGER, BOOLEAN, TIMESTAMP, BYTES)
    return {
        target
        for target in sites
        if sites.count(target) > 1
        and kinds.get(target, ANY) not in plain
        and not isinstance(kinds.get(target), DecimalType)
    }


def _find_leading(steps: tuple[ir.Step, ...]) -> tuple[ir.ValidateStep, ...]:
    """Return the validations that the steps begin with."""
    leading: list[ir.ValidateStep] = []
    for step in steps:
        if not isinstance(step, ir.ValidateStep):
            break
        leading.append(step)
    return tuple(leading)


def _uses_exact(body: Sequence[ast.stmt]) -> bool:
    """Return whether a statement works with decimals without a handler of its own."""
    return any(
        isinstance(node, ast.Name) and node.id in ("EXACT", "total_decimals")
        for item in body
        for node in ast.walk(item)
    )


# ---------------------------------------------------------------- entry


class EntryWriter:
    """Writes what happens before the first step."""

    def __init__(self, draft: NodeDraft, *, judges_errors: bool) -> None:
        self.draft = draft
        self.program = draft.program
        self.parts = draft.parts
        self.checks = Checks(draft.parts)
        self._judges_errors = judges_errors

    def statements(self) -> list[ast.stmt]:
        draft, program = self.draft, self.program
        statements: list[ast.stmt] = [line for item in program.inputs for line in self._coercion(item)]
        has_checks = program.preconditions or program.invariants or any(item.constraints for item in program.inputs)
        leading = _find_leading(program.steps) if has_checks else ()
        validations = self._validations_before_checks(leading)
        checks: list[ast.stmt] = []
        for item in program.inputs:
            checks += self._constraints(item)
        for contract in program.preconditions:
            checks += self._contract(contract, "precondition")
        known = {*draft.parameters, *program.ambient}
        for contract in program.invariants:
            if names_in(contract.expression) <= known or not self._is_about_variables(contract):
                checks += self._contract(contract, "invariant")
        if leading and not validations and checks:
            checks = self._checks_apart(checks, self._leading_validations(leading))
        draft.needs_run |= self.checks.uses_run
        if checks:
            checks.insert(0, SourceComment("What the caller must see to"))
        return [*statements, *validations, *checks, *self._old_statements()]

    def _contract(self, contract: ir.Contract, phase: str) -> list[ast.stmt]:
        """Return the check of a contract, unless checks before it have shown that it holds."""
        if self.draft.facts.imply(contract.expression):
            return []
        self.draft.facts.learn(contract.expression)
        broken = self.checks.raise_contract_error(f"{phase}_failed", contract.text, phase)
        return self.checks.contract(contract, self.draft.entry, [broken])

    def _validations_before_checks(self, leading: tuple[ir.ValidateStep, ...]) -> list[ast.stmt]:
        """Return the validations at the start of the flow, if they may stand before the checks of the entry.

        Where both fail, the error of the validation is the answer. So they may stand first where nothing looks at that
        error again, and where no check before them leaves a note.
        """
        draft, program = self.draft, self.program
        contracts = (*program.preconditions, *program.invariants)
        entry = (contracts, leading, tuple(item.constraints for item in program.inputs))
        own = {part.name for part in parts(leading) if isinstance(part, ir.Quantifier | ir.MapOver | ir.Filter)}
        is_plain = names_in(leading) - own <= draft.parameters.keys() - set(draft.variables)
        asks_host = any(isinstance(part, ir.HostCall) for part in parts(entry)) or names_in(entry) & set(
            program.ambient
        )
        is_judged = all(contract.expression is not None for contract in contracts)
        has_rules = any(rule.action in ir.ANSWERING for rule in program.rules)
        if not is_plain or asks_host or not is_judged or has_rules or self._judges_errors:
            return []
        steps = StepWriter(self.parts, program, PythonScope(draft.parameters, draft.kinds), set())
        body = steps.steps(leading)
        if steps.uses_run or _uses_exact(body):
            return []
        draft.validated = len(leading)
        for step in leading:
            for check in (*step.guards, *step.checks):
                draft.facts.learn(check.expression)
        return body

    def _checks_apart(self, checks: list[ast.stmt], refused: list[ast.stmt]) -> list[ast.stmt]:
        """Return a call of the checks of the entry. Where one fails, the leading validations have the first word."""
        draft, program = self.draft, self.program
        constraints = {item.name for item in program.inputs if item.constraints}
        used = names_in((program.preconditions, program.invariants)) | constraints
        used |= {name for item in program.inputs for name in names_in(item.constraints)}
        function = draft.names.private("check_inputs")
        parameters, arguments = draft.pass_inputs(used, uses_run=self.checks.uses_run)
        doc = ast.Expr(ast.Constant("Raise the error of the first constraint or contract that does not hold."))
        draft.helpers.append(new_function(function, parameters, [doc, *checks], ast.Constant(None)))
        handler = ast.ExceptHandler(self.parts.runtime("NodeError"), None, [*refused, ast.Raise(None, None)])
        return [ast.Try([ast.Expr(call(name(function), *arguments))], [handler], [], [])]

    def _is_about_variables(self, contract: ir.Contract) -> bool:
        """Return whether a contract names what has no value before the first step."""
        later = {*self.draft.variables, "success", "error"}
        later |= {output.name for output in (*self.program.success, *self.program.error)}
        return bool(names_in(contract.expression) & (later - {*self.draft.parameters}))

    def _coercion(self, item: ir.NodeInput) -> list[ast.stmt]:
        python, kind = self.draft.parameters[item.name], self.draft.kinds[item.name]
        label = ast.Constant(item.name)
        checked = {INTEGER: ("int", "to_integer"), STRING: ("str", "to_string"), BOOLEAN: ("bool", "to_boolean")}
        accept = self.parts.runtime("coerce_input")
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

    def _constraints(self, item: ir.NodeInput) -> list[ast.stmt]:
        """Return the checks of an input's constraints; those of its elements in one loop."""
        kind, python, facts = self.draft.kinds[item.name], self.draft.parameters[item.name], self.draft.facts
        inner = kind.type if isinstance(kind, Nullable) else kind
        scope = self.draft.entry.bind("value", python, inner)
        statements: list[ast.stmt] = []
        for check in item.constraints:
            if isinstance(kind, Nullable):
                pass  # what holds of a value that is not null says nothing about later checks
            elif facts.imply(check.expression, item.name):
                continue
            else:
                facts.learn(check.expression, item.name)
            broken = self.checks.raise_contract_error("invalid_input", f"{item.name}: {check.text}", "input")
            statements += self.checks.condition(check, scope, [broken])
        statements = join_loops(statements)
        if not statements or not isinstance(kind, Nullable):
            return statements
        return [if_(ast.Compare(name(python), [ast.IsNot()], [ast.Constant(None)]), statements)]

    def _leading_validations(self, leading: tuple[ir.Step, ...]) -> list[ast.stmt]:
        """Return a call of the validations at the start of the flow: if one of them fails, its error is the answer."""
        draft = self.draft
        compensated = tuple(step for rule in self.program.rules for step in rule.compensation)
        used = names_in((leading, self.program.rules)) | set(get_writes(compensated))
        scope = PythonScope(draft.parameters, draft.kinds)
        declared: list[ast.stmt] = []
        for variable in draft.variables:
            if variable in used and variable not in draft.parameters:
                scope = scope.bind(variable, draft.names.name_value(variable), ANY)
                declared.append(ast.AnnAssign(store(scope.python[variable]), self.parts.any(), ast.Constant(None), 1))
        steps = StepWriter(self.parts, self.program, scope, set())
        body = steps.steps(leading)
        if any(rule.action in ir.ANSWERING for rule in self.program.rules):
            body = steps.with_rules(body, self.program.rules, may_act=False)
        function = draft.names.private("validate_first")
        parameters, arguments = draft.pass_inputs(used, uses_run=steps.uses_run)
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
    """Return the intervals of integer inputs that follow from constraints and preconditions."""
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


HEADER: Final = "# AUTO-GENERATED - DO NOT EDIT"


class Generated(msgspec.Struct, frozen=True):
    """A module's tree, and how its function is called."""

    tree: ast.Module
    function: str
    parameters: dict[str, str]  # the Python name of each input
    needs_run: bool
    is_async: bool


def generate(program: NodeProgram, *, is_watched: bool = False) -> Generated:
    """Return the module of a node. Where its steps are watched, each of them keeps a place of its own."""
    return _ModuleGenerator(program, is_watched=is_watched).module()


def source(program: NodeProgram) -> str:
    """Return the text of the node's module."""
    return module_text([HEADER], generate(program).tree)


class _ModuleGenerator:
    def __init__(self, program: NodeProgram, *, is_watched: bool) -> None:
        self.program = program
        self.is_watched = is_watched
        self.draft = NodeDraft(program, is_watched=is_watched)
        self.parts = self.draft.parts

    def module(self) -> Generated:
        flow = FlowWriter(self.draft)
        entry = EntryWriter(self.draft, judges_errors=any(flow.answers.about_errors()))
        body = [*entry.statements(), *flow.statements()]
        if self.draft.needs_run:
            body = [*self._run_statements(), *body]
        function = self._public_function(body)
        origin = f"Generated from the node {self.program.node_id}."
        doc = ast.Expr(ast.Constant("\n".join([*wrap_text(self.program.intent), "", origin])))
        tree = ast.Module([doc, *self.parts.classes.values(), *self.parts.constants, *self.draft.helpers, function], [])
        drop_unused(tree)
        if not self.is_watched:
            tidy(tree)
        tree.body[1:1] = self._imports(names_read(tree))
        if not self.is_watched:
            shorten_names(tree, self.draft.names.bases, self.draft.parameters.values())
        for node in ast.walk(tree):
            if getattr(node, "body", None) == []:
                node.body = [ast.Pass()]  # type: ignore[attr-defined]
        ast.fix_missing_locations(tree)
        return Generated(tree, self.draft.function, self.draft.parameters, self.draft.needs_run, self.draft.is_async)

    def _imports(self, used: set[str]) -> list[ast.stmt]:
        self.parts.import_name("__future__", "annotations")
        modules = sorted(self.parts.imports, key=lambda text: (text.startswith("lyra"), text != "__future__", text))
        return [statement for module in modules for statement in self._imports_of(module, used)]

    def _imports_of(self, module: str, used: set[str]) -> list[ast.stmt]:
        """Return the imports from one module; renamed imports have a line each."""
        aliases = self.parts.aliases if module.startswith("lyra") else {}
        needed = {text for text in self.parts.imports[module] if aliases.get(text, text) in {*used, "annotations"}}
        # Imported names as import sorters order them: constants, classes, functions.
        names = sorted(needed, key=lambda text: (not text.isupper(), not text[0].isupper(), text))
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
            ast.arg(self.draft.parameters[item.name], self.parts.annotation(self.draft.kinds[item.name]))
            for item in self.program.inputs
        ]
        defaults = [self._default(item) for item in self.program.inputs]
        if self.draft.needs_run:
            optional = ast.BinOp(self.parts.runtime("NodeRun"), ast.BitOr(), ast.Constant(None))
            words.append(ast.arg("run", optional))
            defaults.append(ast.Constant(None))
        first = [ast.arg("effects", self.parts.runtime("Effects"))] if self.draft.is_async else []
        arguments = ast.arguments([], first, None, words, defaults, None, [])
        kind = ast.AsyncFunctionDef if self.draft.is_async else ast.FunctionDef
        doc = ast.Expr(ast.Constant(documentation(self.draft)))
        return kind(self.draft.function, arguments, [doc, *body], [], self.parts.dict_type())

    def _default(self, declared: NodeInput) -> ast.expr | None:
        if declared.required:
            return None
        if declared.default is msgspec.UNSET or declared.default is None:
            return ast.Constant(None)
        value = self.parts.literal(declared.default)
        is_plain = isinstance(value, ast.Constant | ast.UnaryOp | ast.Name)
        return value if is_plain else self.parts.constant(f"{declared.name}_default", value)

    def _run_statements(self) -> list[ast.stmt]:
        limits = self.program.limits
        fresh = ast.BoolOp(ast.Or(), [name("run"), call(self.parts.runtime("NodeRun"))])
        effects = name("effects") if self.draft.is_async else ast.Constant(None)
        arguments: list[ast.expr] = [effects, ast.Constant(limits.steps), ast.Constant(limits.time_s)]
        key = self.draft.parameters.get(self.program.idempotency_key)
        if key is not None:
            arguments.append(name(key))
        return [assign("run", fresh), ast.Expr(call(attribute(name("run"), "start"), *arguments))]


# The documentation of generated functions: what a node is for, its inputs, outputs and contracts, in short lines.
_DOC_WIDTH: Final = 100


def documentation(draft: NodeDraft) -> str:
    """Return the text of a node's function: its intent, inputs, outputs and contracts."""
    lines = wrap_text(draft.program.intent)
    if draft.program.inputs:
        lines += ["", "Inputs:"]
        for item in draft.program.inputs:
            note = f": {_one_line(item.description)}" if item.description else ""
            lines += wrap_text(f"{draft.parameters[item.name]} ({describe(item.type)}){note}", "    ")
    if draft.program.success:
        lines += ["", "Returns:"]
        for output in draft.program.success:
            lines += wrap_text(f"{output.name} ({describe(output.type)})", "    ")
    for title, contracts in (
        ("Requires", draft.program.preconditions),
        ("Ensures", draft.program.postconditions),
        ("Keeps", draft.program.invariants),
    ):
        if contracts:
            lines += ["", f"{title}:", *(line for item in contracts for line in wrap_text(item.text, "    "))]
    return "\n".join([*lines, ""]).rstrip("\n") if len(lines) > 1 else lines[0]


def _one_line(text: str) -> str:
    line = " ".join(text.split()) or "A node."
    return line if line.endswith((".", "!", "?")) else f"{line}."


def wrap_text(text: str, indent: str = "") -> list[str]:
    """Return the text in lines; without an indent it is a sentence."""
    text = text.encode("utf-8", "backslashreplace").decode()  # Python 3.13 refuses half a character in a docstring
    words = (_one_line(text) if not indent else " ".join(text.split())).split(" ")
    lines = [indent + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) >= _DOC_WIDTH:
            lines.append(indent + word)
        else:
            lines[-1] += " " + word
    return lines
