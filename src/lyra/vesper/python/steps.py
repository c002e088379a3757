"""Statements for the steps of a node.

A step that ends the node with success returns a dict of outputs; a step that ends it with an error raises
`DeclaredError`, which error rules let pass. Steps that act outside are awaited. Variables that may be read before they
are assigned, that handlers read, or that values of several types are assigned to, are declared before the first step.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence

from lyra.vesper import ir
from lyra.vesper.charges import is_charged
from lyra.vesper.effects.request import retry_of
from lyra.vesper.python.draft import Checks, KnownFacts
from lyra.vesper.python.expressions import ExpressionWriter, PythonScope
from lyra.vesper.python.kinds import fits, get_writes, interval_of, is_decimal, is_word_of, names_in, output_type, parts
from lyra.vesper.python.layout import SourceComment
from lyra.vesper.python.syntax import ModuleParts, all_of, assign, attribute, call, if_, name, negate, raise_, store
from lyra.vesper.values.types import ANY, INTEGER, Array, Nullable, RecordType, ValueType, describe_fields


def acts_outside(steps: object) -> bool:
    return any(isinstance(part, ir.EffectStep | ir.TransitionStep) for part in parts(steps))


def code_field(program: ir.NodeProgram) -> str:
    """Return the declared error field that holds the code; empty if there is none."""
    declared = {output.name for output in program.error}
    return next((field for field in ("error_code", "code") if field in declared), "")


class StepWriter:
    """Writes the steps of one node into one function."""

    def __init__(
        self,
        module: ModuleParts,
        program: ir.NodeProgram,
        scope: PythonScope,
        declared: set[str],
        facts: KnownFacts | None = None,
        numbers: Collection[str] = (),
    ) -> None:
        self.module = module
        self.program = program
        self.scope = scope
        self.flow = scope  # what invariants see: elements of loops are no variables
        self.checks = Checks(module)
        self.facts = facts or KnownFacts()  # what holds before the first step
        self.uses_run = False
        self.may_raise = False
        self._numbers = frozenset(numbers)  # variables that are now an integer, now a decimal
        self._annotated = set(declared)  # variables that have an annotation already
        self._in_loop = False
        self._in_compensation = False
        self._ending: Callable[[ast.expr], ast.expr] | None = None  # what a transaction's steps return, by their answer
        self.conditional: set[str] = set()  # outputs that may have no value at the end

    # ------------------------------------------------------------ helpers
    def writer(self, sink: list[ast.stmt] | None, scope: PythonScope | None = None) -> ExpressionWriter:
        return ExpressionWriter(self.module, scope or self.scope, sink, in_loop=self._in_loop)

    def note_needs(self, writer: ExpressionWriter) -> None:
        self.uses_run |= writer.uses_run
        self.may_raise |= writer.may_raise

    def value(self, node: ir.TypedExpression, sink: list[ast.stmt]) -> ast.expr:
        writer = self.writer(sink)
        value = writer.value(node)
        self.note_needs(writer)
        return value

    def condition(self, node: ir.TypedExpression, sink: list[ast.stmt]) -> ast.expr:
        writer = self.writer(sink)
        value = writer.condition(node)
        self.note_needs(writer)
        return value

    def run_method(self, method: str, *arguments: ast.expr, **keywords: ast.expr) -> ast.Call:
        self.uses_run = True
        return call(attribute(name("run"), method), *arguments, **keywords)

    def inside(self, scope: PythonScope, steps: Sequence[ir.Step], *, in_loop: bool = False) -> list[ast.stmt]:
        """Return the steps in another scope."""
        kept = self.scope, self._in_loop
        self.scope, self._in_loop = scope, self._in_loop or in_loop
        statements = self.steps(steps)
        self.scope, self._in_loop = kept
        return statements

    # ------------------------------------------------------------ steps
    def steps(self, steps: Sequence[ir.Step]) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for step in steps:
            lines = self.step(step)
            statements += [SourceComment(step.name), *lines] if lines else []
            if isinstance(step, ir.ReturnStep) and not step.guards:
                break  # what follows is never reached
        return statements

    def step(self, step: ir.Step) -> list[ast.stmt]:
        if not step.guards or isinstance(step, ir.ValidateStep):
            return self._write_unguarded(step)
        statements: list[ast.stmt] = []
        test = self.checks.all_true(step.guards, self.scope, statements, in_loop=self._in_loop)
        self.uses_run |= self.checks.uses_run
        self.may_raise = True
        return [*statements, if_(test, self._write_unguarded(step))]

    def _write_unguarded(self, step: ir.Step) -> list[ast.stmt]:
        match step:
            case ir.ValidateStep():
                statements: list[ast.stmt] = []
                checks = [check for check in (*step.guards, *step.checks) if not self.facts.imply(check.expression)]
                if not checks:
                    return [] if step.guards or step.checks else [ast.Pass()]
                test = self.checks.all_true(checks, self.scope, statements, in_loop=self._in_loop)
                self.uses_run |= self.checks.uses_run
                self.may_raise = True
                if step.failure is not None:
                    return [*statements, if_(negate(test), self.failure(step.failure))]
                arguments = ast.Constant("validation_failed"), ast.Constant(f"{step.name} failed")
                return [*statements, if_(negate(test), [raise_(call(self.module.runtime("NodeError"), *arguments))])]
            case ir.AssignStep():
                return self._assign(step)
            case ir.BranchStep():
                return self._branch(step)
            case ir.ForEachStep():
                return self._for_each(step)
            case ir.LoopStep():
                return self._loop(step)
            case ir.ParallelStep():
                return self._parallel(step)
            case ir.ReturnStep():
                return self._return(step)
            case ir.EffectStep():
                return self._effect(step)
            case ir.TransitionStep():
                return self._transition(step)
            case ir.TransactionStep():
                return self._transaction(step)
        raise AssertionError(type(step).__name__)

    def failure(
        self, value: ir.ErrorAnswer, scope: PythonScope | None = None, *, plainly: bool = False
    ) -> list[ast.stmt]:
        """Return statements that answer with a declared error."""
        statements: list[ast.stmt] = []
        writer = self.writer(statements, scope)
        nodes = [value.code, *(node for _, node in value.fields)]
        code, *values = writer.operands(*nodes)
        declared = {output.name: output for output in self.program.error}
        keys: list[ast.expr | None] = [ast.Constant(field) for field, _ in value.fields]
        fields: list[ast.expr] = []
        for (field, node), plain in zip(value.fields, values, strict=True):
            expression, kind = plain, writer.kind(node)
            output = declared.get(field)
            is_typed = output is not None
            fields.append(
                self.coerce(expression, kind, Nullable(output.type), field) if is_typed and output else expression
            )
        arguments: list[ast.expr] = [code, ast.Dict(keys, fields)]
        if code_field(self.program):
            arguments.append(ast.Constant(code_field(self.program)))
        self.note_needs(writer)
        self.may_raise = True
        return [*statements, raise_(call(self.module.runtime("answer"), *arguments), plainly=plainly)]

    def _assign(self, step: ir.AssignStep) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        value = self.value(step.value, statements)
        self._remember(step)
        return (
            [*statements, *self.store(step.target, value)]
            if not self._assign_directly(statements, value, step.target)
            else statements
        )

    def _assign_directly(self, statements: list[ast.stmt], value: ast.expr, target: str) -> bool:
        """Assign a checked result to the target itself instead of a helper variable; return whether that was done."""
        python = self.scope.python[target]
        if self.program.rules:
            return False  # a rule must not see a result that does not fit
        match statements[-2:], value:
            case [ast.Assign(targets=[ast.Name(id=helper)]) as first, ast.If()], ast.Name(id=result) if (
                helper == result and helper not in self.scope.python.values() and target not in self.scope.absent
            ):
                first.targets = [store(python)]
                statements[-1] = self.writer(None).range_check(python)
                return True
        return False

    def _remember(self, step: ir.AssignStep) -> None:
        """Keep the interval of an integer that is assigned once."""
        sites = [
            part for part in parts(self.program.steps) if isinstance(part, ir.AssignStep) and part.target == step.target
        ]
        if any(item.name == step.target for item in self.program.inputs):
            return  # it has a value before the step
        if len(sites) == 1 and step.target in self.scope.kinds and self.scope.kinds[step.target] == INTEGER:
            low, high = interval_of(step.value, self.scope.intervals)
            self.scope.intervals[step.target] = max(low, -(2**63)), min(high, 2**63 - 1)

    def store(self, target: str, value: ast.expr) -> list[ast.stmt]:
        """Assign a variable. Collections are annotated at their first assignment."""
        python = self.scope.python[target]
        kind = self.scope.kinds.get(target, ANY)
        is_first = target not in self._annotated
        self._annotated.add(target)
        if is_first and (isinstance(kind, Array | RecordType) or target in self._numbers):
            return [ast.AnnAssign(store(python), self.module.annotation(kind), value, 1)]
        return [assign(python, value)]

    def _branch(self, step: ir.BranchStep) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        test = self.condition(step.condition, statements)
        then = self.inside(self.scope, step.then) or [ast.Pass()]
        otherwise = self.inside(self.scope, step.otherwise)
        if never_ends(then):
            return [*statements, if_(test, then), *otherwise]
        return [*statements, if_(test, then, otherwise)]

    def _for_each(self, step: ir.ForEachStep) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        writer = self.writer(statements)
        elements = writer.elements(step, step.collection)
        scope, python = writer.bind_element(step.variable, step.collection)
        self.note_needs(writer)
        body = self.inside(scope, step.steps, in_loop=True) or [ast.Pass()]
        return [*statements, ast.For(store(python), elements, body, [], None)]

    def _loop(self, step: ir.LoopStep) -> list[ast.stmt]:
        kept, self._in_loop = self._in_loop, True
        before: list[ast.stmt] = []
        test = self.condition(step.condition, before)
        rounds = self.module.names.fresh("rounds")
        too_many = self.module.runtime("loop_limit")
        limit = ast.Constant(step.max_iterations)
        stop = raise_(call(too_many, ast.Constant(step.name), limit))
        body: list[ast.stmt] = [
            if_(ast.Compare(name(rounds), [ast.Eq()], [limit]), [stop]),
            ast.AugAssign(store(rounds), ast.Add(), ast.Constant(1)),
            *([ast.Expr(self.run_method("tick", ast.Constant(1)))] if is_charged(ir.LoopStep, in_loop=kept) else []),
            *self.inside(self.scope, step.steps, in_loop=True),
        ]
        self._in_loop = kept
        self.may_raise = True
        loop = ast.While(test, body, [])
        if before:
            leave = if_(negate(test), [ast.Break()])
            loop = ast.While(ast.Constant(True), [*before, leave, *body], [])
        return [assign(rounds, ast.Constant(0)), loop]

    # ------------------------------------------------------------ answers
    def _return(self, step: ir.ReturnStep) -> list[ast.stmt]:
        if self._in_compensation and self._ending is None:
            return [ast.Return(None)]
        if step.error is not None:
            return self.failure(step.error)
        statements, values = self.success_values(step.success or ())
        if never_ends(statements):
            return statements
        outputs = self.outputs(values)
        return [*statements, ast.Return(outputs if self._ending is None else self._ending(outputs))]

    def success_values(
        self, fields: Sequence[tuple[str, ir.TypedExpression]]
    ) -> tuple[list[ast.stmt], list[tuple[ir.NodeOutput, ast.expr]]]:
        """Return the outputs of a success in declared order, and the statements before them."""
        statements: list[ast.stmt] = []
        writer = self.writer(statements)
        values = dict(zip((field for field, _ in fields), writer.operands(*(node for _, node in fields)), strict=True))
        kinds = {field: writer.kind(node) for field, node in fields}
        self.note_needs(writer)
        missing = [output for output in self.program.success if output.required and output.name not in values]
        declared = set() if missing else {output.name for output in self.program.success}
        if not values.keys() <= declared:
            self._evaluate_all(statements, values, declared)
        if missing:
            self.may_raise = True
            return [*statements, raise_(call(self.module.runtime("incomplete"), ast.Constant(missing[0].name)))], []
        return statements, self._outputs(statements, values, kinds)

    def _evaluate_all(self, statements: list[ast.stmt], values: dict[str, ast.expr], declared: set[str]) -> None:
        """Evaluate fields in written order, also those that no output takes: they may raise."""
        for field, value in values.items():
            if _is_settled(value):
                continue
            if field in declared:
                variable = self.module.names.name_value(field)
                statements.append(assign(variable, value))
                values[field] = name(variable)
            else:
                statements.append(ast.Expr(value))

    def _outputs(
        self, statements: list[ast.stmt], values: dict[str, ast.expr], kinds: dict[str, ValueType]
    ) -> list[tuple[ir.NodeOutput, ast.expr]]:
        declared = [output for output in self.program.success if output.name in values]
        if any(not fits(kinds[output.name], output_type(output)) for output in declared):
            for field, value in values.items():
                if not _is_settled(value):
                    variable = self.module.names.name_value(field)
                    statements.append(assign(variable, value))
                    values[field] = name(variable)
        return [
            (output, self.coerce(values[output.name], kinds[output.name], output_type(output), output.name))
            for output in declared
        ]

    def fall_through(self, settled: frozenset[str]) -> tuple[list[ast.stmt], list[tuple[ir.NodeOutput, ast.expr]]]:
        """Return the outputs of a flow without a return: variables named like success fields."""
        statements: list[ast.stmt] = []
        values: dict[str, ast.expr] = {}
        for output in self.program.success:
            python = self.scope.python.get(output.name)
            if python is None:
                if output.required:
                    self.may_raise = True
                    error = call(self.module.runtime("incomplete"), ast.Constant(output.name))
                    return [*statements, raise_(error)], []
                continue
            if output.name not in settled and output.required:
                self.may_raise = True
                error = call(self.module.runtime("incomplete"), ast.Constant(output.name))
                is_absent = ast.Compare(name(python), [ast.Is()], [self.module.runtime("ABSENT")])
                statements.append(if_(is_absent, [raise_(error)]))
            values[output.name] = name(python)
        kinds = {field: self.scope.kinds.get(field, ANY) for field in values}
        optional = {output.name for output in self.program.success if not output.required}
        self.conditional = {field for field in values if field in optional and field not in settled}
        return statements, self._outputs(statements, values, kinds)

    def outputs(self, values: Sequence[tuple[ir.NodeOutput, ast.expr]]) -> ast.expr:
        """Return the dict of outputs; optional ones without a value are left out."""
        keys: list[ast.expr | None] = [ast.Constant(output.name) for output, _ in values]
        everything = ast.Dict(keys, [value for _, value in values])
        return call(self.module.runtime("without_absent"), everything) if self.conditional else everything

    def coerce(self, value: ast.expr, kind: ValueType, declared: ValueType, where: str) -> ast.expr:
        """Return the value in its declared type; nothing is done to one that surely has it."""
        if where in self.conditional:
            self.may_raise = True
            coercer = self.module.coercer(declared, is_output=True)
            return call(self.module.runtime("coerce_output_if_present"), coercer, value, ast.Constant(where))
        if fits(kind, declared) or (isinstance(value, ast.Constant) and is_word_of(value.value, declared)):
            if not is_decimal(kind):
                return value
            self.may_raise = True
            return call(attribute(self.module.runtime("EXACT"), "plus"), value)
        self.may_raise = True
        coercer = self.module.coercer(declared, is_output=True)
        return call(self.module.runtime("coerce_output"), coercer, value, ast.Constant(where))

    # ------------------------------------------------------------ steps at once
    def _parallel(self, step: ir.ParallelStep) -> list[ast.stmt]:
        """Return the steps as tasks that run at once, all to their end; then the first in written order that has ended
        the node counts. Where none acts outside, they run one after the other."""
        has_return = any(isinstance(part, ir.ReturnStep) for part in parts(step.steps))
        if not acts_outside(step) or (has_return and self._in_compensation):
            return self.inside(self.scope, step.steps) or [ast.Pass()]
        statements: list[ast.stmt] = []
        tasks: list[ast.expr] = []
        for inner in step.steps:
            function = self.module.names.fresh(f"do_{inner.name}")
            body = self.step(inner)
            written = [self.scope.python[variable] for variable in get_writes((inner,))]
            shared: list[ast.stmt] = [ast.Nonlocal(sorted(written))] if written else []
            result: ast.expr = ast.Constant(None)
            if any(isinstance(part, ir.ReturnStep) for part in parts(inner)):
                result = ast.BinOp(self.module.dict_type(), ast.BitOr(), result)
                body = body if never_ends(body) else [*body, ast.Return(ast.Constant(None))]
            statements.append(new_function(function, [], [*shared, *body], result, is_async=True))
            tasks.append(call(name(function)))
        if has_return:
            ended = self.module.names.fresh("ended")
            first = ast.Await(self.run_method("first_answer", ast.List(tasks, ast.Load())))
            is_over = ast.Compare(name(ended), [ast.IsNot()], [ast.Constant(None)])
            return [*statements, assign(ended, first), if_(is_over, [ast.Return(name(ended))])]
        together = self.run_method("together", ast.List(tasks, ast.Load()))
        return [*statements, ast.Expr(ast.Await(together))]

    # ------------------------------------------------------------ effects
    def _effect(self, step: ir.EffectStep) -> list[ast.stmt]:
        usual = "query_result" if step.kind == "db.query" else "response"
        is_used = usual in names_in((step.extract, step.found, step.empty)) or bool(step.found or step.empty)
        python = self.scope.python[step.output] if step.output else self.module.names.name_value(usual)
        statements: list[ast.stmt] = []
        payload = self.value(step.request, statements)
        arguments = [ast.Constant(step.name), ast.Constant(step.kind), ast.Constant(step.capability), payload]
        keywords: dict[str, ast.expr] = {}
        if step.timeout_s is not None:
            keywords["timeout_s"] = ast.Constant(step.timeout_s)
        keywords.update(self._retry(step))
        act: ast.expr = ast.Await(self.run_method("perform", *arguments, **keywords))
        if step.kind == "agent.call" and step.output_type != ANY:
            texts = (ast.Constant(step.name), ast.Constant(describe_fields(step.output_type)))
            act = call(self.module.runtime("read_answer"), self.module.coercer(step.output_type), act, *texts)
        if step.checks:
            act = self.checks.check_answer(step, act, self.scope, statements, in_loop=self._in_loop)
            self.uses_run |= self.checks.uses_run
        statements.append(assign(python, act) if step.output or is_used else ast.Expr(act))
        scope = self.scope if step.output == usual else self.scope.bind(usual, python, ANY)
        for variable, node in step.extract:
            writer = self.writer(statements, scope)
            statements += self.store(variable, writer.value(node))
            self.note_needs(writer)
        statements += self._register(step)
        if self._answering(step.rules):
            statements = self.with_rules(statements, step.rules)
        statements += self.invariants()
        self.may_raise = True
        if not step.found and not step.empty:
            return statements
        test = call(self.module.runtime("has_rows"), name(python))
        with_rows = self.inside(scope, step.found) or [ast.Pass()]
        return [*statements, if_(test, with_rows, self.inside(scope, step.empty))]

    def _transaction(self, step: ir.TransactionStep) -> list[ast.stmt]:
        """Return the steps as a function with variables of its own, which are taken over where it ends with success."""
        statements: list[ast.stmt] = []
        payload = self.value(step.request, statements)
        has_return = any(isinstance(part, ir.ReturnStep) and part.error is None for part in parts(step.steps))
        written = [self.scope.python[variable] for variable in sorted(get_writes(step.steps))]
        function = self.module.names.fresh(f"do_{step.name}")
        kept = self._ending

        def ending(answer: ast.expr) -> ast.expr:
            values = [*([answer] if has_return else []), *map(name, written)]
            return ast.Tuple(values, ast.Load()) if values else ast.Constant(None)

        self._ending = ending
        body = self.inside(self.scope, step.steps)
        self._ending = kept
        if not never_ends(body):
            body.append(ast.Return(ending(ast.Constant(None))))
        parameters: list[tuple[str, ast.expr, ast.expr | None]] = [("run", self.module.runtime("NodeRun"), None)]
        own = set(written)
        if self._in_loop:  # the values of this round
            used = names_in((step.steps, self.program.invariants)) & self.scope.python.keys()
            own |= {self.scope.python[variable] for variable in used}
        parameters += [(python, self.module.any(), name(python)) for python in sorted(own)]
        result: ast.expr = self.module.any() if has_return or written else ast.Constant(None)
        definition = new_function(function, parameters, body, result, is_async=True)
        arguments = [ast.Constant(step.name), ast.Constant(step.capability), payload, name(function)]
        keywords: dict[str, ast.expr] = {}
        if step.timeout_s is not None:
            keywords["timeout_s"] = ast.Constant(step.timeout_s)
        keywords.update(self._retry(step))
        act: ast.expr = ast.Await(self.run_method("transact", *arguments, **keywords))
        ended = self.module.names.fresh("ended") if has_return else ""
        targets = [*([ended] if has_return else []), *written]
        taken = ast.Tuple([store(text) for text in targets], ast.Store())
        statements += [definition, ast.Assign([taken], act) if targets else ast.Expr(act)]
        statements += self._register(step)
        if self._answering(step.rules):
            statements = self.with_rules(statements, step.rules)
        self.may_raise = True
        if has_return:
            kind = ast.BinOp(self.module.dict_type(), ast.BitOr(), ast.Constant(None))
            statements.insert(0, ast.AnnAssign(store(ended), kind, ast.Constant(None), 1))
            is_over = ast.Compare(name(ended), [ast.IsNot()], [ast.Constant(None)])
            result = ast.Constant(None) if self._in_compensation else name(ended)
            statements.append(if_(is_over, [ast.Return(result)]))
        return statements

    def _retry(self, step: ir.EffectStep | ir.TransitionStep | ir.TransactionStep) -> dict[str, ast.expr]:
        """Return the argument that says how often a request may be repeated."""
        retry = retry_of(step, self.program)
        if retry is None:
            return {}
        numbers = (retry.attempts, retry.backoff, retry.base, retry.initial_delay_s)
        settings: list[ast.expr] = [ast.Constant(number) for number in numbers]
        if retry.errors != ("*",):
            settings.append(ast.Tuple([ast.Constant(error) for error in retry.errors], ast.Load()))
        maker = call(self.module.runtime("StepRetry"), *settings)
        return {"retry": self.module.constant("retry", maker)}

    def _transition(self, step: ir.TransitionStep) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        writer = self.writer(statements)
        entity, source, target = writer.operands(step.entity, step.source, step.target)
        self.note_needs(writer)
        machine = next((machine for machine in self.program.machines if machine.name == step.machine), None)
        moves = () if machine is None else machine.moves
        pair = _read_words(source, target)
        move = next((move for move in moves if move[:2] == pair), None)
        if move is None:
            start, end = self.module.names.fresh("source"), self.module.names.fresh("target")
            statements += [assign(start, source), assign(end, target)]
            source, target = name(start), name(end)
        refuse = raise_(call(self.module.runtime("invalid_transition"), ast.Constant(step.machine), source, target))
        edge = ast.Tuple([source, target], ast.Load())
        if move is None:
            edges: list[ast.expr] = [_make_pair(here, there) for here, there, _ in moves]
            statements.append(if_(ast.Compare(edge, [ast.NotIn()], [ast.List(edges, ast.Load())]), [refuse]))
        if step.checks:
            test = self.checks.all_true(step.checks, self.scope, statements, in_loop=self._in_loop)
            statements.append(if_(negate(test), [refuse]))
        for here, there, check in moves if move is None else [other for other in moves if other[:2] == pair]:
            if check is not None:
                is_refused: ast.expr = ast.UnaryOp(ast.Not(), self.writer(None).condition(check.expression))
                if move is None:
                    is_edge = ast.Compare(edge, [ast.Eq()], [_make_pair(here, there)])
                    is_refused = ast.BoolOp(ast.And(), [is_edge, is_refused])
                statements.append(if_(is_refused, [refuse]))
        payload: dict[str, ast.expr] = {
            "machine": ast.Constant(step.machine),
            "entity": entity,
            "from": source,
            "to": target,
        }
        if machine is not None:
            payload["initial"] = ast.Constant(machine.initial)
        request = ast.Dict([ast.Constant(key) for key in payload], list(payload.values()))
        words = (step.name, "state.transition", f"state.{step.machine}")
        act = ast.Await(self.run_method("perform", *map(ast.Constant, words), request, **self._retry(step)))
        statements += [assign(self.scope.python[step.output], act)] if step.output else [ast.Expr(act)]
        self.uses_run |= self.checks.uses_run
        return [*statements, *self.invariants()]

    def invariants(self) -> list[ast.stmt]:
        """Return checks of the node's invariants after an act. One about a variable without a value says nothing."""
        statements: list[ast.stmt] = []
        fields = {output.name for output in (*self.program.success, *self.program.error)}
        later = {"success", "error", *(fields - set(get_writes(self.program.steps)))}
        for contract in () if self._in_compensation else self.program.invariants:
            if contract.expression is None:
                continue  # noted before the first step
            names = names_in(contract.expression)
            if names & (later - {item.name for item in self.program.inputs}):
                continue  # it is about the answer
            broken = [self.checks.raise_contract_error("invariant_failed", contract.text, "invariant")]
            waiting = sorted(names & self.flow.absent)
            scope = PythonScope(self.flow.python, self.flow.kinds)
            check = self.checks.contract(contract, scope, broken, in_loop=self._in_loop)
            if waiting:
                tests: list[ast.expr] = [
                    ast.Compare(name(self.flow.python[text]), [ast.IsNot()], [self.module.runtime("ABSENT")])
                    for text in waiting
                ]
                check = [if_(all_of(tests), check)]
            statements += check
        self.uses_run |= self.checks.uses_run
        return statements

    # ------------------------------------------------------------ rules and compensation
    @staticmethod
    def _answering(rules: Sequence[ir.ErrorRule]) -> list[ir.ErrorRule]:
        """Return the rules that a path obeys; retries and circuit breakers are the host's."""
        return [rule for rule in rules if rule.action in ir.ANSWERING]

    def with_rules(
        self, body: list[ast.stmt], rules: Sequence[ir.ErrorRule], *, may_act: bool = True, is_node: bool = False
    ) -> list[ast.stmt]:
        """Return the statements, with the rules for their errors. Before rules of the node, a broken invariant takes
        back what was done."""
        problem, error = self.module.names.fresh("problem"), self.module.names.fresh("error")
        known: ast.expr = call(self.module.runtime("as_error"), name(problem))
        if is_node and may_act:
            known = ast.Await(self.run_method("resolve_error", name(problem)))
        handler: list[ast.stmt] = [assign(error, known)]
        for rule in self._answering(rules):
            test = call(self.module.runtime("matches"), name(error), ast.Constant(rule.error))
            reaction = self._reaction(rule, error, may_act=may_act)
            handler.append(if_(test, reaction))
        handler.append(ast.Raise(name(error), ast.Constant(None)))
        errors = ast.Tuple([self.module.runtime("NodeError"), name("ArithmeticError")], ast.Load())
        passed = ast.ExceptHandler(self.module.runtime("DeclaredError"), None, [ast.Raise(None, None)])
        self.may_raise = True
        return [ast.Try(body, [passed, ast.ExceptHandler(errors, problem, handler)], [], [])]

    def _reaction(self, rule: ir.ErrorRule, error: str, *, may_act: bool) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        variable = self.module.names.fresh("error_facts")
        scope = PythonScope(self.scope.python, dict.fromkeys(self.scope.kinds, ANY), None, self.scope.absent)
        scope = scope.bind("error", variable, ANY)
        uses_error = "error" in names_in((rule.answer, rule.compensation))
        if uses_error:
            statements.append(assign(variable, call(self.module.runtime("error_facts"), name(error))))
        if rule.action == "compensate" and may_act:
            first: list[ast.expr] = []
            if rule.compensation:
                function, definition = self._immediate(rule.compensation, scope)
                statements.append(definition)
                first.append(name(function))
            statements.append(ast.Expr(ast.Await(self.run_method("undo", *first))))
        elif rule.action == "compensate" and rule.compensation and self.program.pure:
            function, definition = self._immediate(rule.compensation, scope)
            statements += [definition, ast.Expr(call(self.module.runtime("attempt"), name(function)))]
        self.may_raise = True
        if rule.answer is None:
            return [*statements, ast.Raise(name(error), ast.Constant(None))]
        return [*statements, *self.failure(rule.answer, scope, plainly=True)]

    def _register(self, step: ir.EffectStep | ir.TransactionStep) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for rule in reversed(step.rules):  # the latest is taken back first
            if rule.action == "compensate" and rule.compensation:
                none = self.module.names.fresh("no_error")
                scope = PythonScope(self.scope.python, dict.fromkeys(self.scope.kinds, ANY), None, self.scope.absent)
                inner = scope.bind("error", none, ANY)
                if "error" in names_in(rule.compensation):
                    statements.append(assign(none, ast.Constant(None)))
                function, definition = self._compensation(rule.compensation, inner)
                statements += [definition, ast.Expr(self.run_method("on_undo", name(function)))]
        return statements

    def _immediate(self, steps: tuple[ir.Step, ...], scope: PythonScope) -> tuple[str, ast.stmt]:
        """Return a function for the steps of a rule that runs now. It reads and assigns the variables of the flow."""
        function = self.module.names.fresh("take_back")
        body = self._write_compensation(scope, steps)
        written = sorted(scope.python[variable] for variable in get_writes(steps))
        current: list[ast.stmt] = [ast.Nonlocal(written)] if written else []
        is_async = not self.program.pure
        return function, new_function(function, [], [*current, *body], ast.Constant(None), is_async=is_async)

    def _compensation(self, steps: tuple[ir.Step, ...], scope: PythonScope) -> tuple[str, ast.stmt]:
        """Return a function that takes a step back later. It has variables of its own, with the values of now."""
        function = self.module.names.fresh("take_back")
        inner = PythonScope(scope.python, scope.kinds, None, scope.absent)
        used = names_in((steps, self.program.machines))
        parameters: list[tuple[str, ast.expr, ast.expr | None]] = []
        first: list[ast.stmt] = []
        for variable in sorted((used | set(get_writes(steps))) & scope.python.keys()):
            python = inner.python[variable] = self.module.names.name_value(variable)
            if variable in used:
                parameters.append((python, self.module.any(), name(scope.python[variable])))
            else:
                first.append(ast.AnnAssign(store(python), self.module.any(), ast.Constant(None), 1))
        body = [*first, *self._write_compensation(inner, steps)]
        return function, new_function(function, parameters, body, ast.Constant(None), is_async=True)

    def _write_compensation(self, scope: PythonScope, steps: tuple[ir.Step, ...]) -> list[ast.stmt]:
        kept, self._in_compensation = self._in_compensation, True
        body = self.inside(scope, steps)
        self._in_compensation = kept
        return body


