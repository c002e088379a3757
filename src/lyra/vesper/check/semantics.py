"""Rules about a node as a whole, after its parts are typed: outputs, names, rights, numbers, tests, observability.

Each rule is a function of the program and the state of the check; `RULES` lists them. `satisfiable` has the rules
about contracts that can never hold. The condition of an alert is an expression over `ALERT_NAMES`, figures of the
latest executions. A label of a metric is `status`, `error_code`, an input or an output; its values leave the machine
with the metric, so nothing sensitive may be one. A gauge, and a histogram that is not of the duration, shows the number
of that name among inputs and outputs.

Rules about outputs ask whether a flow writes a variable whatever its inputs are, also where conditions exclude each
other or leave no case out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final

from lyra.core.checking.document import Path
from lyra.vesper import ir
from lyra.vesper.check.derived import find_hidden_names
from lyra.vesper.check.effects import DANGEROUS, covering, matches, overlap, parse_denial
from lyra.vesper.check.errors import judge_calls, judge_unmapped_errors, judge_unmet_rules, list_error_codes
from lyra.vesper.check.infer import Typing
from lyra.vesper.check.satisfiable import judge_contracts
from lyra.vesper.check.sql import judge_rows
from lyra.vesper.check.state import CheckState, NameScope
from lyra.vesper.check.steps import CODE_FIELDS, always_returns, names_in, parts_of
from lyra.vesper.check.types import misfit, nullable
from lyra.vesper.expressions.functions import FORMS
from lyra.vesper.expressions.parser import KEYWORDS
from lyra.vesper.ir import NodeInput, NodeOutput, NodeProgram, TypedExpression
from lyra.vesper.nodes.model import DeclaredMetric, FieldDeclaration, Node, StepDeclaration
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.limits import MEMORY_MB_MAX, SAMPLES_MAX, TIME_S_MAX
from lyra.vesper.values.names import bare_id, is_node_id, version_of
from lyra.vesper.values.outcome import CODES
from lyra.vesper.values.triggers import METHODS, route_of, schedule_of
from lyra.vesper.values.types import (
    BOOLEAN,
    INTEGER,
    DecimalType,
    EnumType,
    Nullable,
    ValueType,
    is_numeric,
    without_null,
)

_CASES_MAX: Final = 512
_OPPOSITE: Final = {"!=": "==", "<=": ">", ">=": "<"}

_Case = Mapping[Any, Any]  # the values of inputs by name, and the outcomes of comparisons by what they compare


def writes_always(program: ir.NodeProgram, name: str) -> bool:
    """Return whether each success of a program has written a variable."""
    if any(_may_write_null(part, name) for part in parts_of(program.steps)):
        return False
    inputs = {source.name: source.type for source in program.inputs if source.required}
    assigned = {getattr(part, field, "") for part in parts_of(program.steps) for field in ("target", "output")}
    known = {key: kind for key, kind in inputs.items() if key not in assigned and not isinstance(kind, Nullable)}
    columns = {key: values for key, kind in known.items() if (values := _values_of(kind))}
    atoms: dict[Any, tuple[Any, ...]] = {}
    for part in parts_of(program.steps):
        if isinstance(part, ir.Compare) and _is_settled(part, known):
            atoms[_atom(part)[0]] = (False, True)
    used = {part.name for part in parts_of(program.steps) if isinstance(part, ir.NodeVariable)}
    cases: dict[Any, tuple[Any, ...]] = {key: values for key, values in columns.items() if key in used}
    cases |= {key: values for key, values in atoms.items() if not _names(key[1:]) & columns.keys()}
    total = 1
    for values in cases.values():
        total *= len(values)
    if total > _CASES_MAX:
        return False
    rows = (dict(zip(cases, row, strict=True)) for row in product(*cases.values()))
    return all(_ends_well(program.steps, name, case) for case in rows)


def _may_write_null(part: Any, name: str) -> bool:
    if isinstance(part, ir.EffectStep):
        return name in (part.output, *(extracted for extracted, _ in part.extract))
    return isinstance(part, ir.AssignStep) and part.target == name and isinstance(part.value.type, Nullable)


def _values_of(kind: ValueType) -> tuple[Any, ...]:
    if kind == BOOLEAN:
        return (False, True)
    return kind.values if isinstance(kind, EnumType) else ()


def _names(parts: Any) -> set[str]:
    return {part.name for part in parts_of(parts) if isinstance(part, ir.NodeVariable)}


def _is_settled(part: ir.Compare, known: Mapping[str, ValueType]) -> bool:
    """Return whether a comparison has one outcome in a whole execution, which its opposite has not."""
    plain = (ir.NodeVariable, ir.Constant, ir.Compare)
    return _names(part) <= known.keys() and all(isinstance(inner, plain) for inner in _expressions(part))


def _expressions(part: Any) -> Iterator[ir.TypedExpression]:
    return (inner for inner in parts_of(part) if isinstance(inner, ir.TypedExpression))


def _atom(part: ir.Compare) -> tuple[tuple[Any, ...], bool]:
    """Return what a comparison asks, and whether it asks for the opposite of that."""
    operator = _OPPOSITE.get(part.operator, part.operator)
    sides = (_without_place(part.left), _without_place(part.right))
    return (operator, *sides), operator != part.operator


def _without_place(part: ir.TypedExpression) -> ir.TypedExpression:
    """Return a side of a comparison without its place."""
    return type(part)(**{name: getattr(part, name) for name in part.__struct_fields__ if name != "place"})


def _ends_well(steps: Iterable[ir.Step], name: str, case: _Case) -> bool:
    """Return whether steps write the variable, or end the node, in a case."""
    for step in steps:
        holds = _all_hold(step.guards, case)
        if isinstance(step, ir.ValidateStep):
            if _all_hold((*step.guards, *step.checks), case) is False:
                return True  # with an error
        elif holds is True and _writes(step, name, case):
            return True
    return False


def _writes(step: ir.Step, name: str, case: _Case) -> bool:
    match step:
        case ir.ReturnStep():
            return True
        case ir.AssignStep():
            return step.target == name
        case ir.BranchStep():
            outcome = _judge(step.condition, case)
            sides = {True: (step.then,), False: (step.otherwise,), None: (step.then, step.otherwise)}[outcome]
            return all(_ends_well(side, name, case) for side in sides)
        case ir.ParallelStep() | ir.TransactionStep():
            return _ends_well(step.steps, name, case)
        case ir.EffectStep() if step.found or step.empty:
            return _ends_well(step.found, name, case) and _ends_well(step.empty, name, case)
    return False


def _all_hold(conditions: Iterable[ir.Condition], case: _Case) -> bool | None:
    outcomes = [_judge(condition.expression, case) for condition in conditions]
    return False if False in outcomes else None if None in outcomes else True


def _judge(condition: ir.TypedExpression, case: _Case) -> bool | None:
    """Return the outcome of a condition in a case; None where it may come out either way."""
    match condition:
        case ir.Constant(value=bool() as value):
            return value
        case ir.NodeVariable():
            known = case.get(condition.name)
            return known if isinstance(known, bool) else None
        case ir.Not():
            inner = _judge(condition.operand, case)
            return None if inner is None else not inner
        case ir.Logic():
            left, right = _judge(condition.left, case), _judge(condition.right, case)
            if condition.operator == "implies":
                left = None if left is None else not left
            decisive = condition.operator != "and"
            if left is decisive or right is decisive:
                return decisive
            return None if left is None or right is None else not decisive
        case ir.Membership(item=ir.NodeVariable() as item, collection=ir.ListOf() as values):
            if item.name in case and all(isinstance(value, ir.Constant) for value in values.items):
                return case[item.name] in [value.value for value in values.items if isinstance(value, ir.Constant)]
        case ir.Compare():
            sides = [_value(side, case) for side in (condition.left, condition.right)]
            if condition.operator in ("==", "!=") and all(len(side) == 1 for side in sides):
                return (sides[0] == sides[1]) is (condition.operator == "==")
            key, is_opposite = _atom(condition)
            return None if key not in case else bool(case[key]) is not is_opposite
    return None


def _value(side: ir.TypedExpression, case: _Case) -> tuple[Any, ...]:
    """Return the value of a constant, or of an input in a case; an empty tuple of anything else."""
    if isinstance(side, ir.Constant):
        return (side.value,)
    return (case[side.name],) if isinstance(side, ir.NodeVariable) and side.name in case else ()


# ---------------------------------------------------------------- watching

ALERT_NAMES: Final[dict[str, ValueType]] = {
    "executions": INTEGER,
    "errors": INTEGER,
    "error_rate": DecimalType(),
    "divergences": INTEGER,
    "confidence": DecimalType(),
    "p50_latency_ms": nullable(DecimalType()),
    "p95_latency_ms": nullable(DecimalType()),
    "p99_latency_ms": nullable(DecimalType()),
    "max_latency_ms": nullable(DecimalType()),
}
OWN_LABELS: Final = ("status", "error_code")
_METRIC_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,99}\Z")
_RATE: Final = re.compile(r"\s*([0-9]{1,9})\s*/\s*(minute|hour|day)\s*\Z")
_SECTION: Final = "observability"
Fields = Mapping[str, NodeInput | NodeOutput]


def alert_conditions(node: Node) -> tuple[TypedExpression, ...]:
    """Return the conditions of a node's alerts, in order; of a node without errors."""
    return _conditions(CheckState(node))


