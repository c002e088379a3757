"""Compiles steps that do not act outside the node, contracts, answers and expressions over collections to closures.

A compiled step takes the frame and returns None, or the answer that ends the node: a dict of success fields or a
Failure. A step whose guards are not all true is skipped; on a validation, guards are checks like the others. Steps that
act outside, or hold steps that do, are compiled by `effect_steps`.

A contract holds, fails, or cannot be judged because the host did not supply something; the last are collected by their
text. An error inside a contract is a failure of it. A postcondition about fields of success says nothing about an error
answer, unless it names `success` or `error` itself; an invariant says nothing as long as a variable in it has no value.

Success fields are evaluated in written order and then coerced in declared order. Rules see the error as `error`, and a
rule of a kind that the host obeys (retry, backoff, circuit_breaker) is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from lyra.vesper import ir
from lyra.vesper.direct.coercion import coerce_output, writer
from lyra.vesper.direct.expressions import Compiler, compile_condition, compile_expression, text_of
from lyra.vesper.direct.frames import METER, MISSING, Evaluate, Frame, NotSupplied, Scope, list_assigned_names, names_in
from lyra.vesper.direct.numbers import ORDERS, add, divide, group_key, in_order, kind_of, least, multiply
from lyra.vesper.values.limits import ELEMENT_BYTES
from lyra.vesper.values.outcome import NOT_CONFIGURED, NodeError, NodeFailure
from lyra.vesper.values.types import Nullable


def compile_elements(
    part: ir.ForEachStep | ir.Quantifier | ir.MapOver | ir.Filter | ir.Reduce | ir.Aggregate | ir.GroupBy, scope: Scope
) -> Callable[[Frame], list[Any]]:
    """Return a function that gives the elements of the part's collection in order and counts them as steps."""
    collection = compile_expression(part.collection, scope)

    def elements(frame: Frame) -> list[Any]:
        value = collection(frame)
        if type(value) is list:
            return value
        if type(value) is frozenset:
            return in_order(value)
        raise NodeError("type_error", f"{kind_of(value)} is not a collection")

    def meter_elements(frame: Frame) -> list[Any]:
        paid = elements(frame)
        frame[METER].spend(len(paid))
        return paid

    return meter_elements if scope.is_charged(type(part)) else elements


def _quantifier(expression: ir.Quantifier, scope: Scope) -> Evaluate:
    elements = compile_elements(expression, scope)
    inner, (slot,) = scope.for_rounds().bind(expression.name)
    holds = compile_condition(expression.body, inner)
    decisive = expression.kind == "exists"  # the value of the body that ends the search

    def decide(frame: Frame) -> bool:
        for element in elements(frame):
            frame[slot] = element
            if holds(frame) is decisive:
                return decisive
        return not decisive

    return decide


def _map_over(expression: ir.MapOver, scope: Scope) -> Evaluate:
    elements = compile_elements(expression, scope)
    inner, (slot,) = scope.for_rounds().bind(expression.name)
    body, memory_max = compile_expression(expression.body, inner), scope.memory_max

    def transform(frame: Frame) -> list[Any]:
        results: list[Any] = []
        size = 0
        for element in elements(frame):
            frame[slot] = element
            result = body(frame)
            size += ELEMENT_BYTES + len(result) if type(result) is str else ELEMENT_BYTES
            if size > memory_max:
                raise NodeError("resource_limit", "the array takes too much memory")
            results.append(result)
        return results

    return transform


def _filter(expression: ir.Filter, scope: Scope) -> Evaluate:
    elements = compile_elements(expression, scope)
    inner, (slot,) = scope.for_rounds().bind(expression.name)
    holds = compile_condition(expression.body, inner)

    def select(frame: Frame) -> list[Any]:
        results: list[Any] = []
        for element in elements(frame):
            frame[slot] = element
            if holds(frame):
                results.append(element)
        return results

    return select