def never_ends(body: Sequence[ast.stmt]) -> bool:
    """Return whether the end of the statements is never reached."""
    last = next((item for item in reversed(body) if not isinstance(item, SourceComment)), None)
    if isinstance(last, ast.Return | ast.Raise):
        return True
    if isinstance(last, ast.If):
        return bool(last.orelse) and never_ends(last.body) and never_ends(last.orelse)
    return False


def _make_pair(first: str, second: str) -> ast.expr:
    return ast.Tuple([ast.Constant(first), ast.Constant(second)], ast.Load())


def _read_words(first: ast.expr, second: ast.expr) -> tuple[str, str] | None:
    """Return the texts of two literals."""
    match first, second:
        case ast.Constant(value=str() as left), ast.Constant(value=str() as right):
            return left, right
    return None


def new_function(
    function: str,
    parameters: Sequence[tuple[str, ast.expr, ast.expr | None]],
    body: list[ast.stmt],
    result: ast.expr,
    *,
    is_async: bool = False,
) -> ast.stmt:
    arguments = ast.arguments(
        [],
        [ast.arg(text, annotation) for text, annotation, _ in parameters],
        None,
        [],
        [],
        None,
        [default for _, _, default in parameters if default is not None],
    )
    kind = ast.AsyncFunctionDef if is_async else ast.FunctionDef
    return kind(function, arguments, body or [ast.Pass()], [], result)


def _is_settled(value: ast.expr) -> bool:
    """Return whether an expression may stand anywhere: a name, a constant or an empty collection."""
    match value:
        case ast.Name() | ast.Constant() | ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
    return False