def rate_of(text: str) -> tuple[int, str]:
    """Return how many executions in which time; ValueError where the text is no rate."""
    match = _RATE.match(text)
    if match is None or int(match[1]) < 1:
        raise ValueError(text)
    return int(match[1]), match[2]


def _conditions(state: CheckState) -> tuple[TypedExpression, ...]:
    typing, scope = Typing(state), NameScope(names=dict(ALERT_NAMES))
    return tuple(
        typing.condition(alert.condition, (_SECTION, "alerts", index, "condition"), scope)
        for index, alert in enumerate(state.node.observability.alerts)
    )


# ------------------------------------------------------------------ rules
def judge_alerts(_: NodeProgram, state: CheckState) -> None:
    for index, alert in enumerate(state.node.observability.alerts):
        if not alert.condition:
            state.error("missing_key", "an alert has no `condition`", (_SECTION, "alerts", index))
            return
    _conditions(state)


def judge_metrics(program: NodeProgram, state: CheckState) -> None:
    entries: tuple[NodeInput | NodeOutput, ...] = (*program.inputs, *program.success)
    fields = {entry.name: entry for entry in entries}
    hidden = find_hidden_names(program)
    names: set[str] = set()
    for index, metric in enumerate(state.node.observability.metrics):
        path: Path = (_SECTION, "metrics", index)
        if _METRIC_NAME.match(metric.name) is None:
            state.error("bad_value", "the name of a metric is letters, digits and underscores", path)
        elif metric.name in names:
            state.error("duplicate", f"a metric `{metric.name}` is there already", path)
        names.add(metric.name)
        if metric.type == "gauge" and not _is_number(metric, fields):
            state.error("type", f"a gauge is the name of a number among inputs and outputs: `{metric.name}`", path)
        if list(metric.buckets) != sorted(set(metric.buckets)):
            state.error("bad_value", "buckets are numbers in rising order", (*path, "buckets"), value=True)
        for place, label in enumerate(metric.labels):
            _judge_label(label, fields, hidden, (*path, "labels", place), state)