def _reduce(expression: ir.Reduce, scope: Scope) -> Evaluate:
    elements = compile_elements(expression, scope)
    initial = compile_expression(expression.initial, scope)
    inner, (slot, accumulator) = scope.for_rounds().bind(expression.name, expression.accumulator)
    body = compile_expression(expression.body, inner)

    def reduce(frame: Frame) -> Any:
        paid = elements(frame)
        total = initial(frame)
        for element in paid:
            frame[slot], frame[accumulator] = element, total
            total = body(frame)
        return total

    return reduce


# ---------------------------------------------------------------- aggregates


def _sum(values: Iterable[Any]) -> Any:
    total: Any = 0
    for value in values:
        if value is not None:
            total = add(total, value)
    return total


def _average(values: list[Any]) -> Any:
    count = sum(value is not None for value in values)
    return divide(_sum(values), count) if count else None


AGGREGATES: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "sum": _sum,
    "count": len,
    "avg": _average,
    "min": lambda values: least(values, ORDERS["<"]),
    "max": lambda values: least(values, ORDERS[">"]),
}


def _aggregate(expression: ir.Aggregate, scope: Scope) -> Evaluate:
    elements, aggregate = compile_elements(expression, scope), AGGREGATES[expression.function]
    return lambda frame: aggregate(elements(frame))


def _group_by(expression: ir.GroupBy, scope: Scope) -> Evaluate:
    elements = compile_elements(expression, scope)
    inner, (slot,) = scope.for_rounds().bind(expression.name)
    keys = [(name, compile_expression(key, inner)) for name, key in expression.keys]
    columns = [
        (
            item.output,
            AGGREGATES[item.function],
            None if item.operand is None else compile_expression(item.operand, inner),
        )
        for item in expression.aggregations
    ]

    def row_of(key: list[Any], members: list[Any], frame: Frame) -> dict[str, Any]:
        row = {name: value for (name, _), value in zip(keys, key, strict=True)}
        for output, aggregate, operand in columns:
            row[output] = aggregate(members if operand is None else _values_of(operand, slot, members, frame))
        if not columns:
            row["items"] = members
        return row

    def group(frame: Frame) -> Any:
        members = elements(frame)
        if not keys:
            return row_of([], members, frame)
        groups: dict[Any, tuple[list[Any], list[Any]]] = {}
        for element in members:
            frame[slot] = element
            key = [evaluate(frame) for _, evaluate in keys]
            groups.setdefault(group_key(key), (key, []))[1].append(element)
        return [row_of(key, members, frame) for key, members in groups.values()]

    return group


def _values_of(operand: Evaluate, slot: int, elements: list[Any], frame: Frame) -> list[Any]:
    """Return the operand for all elements, in order."""
    values = []
    for element in elements:
        frame[slot] = element
        values.append(operand(frame))
    return values


# ---------------------------------------------------------------- matrices


def _rows(value: Any) -> list[list[Any]]:
    if type(value) is not list or not all(type(row) is list for row in value):
        raise NodeError("type_error", "a matrix is an array of rows")
    if len({len(row) for row in value}) > 1:
        raise NodeError("type_error", "the rows of a matrix are equally long")
    return value


def _matrix_product(expression: ir.MatrixProduct, scope: Scope) -> Evaluate:
    left, right = compile_expression(expression.left, scope), compile_expression(expression.right, scope)

    is_charged = scope.is_charged(ir.MatrixProduct)

    def product(frame: Frame) -> list[list[Any]]:
        first, second = left(frame), right(frame)
        rows, columns = _rows(first), list(zip(*_rows(second), strict=True))
        if rows and len(rows[0]) != len(second):
            raise NodeError("type_error", f"{len(rows[0])} columns cannot meet {len(second)} rows")
        if is_charged:
            frame[METER].spend(len(rows) * len(columns) * len(second))
        return [[_sum(map(multiply, row, column)) for column in columns] for row in rows]

    return product


