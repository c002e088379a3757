"""Which errors a node answers with: that each is declared, and that rules about errors are ever met.

A node that lists its error codes (an enum as `error_code`) promises its callers that there are no others. Codes of Lyra
that any node may answer with (`invalid_input`, `overflow`, `timeout` …) are not counted; what an act of the node brings
in is: `effect_failed` where no rule maps the failure of a call, `timeout` of a server, the codes of a node that it
calls. A rule maps an error where it answers: on the step, on the transaction around it, or in the node's
`error_handling`. What a database can fail with is known; a server, a function and an agent may give any code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from lyra.core.checking.document import Path
from lyra.vesper import ir
from lyra.vesper.check.state import CheckState, literal_value
from lyra.vesper.check.steps import CODE_FIELDS, parts_of
from lyra.vesper.check.types import is_text, misfit
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.outcome import CODES, NOT_CONFIGURED
from lyra.vesper.values.types import BYTES, DURATION, TIMESTAMP, DecimalType, EnumType, ValueType, without_null

Act = ir.EffectStep | ir.TransactionStep
_STATUS: Final = re.compile(r"http_([0-9]{3}|[0-9]xx)\Z")
_NEARLY_STATUS: Final = re.compile(r"[0-9]{3}\Z|[0-9]xx\Z|http", re.IGNORECASE)
_OF_ALL_ACTS: Final = frozenset({*CODES, "*", "circuit_open", "in_doubt"}) - {NOT_CONFIGURED}
_OF_CALLS: Final = _OF_ALL_ACTS | {"effect_failed", "unknown_node", "node_not_found", "recursive_node"}
_OF_DATABASES: Final = _OF_ALL_ACTS | {"database_unavailable", "database_error"}
_KINDS: Final = {  # what an act can fail with, where that is known
    "db.query": _OF_DATABASES | {"too_many_rows"},
    "db.write": _OF_DATABASES | {"integrity_error"},
    "db.update": _OF_DATABASES | {"integrity_error"},
    "db.delete": _OF_DATABASES | {"integrity_error"},
    ir.TRANSACTION: _OF_DATABASES | {"too_many_rows", "integrity_error", "conflict"},
}
_HINT: Final = "map it: `on_error: [{error_type: any, return_error: CODE}]`, or declare it in outputs.error"


def judge_unmapped_errors(program: ir.NodeProgram, state: CheckState) -> None:
    """Remark on acts that fail with a code which the node does not declare."""
    declared = list_error_codes(program)
    if declared is None or state.is_broken:
        return
    known = {*declared, *_list_answered_errors(program.rules)}
    paths = {step.name: step.path for step in state.node.all_steps()}
    statements = {
        part.name
        for step in parts_of(program.steps)
        if isinstance(step, ir.TransactionStep)
        for part in parts_of(step.steps)
        if isinstance(part, ir.EffectStep)
    }
    for step, caught in _acts_of(program.steps, frozenset(known)):
        if step.name in statements:
            continue  # errors that its transaction does not map are reported for the transaction
        path = paths.get(step.name, ("flow",))
        if isinstance(step, ir.EffectStep) and step.kind == "node.call":
            _judge_callee(step, caught, path, state)
            continue
        codes = ["effect_failed"]
        if isinstance(step, ir.EffectStep) and step.kind == "http.call":
            codes.append("timeout")
        left = [f"`{code}`" for code in codes if code not in caught]
        if left and "*" not in caught:
            message = f"step `{step.name}` can fail with {' or '.join(left)}, which the node does not declare"
            state.warn("undeclared_error", message, path, hint=_HINT)


def _judge_callee(step: ir.EffectStep, caught: frozenset[str], path: Path, state: CheckState) -> None:
    if "*" in caught:
        return
    called, callee = _find_callee(step, state)
    if callee is None:
        return
    codes = list_error_codes(callee)
    if codes is None:
        message = f"`{called}` lists no error codes, and any code of it is an answer of this node"
        state.warn("undeclared_error", message, path, hint=_HINT)
    elif left := [f"`{code}`" for code in codes if code not in caught and code not in CODES]:
        message = f"`{called}` can answer with {', '.join(left)}, which this node does not declare"
        state.warn("undeclared_error", message, path, hint=_HINT)


def _find_callee(step: ir.EffectStep, state: CheckState) -> tuple[str, ir.NodeProgram | None]:
    """Return the id by which a step calls a node, and the node where it is known."""
    entries = dict(step.request.entries) if isinstance(step.request, ir.MapOf) else {}
    node_id = entries.get("node_id")
    called = str(node_id.value) if isinstance(node_id, ir.Constant) else ""
    return called, state.callees(called) if state.callees is not None and called else None


def judge_calls(program: ir.NodeProgram, state: CheckState) -> None:
    """Remark on inputs, outputs and error codes that a called node does not have."""
    paths = {step.name: step.path for step in state.node.all_steps()}
    parts = list(parts_of(program.steps))
    written = Counter(part.target for part in parts if isinstance(part, ir.AssignStep))
    written.update(part.variable for part in parts if isinstance(part, ir.ForEachStep))
    for part in parts:
        if isinstance(part, ir.EffectStep):
            written.update((part.output, *(name for name, _ in part.extract)))
    for step in parts_of((program.steps, program.rules)):
        if not isinstance(step, ir.EffectStep) or step.kind != "node.call":
            continue
        called, callee = _find_callee(step, state)
        path = paths.get(step.name, ("flow",))
        if callee is None:
            if called and state.callees is not None:
                message = f"no node `{called}` is found, and without it the step ends with `{NOT_CONFIGURED}`"
                state.warn("unknown_node", message, path, hint="put its file beside this one or into `nodes/`")
            continue
        given = dict(step.request.entries).get("parameters") if isinstance(step.request, ir.MapOf) else None
        if isinstance(given, ir.MapOf):
            _judge_call_inputs(called, callee, dict(given.entries), path, state)
        codes = list_error_codes(callee)
        for rule in step.rules:
            if codes is not None and rule.error not in _OF_CALLS and rule.error not in codes:
                message = f"`{called}` never answers with `{rule.error}`"
                state.warn("unreachable", message, path, hint=close_to(rule.error, codes))
        if written[step.output] == 1:
            outputs = [output.name for output in callee.success]
            for name in _fields_read(program, step.output):
                if outputs and name not in outputs:
                    message = f"`{called}` has no output `{name}`, so `{step.output}.{name}` is null"
                    state.warn("unknown_field", message, path, hint=close_to(name, outputs))


def _judge_call_inputs(
    called: str, callee: ir.NodeProgram, given: Mapping[str, ir.TypedExpression], path: Path, state: CheckState
) -> None:
    """Refuse a call with an input that the called node does not have, or does not take, or without one that it
    needs."""
    names = [declared.name for declared in callee.inputs]
    for name in given:
        if name not in names:
            state.error("unknown_input", f"`{called}` has no input `{name}`", path, hint=close_to(name, names))
    for declared in callee.inputs:
        if declared.required and declared.name not in given:
            state.error("missing_input", f"`{called}` needs the input `{declared.name}`", path)
        value, kind = given.get(declared.name), without_null(declared.type)
        reason = _input_misfit(value, kind)
        if reason:
            may_fit = value is not None and is_text(value.type) and isinstance(kind, DecimalType)  # a text of digits
            message = f"the input `{declared.name}` of `{called}` does not take it: {reason}"
            (state.warn if may_fit else state.error)("type", message, path)


def _input_misfit(given: ir.TypedExpression | None, declared: ValueType) -> str:
    """Return why an input does not take a value; empty where it may. Inputs read texts of times, bytes and numbers."""
    if given is None or (isinstance(given, ir.Constant) and given.value is None):
        return ""
    if isinstance(given, ir.Constant):
        try:
            literal_value(given.value, declared)
        except ValueError as error:
            return str(error)
        return ""
    reads = declared in (TIMESTAMP, BYTES, DURATION)
    return "" if is_text(without_null(given.type)) and reads else misfit(given.type, declared)


def _fields_read(program: ir.NodeProgram, variable: str) -> list[str]:
    """Return the fields of a variable that a program reads."""
    fields = (part for part in parts_of((program.steps, program.rules)) if isinstance(part, ir.FieldOf))
    return list(
        dict.fromkeys(
            field.name
            for field in fields
            if isinstance(field.target, ir.NodeVariable) and field.target.name == variable
        )
    )


def judge_unmet_rules(program: ir.NodeProgram, state: CheckState) -> None:
    """Remark on rules about errors that never happen at their step."""
    paths = {step.name: step.path for step in state.node.all_steps()}
    for step, _ in _acts_of(program.steps, frozenset()):
        kind = step.kind if isinstance(step, ir.EffectStep) else ir.TRANSACTION
        for rule in step.rules:
            path = paths.get(step.name, ("flow",))
            status = _STATUS.match(rule.error)
            if kind in _KINDS and rule.error not in _KINDS[kind]:
                known = ", ".join(sorted(_KINDS[kind] - _OF_ALL_ACTS))
                message = f"`{rule.error}` never happens at step `{step.name}`, which can fail with {known}"
                state.warn("unreachable", message, path)
            elif kind == "http.call" and status is None and _NEARLY_STATUS.match(rule.error):
                message = f"`{rule.error}` is no status of an answer"
                state.warn("unreachable", message, path, hint="write such as http_404 or http_4xx")
            elif kind == "http.call" and status is not None and status[1][0] not in "345":
                message = f"`{rule.error}` is no error: an answer of a server is one from 300 to 599"
                state.warn("unreachable", message, path)


def list_error_codes(program: ir.NodeProgram) -> tuple[str, ...] | None:
    """Return the error codes that a node lists; None where it lists none."""
    for output in program.error:
        kind = without_null(output.type)
        if output.name in CODE_FIELDS and isinstance(kind, EnumType):
            return kind.values
    return None


def _list_answered_errors(rules: Sequence[ir.ErrorRule]) -> set[str]:
    return {rule.error for rule in rules if rule.answer is not None}


def _acts_of(steps: Sequence[ir.Step], caught: frozenset[str]) -> Iterator[tuple[Act, frozenset[str]]]:
    """Yield each act with the errors that rules about it map; errors of compensations are passed over."""
    for step in steps:
        match step:
            case ir.EffectStep():
                yield step, caught | _list_answered_errors(step.rules)
                yield from _acts_of((*step.found, *step.empty), caught)
            case ir.TransactionStep():
                inside = caught | _list_answered_errors(step.rules)
                yield step, inside
                yield from _acts_of(step.steps, inside)
            case ir.BranchStep():
                yield from _acts_of((*step.then, *step.otherwise), caught)
            case ir.ForEachStep() | ir.LoopStep() | ir.ParallelStep():
                yield from _acts_of(step.steps, caught)