def _is_number(metric: DeclaredMetric, fields: Fields) -> bool:
    entry = fields.get(metric.name)
    return entry is not None and is_numeric(without_null(entry.type))


def _judge_label(label: str, fields: Fields, hidden: frozenset[str], path: Path, state: CheckState) -> None:
    if label in OWN_LABELS:
        return
    entry = fields.get(label)
    if entry is None:
        hint = close_to(label, (*fields, *OWN_LABELS))
        state.error(
            "unknown_field", f"a label is status, error_code, an input or an output: `{label}`", path, hint=hint
        )
    elif label in hidden:
        words = "is sensitive" if entry.sensitive else "is computed from a sensitive input"
        hint = "" if entry.sensitive else "an output that may be seen says `sensitive: false`"
        state.error("sensitive", f"`{label}` {words} and would leave the machine with the metric", path, hint=hint)


def judge_tracing(_: NodeProgram, state: CheckState) -> None:
    rate = state.node.observability.tracing.sample_rate
    if rate is not None and rate > 1:
        state.error("bad_value", "a sample rate is from 0 to 1", (_SECTION, "tracing", "sample_rate"), value=True)


def judge_rates(_: NodeProgram, state: CheckState) -> None:
    declared = state.node.performance.rate_limit
    if declared is None:
        return
    for key, text in (("per_user", declared.per_user), ("global", declared.overall)):
        try:
            rate_of(text or "1/minute")
        except ValueError:
            path = ("performance", "rate_limit", key)
            state.error("bad_value", "a rate is such as 100/minute, 5/hour or 1000/day", path, value=True)