TRANSFORMS: Final[dict[type[ir.TypedExpression], Compiler]] = {
    ir.Quantifier: _quantifier,
    ir.MapOver: _map_over,
    ir.Filter: _filter,
    ir.Reduce: _reduce,
    ir.Aggregate: _aggregate,
    ir.GroupBy: _group_by,
    ir.MatrixProduct: _matrix_product,
}


# ---------------------------------------------------------------- answers

Answer = dict[str, Any] | NodeFailure
CODE_FIELDS: Final = ("error_code", "code")


def output_writer(output: ir.NodeOutput) -> Callable[[Any], Any]:
    return writer(output.type if output.required else Nullable(output.type))


def incomplete(name: str) -> NodeError:
    return NodeError("incomplete_output", f"the field {name} has no value")


def collect_success(
    outputs: tuple[ir.NodeOutput, ...],
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that checks and coerces the fields of a success."""
    declared = [(output.name, output_writer(output)) for output in outputs]
    required = [output.name for output in outputs if output.required]

    def collect(values: dict[str, Any]) -> dict[str, Any]:
        for name in required:
            if name not in values:
                raise incomplete(name)
        return {name: coerce_output(name, write, values[name]) for name, write in declared if name in values}

    return collect


def success_of_variables(program: ir.NodeProgram, scope: Scope) -> Callable[[Frame], dict[str, Any]]:
    """Return the answer of a flow that ends without a return: variables named like success fields."""
    outputs, ambient = program.success, set(program.ambient) - set(list_assigned_names(program.steps))
    slots = {output.name: None if output.name in ambient else scope.slot(output.name) for output in outputs}
    declared = [(output.name, slots[output.name], output_writer(output), output.required) for output in outputs]

    def gather(frame: Frame) -> dict[str, Any]:
        values = []
        for name, slot, write, required in declared:
            value = MISSING if slot is None else frame[slot]
            if value is not MISSING:
                values.append((name, write, value))
            elif required:
                raise incomplete(name)
        return {name: coerce_output(name, write, value) for name, write, value in values}

    return gather


def code_field(program: ir.NodeProgram) -> str:
    """Return the declared error field that holds the code; empty if there is none."""
    names = {output.name for output in program.error}
    return next((name for name in CODE_FIELDS if name in names), "")


def compile_failure(value: ir.ErrorAnswer, program: ir.NodeProgram, scope: Scope) -> Callable[[Frame], NodeFailure]:
    code = compile_expression(value.code, scope)
    writers = {output.name: writer(Nullable(output.type)) for output in program.error}
    fields: list[tuple[str, Evaluate]] = [(name, compile_expression(part, scope)) for name, part in value.fields]
    declared = [(name, writers.get(name)) for name in dict(value.fields)]
    code_name = code_field(program)

    def fail(frame: Frame) -> NodeFailure:
        text = code(frame)
        if type(text) is not str:
            raise NodeError("type_error", "an error code is a string")
        values = {name: evaluate(frame) for name, evaluate in fields}
        result = {code_name: text} if code_name else {}
        for name, write in declared:
            result[name] = values[name] if write is None else coerce_output(name, write, values[name])
        return NodeFailure(text, text_of(values.get("message")), "flow", result)

    return fail


def failure_of(error: NodeError) -> NodeFailure:
    return NodeFailure(error.code, error.message, error.phase, error.fields)


def read_declared_message(failure: NodeFailure) -> str:
    """Return the message that the error declares; how Lyra words its own errors decides no contract."""
    return failure.message if "message" in failure.fields else ""


def error_facts(error: NodeError) -> dict[str, Any]:
    """Return `error` as rules see it: kind and message of a failed act, only the code of Lyra's own errors."""
    kind = getattr(error, "kind", None)
    return error_object(error.code, "") if kind is None else error_object(kind, error.message)


def error_object(code: str | None, message: str | None) -> dict[str, Any]:
    """Return `error` as contracts see it; without a code, no error occurred."""
    return {"occurred": code is not None, "code": code, "message": message, "logged": code is not None}


def matching_rules(rules: tuple[ir.ErrorRule, ...], kinds: tuple[str, ...]) -> list[int]:
    """Return the numbers of the rules that a path obeys for an error with these names, in order."""
    return [
        number
        for number, rule in enumerate(rules)
        if rule.action in ir.ANSWERING and (rule.error == "*" or rule.error in kinds) and NOT_CONFIGURED not in kinds
    ]


def rule_scope(scope: Scope) -> tuple[Scope, int]:
    """Return a scope in which `error` is the error that a rule is about, and its slot."""
    inner, (slot,) = scope.bind("error")
    return inner, slot


RunStep = Callable[[Frame], Answer | None]


def compile_steps(steps: tuple[ir.Step, ...], program: ir.NodeProgram, scope: Scope) -> RunStep:
    """Return a function that runs the steps in order, up to the first that answers."""
    compiled = [compile_step(step, program, scope) for step in steps]
    if len(compiled) == 1:
        return compiled[0]

    def run(frame: Frame) -> Answer | None:
        for step in compiled:
            answer = step(frame)
            if answer is not None:
                return answer
        return None

    return run


def compile_step(step: ir.Step, program: ir.NodeProgram, scope: Scope) -> RunStep:
    compiled = _compile_guarded(step, program, scope)
    watch = scope.watch
    if watch is None:
        return compiled

    def run(frame: Frame) -> Answer | None:
        scope.tell(watch, step, frame)
        return compiled(frame)

    return run


def _compile_guarded(step: ir.Step, program: ir.NodeProgram, scope: Scope) -> RunStep:
    compiled = _COMPILERS[type(step)](step, program, scope)
    if not step.guards or isinstance(step, ir.ValidateStep):
        return compiled
    is_wanted = all_hold(step.guards, scope)
    return lambda frame: compiled(frame) if is_wanted(frame) else None


def validation(step: ir.ValidateStep, program: ir.NodeProgram, scope: Scope) -> RunStep:
    holds = all_hold((*step.guards, *step.checks), scope)
    if step.failure is not None:
        failure = compile_failure(step.failure, program, scope)
        return lambda frame: None if holds(frame) else failure(frame)
    message = f"{step.name} failed"

    def validate(frame: Frame) -> None:
        if not holds(frame):
            raise NodeError("validation_failed", message)

    return validate


def _assign(step: ir.AssignStep, program: ir.NodeProgram, scope: Scope) -> RunStep:  # noqa: ARG001 (one signature)
    slot, evaluate = scope.names[step.target], compile_expression(step.value, scope)

    def assign(frame: Frame) -> None:
        frame[slot] = evaluate(frame)

    return assign


def _branch(step: ir.BranchStep, program: ir.NodeProgram, scope: Scope) -> RunStep:
    is_true = compile_condition(step.condition, scope)
    then, otherwise = compile_steps(step.then, program, scope), compile_steps(step.otherwise, program, scope)
    return lambda frame: then(frame) if is_true(frame) else otherwise(frame)


def _for_each(step: ir.ForEachStep, program: ir.NodeProgram, scope: Scope) -> RunStep:
    elements = compile_elements(step, scope)
    inner, (slot,) = scope.for_rounds().bind(step.variable)
    body = compile_steps(step.steps, program, inner)

    def iterate(frame: Frame) -> Answer | None:
        for element in elements(frame):
            frame[slot] = element
            answer = body(frame)
            if answer is not None:
                return answer
        return None

    return iterate


def loop_limit(step: ir.LoopStep) -> NodeError:
    return NodeError("loop_limit", f"{step.name} went on after {step.max_iterations} rounds")


def _loop(step: ir.LoopStep, program: ir.NodeProgram, scope: Scope) -> RunStep:
    is_charged, scope = scope.is_charged(ir.LoopStep), scope.for_rounds()
    goes_on = compile_condition(step.condition, scope)
    body = compile_steps(step.steps, program, scope)

    def repeat(frame: Frame) -> Answer | None:
        meter = frame[METER]
        rounds = 0
        while goes_on(frame):
            if rounds == step.max_iterations:
                raise loop_limit(step)
            rounds += 1
            if is_charged:
                meter.spend(1)
            answer = body(frame)
            if answer is not None:
                return answer
        return None

    return repeat


def _parallel(step: ir.ParallelStep, program: ir.NodeProgram, scope: Scope) -> RunStep:
    return compile_steps(step.steps, program, scope)


def _return(step: ir.ReturnStep, program: ir.NodeProgram, scope: Scope) -> RunStep:
    if step.error is not None:
        return compile_failure(step.error, program, scope)
    outputs = program.success
    evaluated = [(name, compile_expression(value, scope)) for name, value in (step.success or ())]
    collect = collect_success(outputs)
    if len(evaluated) == 1 and [output.name for output in outputs] == [evaluated[0][0]]:
        (name, evaluate), write = evaluated[0], output_writer(outputs[0])
        return lambda frame: {name: coerce_output(name, write, evaluate(frame))}
    return lambda frame: collect({name: evaluate(frame) for name, evaluate in evaluated})


_COMPILERS: Final[dict[type[ir.Step], Callable[[Any, ir.NodeProgram, Scope], RunStep]]] = {
    ir.ValidateStep: validation,
    ir.AssignStep: _assign,
    ir.BranchStep: _branch,
    ir.ForEachStep: _for_each,
    ir.LoopStep: _loop,
    ir.ParallelStep: _parallel,
    ir.ReturnStep: _return,
}


# ---------------------------------------------------------------- contracts

Judge = Callable[[Frame, list[str]], str | None]  # the text of the first contract that fails


def all_hold(checks: Iterable[ir.Condition], scope: Scope) -> Callable[[Frame], bool]:
    """Return whether all checks are true, in order, to the first that is not."""
    conditions = [compile_condition(check.expression, scope) for check in checks]
    if len(conditions) == 1:
        return conditions[0]

    def decide(frame: Frame) -> bool:
        for holds in conditions:  # noqa: SIM110 - a loop is quicker than all()
            if not holds(frame):
                return False
        return True

    return decide


def compile_contracts(
    contracts: Iterable[ir.Contract], scope: Scope, *, undefined: frozenset[str], always: bool = False
) -> Judge:
    """Return a function that judges the contracts in order. A contract with one of the `undefined` names is skipped
    while the name has no value; without `always`, one that also names `success` or `error` is judged all the same."""
    judges = [_judge(contract, scope, undefined, always=always) for contract in contracts]
    if not judges:
        return lambda frame, unverifiable: None  # noqa: ARG005 (one signature)
    if len(judges) == 1:
        return judges[0]

    def first_failure(frame: Frame, unverifiable: list[str]) -> str | None:
        for judge in judges:
            failure = judge(frame, unverifiable)
            if failure is not None:
                return failure
        return None

    return first_failure


def _judge(contract: ir.Contract, scope: Scope, undefined: frozenset[str], *, always: bool) -> Judge:
    text, expression = contract.text, contract.expression
    if expression is None:
        return lambda _, unverifiable: _note(text, unverifiable)
    holds = compile_condition(expression, scope)
    names = names_in(expression)
    slots = [scope.names[name] for name in sorted(names & undefined) if name in scope.names]
    if not always and names & {"success", "error"}:
        slots = []

    def judge(frame: Frame, unverifiable: list[str]) -> str | None:
        for slot in slots:
            if frame[slot] is MISSING:
                return None
        try:
            return None if holds(frame) else text
        except NotSupplied:
            _note(text, unverifiable)
            return None
        except NodeError:
            return text

    return judge


def _note(text: str, unverifiable: list[str]) -> None:
    if text not in unverifiable:
        unverifiable.append(text)