WATCHING_RULES: Final = (judge_alerts, judge_metrics, judge_tracing, judge_rates)


# Remarks on keys that nothing follows from, or nothing in this case.
_CONSISTENCIES: Final = ("strong", "eventual")
_CODE: Final = "no_effect"


def judge_settings_of_tests(_: NodeProgram, state: CheckState) -> None:
    testing = state.node.testing
    for index, test in enumerate(testing.property_tests):
        if test.strategy:
            message = "`strategy` is for other tools: `vesper test` draws inputs in its own way"
            state.info(_CODE, message, ("testing", "property_tests", index, "strategy"))
    for index, case in enumerate(testing.test_cases):
        if case.steps:
            message = "`steps` of a test case are for people: `vesper test` compares how it ends"
            state.info(_CODE, message, ("testing", "test_cases", index, "steps"))
    size = testing.differential_tests.sample_size
    if size is not None and not 1 <= size <= SAMPLES_MAX:
        message = f"a sample has from 1 to {SAMPLES_MAX} inputs"
        state.error("limit", message, ("testing", "differential_tests", "sample_size"), value=True)


def judge_processors(_: NodeProgram, state: CheckState) -> None:
    if state.node.performance.cpu_limit_cores is not None:
        message = "`cpu_limit_cores` limits nothing: an execution has one thread, and `timeout_seconds` bounds its time"
        state.info(_CODE, message, ("performance", "cpu_limit_cores"))


def judge_consistencies(_: NodeProgram, state: CheckState) -> None:
    """Accept both: each write is committed before its step ends, which is `strong`, and more than `eventual` asks
    for."""
    for step in state.node.all_steps():
        setting = step.settings.get("consistency")
        if setting is None or setting.value is None:
            continue
        if setting.value not in _CONSISTENCIES:
            hint = close_to(str(setting.value), _CONSISTENCIES)
            state.error("unknown_word", "`consistency` is strong or eventual", setting.path, hint=hint, value=True)
        elif setting.value == "eventual":
            state.info(_CODE, "every write is strong: it is committed before the step ends", setting.path, value=True)


def judge_denials(_: NodeProgram, state: CheckState) -> None:
    for index, text in enumerate(state.node.security.denied_capabilities):
        if parse_denial(text) is None:
            path = ("security", "denied_capabilities", index)
            state.warn("bad_capability", f"{text[:80]!r} is no capability, and denies nothing", path, value=True)


UNENFORCED_RULES: Final = (judge_settings_of_tests, judge_processors, judge_consistencies, judge_denials)


# Rules about how handlers and jobs are reached: `route`, `events` and `schedule` in the metadata of a node.
_TYPES: Final = {"route": "http_handler", "events": "event_handler", "schedule": "scheduled_job"}


def judge_entries(program: NodeProgram, state: CheckState) -> None:
    metadata = state.node.metadata
    for key, kind in _TYPES.items():
        if getattr(metadata, key) and program.kind != kind:
            state.warn("no_effect", f"`{key}` belongs to the type {kind}", ("metadata", key))
    for key in ("events", "schedule"):
        if program.kind == _TYPES[key] and not getattr(metadata, key):
            state.info("no_entry", f"nothing starts this {program.kind}: it has no `{key}`", ("type",))
    if metadata.route:
        _route(program, state)
    if metadata.schedule and schedule_of(metadata.schedule) is None:
        message = "`schedule` is `every DURATION` (a second or more), or five fields of cron"
        state.error("bad_value", message, ("metadata", "schedule"), value=True)


def _route(program: NodeProgram, state: CheckState) -> None:
    path = ("metadata", "route")
    route = route_of(state.node.metadata.route)
    if route is None:
        message = f"`route` is a method ({', '.join(METHODS)}) and a path, such as `POST /orders`"
        state.error("bad_value", message, path, value=True)
        return
    inputs = {entry.name for entry in program.inputs}
    for name in route.names:
        if name not in inputs:
            state.error("unknown_name", f"there is no input `{name}`", path, value=True)


NODE_TYPES: Final = (
    "function",
    "http_handler",
    "event_handler",
    "data_transform",
    "state_machine",
    "aggregation",
    "scheduled_job",
)
_RESERVED: Final = frozenset({*KEYWORDS, *FORMS, "true", "false", "null"})
_OUTCOME_FIELDS: Final = ("success", "status", "error", "error_code", "message")  # of every outcome, in a test case
_COMPUTING: Final = ("arithmetic", "string_template", "data_transform", "matrix.multiply")
_INTENT_CHARS_MIN: Final = 10
_STEPS_WITHOUT_CONTRACTS_MAX: Final = 5

Rule = Callable[[NodeProgram, CheckState], None]


def judge_program(program: NodeProgram, state: CheckState) -> None:
    """Add the remarks of all rules."""
    for rule in RULES:
        rule(program, state)


# ------------------------------------------------------------------ names
def judge_node_type(_: NodeProgram, state: CheckState) -> None:
    kind = state.node.kind
    if kind and kind not in NODE_TYPES:
        hint = close_to(kind, NODE_TYPES)
        state.warn(
            "unknown_node_type", f"`{kind}` is none of {', '.join(NODE_TYPES)}", ("type",), hint=hint, value=True
        )


def judge_versions(_: NodeProgram, state: CheckState) -> None:
    written = state.node.metadata.version
    if written and is_node_id(f"x_v{written}") and is_node_id(state.node.node_id):
        major = version_of(state.node.node_id)[0]
        if version_of(f"x_v{written}")[0] != major:
            message = f"version {written} does not belong to {state.node.node_id}"
            state.warn("version", message, ("metadata", "version"), value=True)


def judge_reserved_words(_: NodeProgram, state: CheckState) -> None:
    fields: tuple[FieldDeclaration, ...] = (*state.node.inputs, *state.node.success, *state.node.error)
    for field in fields:
        if field.name in _RESERVED:
            state.error("reserved_word", f"`{field.name}` is a word of the language", field.path)


def judge_duplicate_steps(_: NodeProgram, state: CheckState) -> None:
    seen: dict[str, StepDeclaration] = {}
    for step in state.node.all_steps():
        if not step.is_named:
            continue
        first = seen.setdefault(step.name, step)
        if first is not step:
            line = state.document.place(first.path)[0]
            state.error("duplicate_step", f"step `{step.name}` is already in line {line}", (*step.path, "step"))


# ------------------------------------------------------------------ flow
def judge_outputs(program: NodeProgram, state: CheckState) -> None:
    """Check that every path returns, or the variables named like outputs are written."""
    if not state.node.flow and not state.is_broken:
        state.warn("empty_flow", "the node has no steps", ("flow",) if state.has_path(("flow",)) else ())
    if always_returns(program.steps) or state.is_broken:
        return
    for output, field in zip(program.success, state.node.success, strict=True):
        kind = state.end_names.get(field.name)
        if kind is None:
            if field.required:
                state.error("missing_output", f"the required output `{field.name}` is never written", field.path)
            continue
        reason = misfit(kind, output.type)
        is_quotient = without_null(output.type) == INTEGER and field.name in state.quotients
        if reason and not is_quotient:
            state.error("type", f"the variable `{field.name}` does not fit the output: {reason}", field.path)
        elif isinstance(kind, Nullable) and field.required and not isinstance(output.type, Nullable):
            reason = "is not written on every path, or may be written as null"
            if not writes_always(program, field.name):
                state.warn("maybe_missing", f"the output `{field.name}` {reason}", field.path)


def judge_unread(program: NodeProgram, state: CheckState) -> None:
    """Remark on values that steps compute, or read from an answer, and that nothing reads."""
    outputs = {output.name for output in program.success}
    contracts = (program.preconditions, program.postconditions, program.invariants)
    read = outputs | names_in((program.steps, program.rules, *contracts))
    if state.is_broken:
        return
    for step in state.node.all_steps():
        output, extract = step.settings.get("output"), step.settings.get("on_success")
        names = {}
        if step.operation in _COMPUTING:
            names = {str(output.value) if output is not None else step.name: output.path if output else step.path}
        elif extract is not None and isinstance(extract.value, dict) and isinstance(extract.value.get("extract"), dict):
            names = {name: (*extract.path, "extract", name) for name in extract.value["extract"]}
        for name, path in names.items():
            if name not in read and (output is not None or step.is_named or extract is not None):
                hint = close_to(name, read)
                state.warn("no_effect", f"nothing reads the variable `{name}`", path, hint=hint, value=True)


def judge_error_coverage(program: NodeProgram, state: CheckState) -> None:
    """Remark on codes that are declared and never answered."""
    answered = {*CODES, *state.codes, *(rule.code for rule in state.node.error_handling)}
    for output, field in zip(program.error, state.node.error, strict=True):
        kind = without_null(output.type)
        if output.name not in CODE_FIELDS or not isinstance(kind, EnumType):
            continue
        for code in kind.values:
            if code not in answered:
                state.info("unused_error", f"no step answers with the error code `{code}`", field.path)


# ------------------------------------------------------------------ rights
def judge_capability_closure(_: NodeProgram, state: CheckState) -> None:
    declared = state.node.security.capabilities_required
    for capability, path in state.needed.items():
        if covering(capability, declared) is None:
            hint = f"add {capability} to security.capabilities_required"
            state.error("undeclared_capability", f"the step needs `{capability}`", path, hint=hint)
    for path, capability, denied in _conflicts(state):
        state.error("denied_capability", f"`{capability}` is required, and denied by `{denied}`", path, value=True)


def _conflicts(state: CheckState) -> Iterator[tuple[Path, str, str]]:
    security = state.node.security
    for index, capability in enumerate(security.capabilities_required):
        for denied in security.denied_capabilities:
            if overlap(capability, denied):
                yield ("security", "capabilities_required", index), capability, denied


def judge_dangerous_capabilities(_: NodeProgram, state: CheckState) -> None:
    for index, capability in enumerate(state.node.security.capabilities_required):
        if any(matches(capability, danger) or matches(danger, capability) for danger in DANGEROUS):
            path = ("security", "capabilities_required", index)
            state.warn("dangerous_capability", f"`{capability}` can do harm outside the node", path, value=True)


def judge_audit(program: NodeProgram, state: CheckState) -> None:
    if not program.pure and state.node.security.audit_level == "none":
        path = ("security", "audit_level")
        state.warn("no_audit", "the node acts outside, and nothing of it is recorded", path, value=True)


def judge_sensitive_names(_: NodeProgram, state: CheckState) -> None:
    listed = state.node.security.sensitive_data
    if isinstance(listed, bool):
        return
    names = {field.name for field in (*state.node.inputs, *state.node.success, *state.node.error)}
    for index, name in enumerate(listed):
        if name not in names:
            path = ("security", "sensitive_data", index)
            hint = close_to(name, names)
            hint = hint or "name inputs and outputs, or say `true` for all of them"
            state.warn("unknown_field", f"there is no input or output `{name}`", path, hint=hint, value=True)


# ------------------------------------------------------------------ numbers
def judge_latencies(_: NodeProgram, state: CheckState) -> None:
    numbers = state.node.performance
    expected, p99, highest = numbers.expected_latency_ms, numbers.p99_latency_ms, numbers.max_latency_ms
    if expected is not None and p99 is not None and expected > p99:
        message = "the expected latency is above the 99th percentile"
        state.error("latency", message, ("performance", "expected_latency_ms"), value=True)
    if p99 is not None and highest is not None and p99 > highest:
        message = "the 99th percentile is above the highest latency"
        state.error("latency", message, ("performance", "p99_latency_ms"), value=True)
    if numbers.timeout_seconds is not None and highest is not None and numbers.timeout_seconds * 1000 < highest:
        message = "the time-out is below the highest latency"
        state.warn("latency", message, ("performance", "timeout_seconds"), value=True)


def judge_resource_limits(_: NodeProgram, state: CheckState) -> None:
    numbers = state.node.performance
    if numbers.timeout_seconds is not None and not 0 < numbers.timeout_seconds <= TIME_S_MAX:
        message = f"a time-out is more than 0 and at most {int(TIME_S_MAX)} seconds"
        state.error("limit", message, ("performance", "timeout_seconds"), value=True)
    if numbers.memory_limit_mb is not None and not 0 < numbers.memory_limit_mb <= MEMORY_MB_MAX:
        message = f"a memory limit is from 1 to {MEMORY_MB_MAX} MB"
        state.error("limit", message, ("performance", "memory_limit_mb"), value=True)


# ------------------------------------------------------------------ documentation and tests
def judge_inputs_of_tests(_: NodeProgram, state: CheckState) -> None:
    """Remark on test cases of the file with inputs that the node does not have."""
    names = {field.name for field in state.node.inputs}
    for index, case in enumerate(state.node.testing.test_cases):
        for name in case.inputs:
            if name not in names:
                path = ("testing", "test_cases", index, "inputs", name)
                hint = close_to(name, names)
                state.warn("unknown_input", f"the node has no input `{name}`", path, hint=hint)


def judge_answers_of_tests(program: NodeProgram, state: CheckState) -> None:
    """Remark on test cases that expect outputs or error codes which the node does not have."""
    outputs = {output.name for output in (*program.success, *program.error)}
    declared = list_error_codes(program)
    calls = any(step.operation == "call_node" for step in state.node.all_steps())  # whose codes may be the node's
    for index, case in enumerate(state.node.testing.test_cases):
        path = ("testing", "test_cases", index, "expected_output")
        for name, value in case.expected_output.items():
            if outputs and name.split(".")[0] not in {*outputs, *_OUTCOME_FIELDS}:
                hint = close_to(name, {*outputs, "error_code", "message"})
                state.warn("unknown_output", f"the node has no output `{name}`", (*path, name), hint=hint)
            is_code = name in CODE_FIELDS and isinstance(value, str) and declared is not None and not calls
            if is_code and value not in {*(declared or ()), *CODES}:
                message = f"the node does not answer with the error code `{value}`"
                hint = close_to(value, declared or ())
                state.warn("undeclared_error", message, (*path, name), hint=hint, value=True)


def judge_dependencies(_: NodeProgram, state: CheckState) -> None:
    for index, name in enumerate(state.node.metadata.dependencies):
        if not is_node_id(name) and not is_node_id(f"{name}_v1"):
            path = ("metadata", "dependencies", index)
            state.warn("bad_node_id", f"{name[:80]!r} is no id of a node", path, value=True)
        elif bare_id(name) == bare_id(state.node.node_id):
            state.warn("recursive_node", "the node depends on itself", ("metadata", "dependencies", index), value=True)


def advise(program: NodeProgram, state: CheckState) -> None:
    node = state.node
    if not node.metadata.description:
        state.info(
            "no_description", "the node has no description", ("metadata",) if state.has_path(("metadata",)) else ()
        )
    if not node.testing.test_cases and not node.testing.property_tests:
        state.info("no_tests", "the node has no tests", ("testing",) if state.has_path(("testing",)) else ())
    if 0 < len(node.intent) < _INTENT_CHARS_MIN:
        state.info("short_intent", "the intent says little", ("intent",), value=True)
    contracts = (*program.preconditions, *program.postconditions, *program.invariants)
    if len(node.flow) > _STEPS_WITHOUT_CONTRACTS_MAX and not contracts:
        state.info("no_contracts", "the node has many steps and no contracts", ("flow",))


RULES: Final[tuple[Rule, ...]] = (
    judge_node_type,
    judge_versions,
    judge_reserved_words,
    judge_duplicate_steps,
    judge_outputs,
    judge_error_coverage,
    judge_unmapped_errors,
    judge_calls,
    judge_unmet_rules,
    judge_rows,
    judge_unread,
    judge_capability_closure,
    judge_dangerous_capabilities,
    judge_audit,
    judge_sensitive_names,
    judge_latencies,
    judge_resource_limits,
    judge_inputs_of_tests,
    judge_answers_of_tests,
    judge_dependencies,
    judge_entries,
    judge_contracts,
    *WATCHING_RULES,
    *UNENFORCED_RULES,
    advise,
)
