"""The judgement on a node: all remarks at once, in order of place, and its `NodeProgram`.

`check` takes a node, `check_text` the text of a file. With `strict`, warnings are errors. `program_of` gives the
program of a node that has no errors. `lower_node` always gives a program: types, constraints, contracts and steps, with
every remark on the way. The digest is a hash over all that decides what the node does: comments, places and
descriptions are no part of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from lyra.errors import ParseError
from lyra.vesper import ir
from lyra.vesper.check.contracts import Constraints, ContractReader
from lyra.vesper.check.effects import EffectLowering
from lyra.vesper.check.infer import Typing
from lyra.vesper.check.rules import ErrorRules
from lyra.vesper.check.semantics import judge_program
from lyra.vesper.check.state import Callees, CheckState, NameScope, Observer
from lyra.vesper.check.steps import AnswerReader, Steps, depth_of, parts_of
from lyra.vesper.check.transforms import Transforms
from lyra.vesper.check.types import TypeTable, common, nullable
from lyra.vesper.loading import ERROR, INFO, WARNING, Issue, error_of, sort_issues
from lyra.vesper.nodes.model import ContractText, FieldDeclaration, MachineDeclaration, Node, TypeDeclaration
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.nodes.sections import read_node
from lyra.vesper.values.limits import IR_DEPTH_MAX, MEMORY_MB_DEFAULT, MEMORY_MB_MAX, TIME_S_DEFAULT, TIME_S_MAX
from lyra.vesper.values.types import ANY, BOOLEAN, STRING, RecordField, RecordType, ValueType


def check(node: Node, *, strict: bool = False, callees: Callees | None = None) -> list[Issue]:
    """Return all remarks on a node, in order of place; also on the codes of nodes that `callees` gives."""
    return check_node(node, strict=strict, callees=callees)[1]


def check_text(text: str, file: str = "<text>", *, strict: bool = False, callees: Callees | None = None) -> list[Issue]:
    """Return all remarks on the text of a file; a text that is no YAML has one."""
    try:
        node, issues = read_node(text, file)
    except ParseError as error:
        return [msgspec.convert(problem, Issue) for problem in error.fields["problems"]]
    return check(node, strict=strict, callees=callees) if node is not None else issues


def program_of(node: Node, *, strict: bool = False) -> ir.NodeProgram:
    """Return the program of a node; CheckError with all remarks in `fields["problems"]` where it has errors."""
    program, issues = check_node(node, strict=strict)
    if has_errors(issues):
        raise error_of(issues, node.file)
    return program


def lower_unchecked(node: Node) -> ir.NodeProgram:
    """Return the program of a node that may have errors: to look at, not to run."""
    return lower_node(node)[0]


def has_errors(issues: Sequence[Issue]) -> bool:
    return any(issue.severity == ERROR for issue in issues)


def check_node(
    node: Node, *, strict: bool = False, callees: Callees | None = None, observer: Observer | None = None
) -> tuple[ir.NodeProgram, list[Issue]]:
    """Return the program of a node, fit to run where no remark is an error, and all remarks. The observer
    receives the meaning of the names in expressions."""
    program, state = lower_node(node, observer)
    state.callees = callees
    judge_program(program, state)
    issues = list(dict.fromkeys((*node.issues, *state.issues.items)))
    if state.issues.left_out:
        message = f"{state.issues.left_out} more remarks are not listed"
        issues.append(
            Issue(severity=INFO, code="limit", message=message, line=len(node.document.text.splitlines()) or 1)
        )
    if strict:
        issues = [
            msgspec.structs.replace(issue, severity=ERROR) if issue.severity == WARNING else issue for issue in issues
        ]
    return program, sort_issues(issues)


# ---------------------------------------------------------------- lower

_ERROR_RECORD: Final = RecordType(
    "error",
    (
        RecordField("occurred", BOOLEAN),
        RecordField("code", nullable(STRING)),
        RecordField("message", nullable(STRING)),
        RecordField("logged", BOOLEAN),
    ),
)
_NOT_DIGESTED: Final = frozenset({"place", "description", "digest", "intent", "idempotent", "audit", "public"})


def lower_node(node: Node, observer: Observer | None = None) -> tuple[ir.NodeProgram, CheckState]:
    """Return the program of a node and the state of the check; after an error the program is not fit to run."""
    state = CheckState(node, observer)
    return _Lowering(state).program(), state


class _Lowering:
    def __init__(self, state: CheckState) -> None:
        self.state = state
        self.node = state.node
        self.typing = Typing(state)
        self.types = TypeTable(state.node, state)
        self.constraints = Constraints(state, self.typing, self.types)
        self.contracts = ContractReader(state, self.typing)

    def program(self) -> ir.NodeProgram:
        inputs = tuple(self._input(field) for field in self.node.inputs)
        success = tuple(self._output(field) for field in self.node.success)
        error = tuple(self._output(field) for field in self.node.error)
        names = {field.name: field.type for field in inputs}
        answers = AnswerReader(
            self.state,
            self.typing,
            {item.name: item.type for item in success},
            {item.name: item.type for item in error},
        )
        steps = Steps(self.state, self.typing, self.contracts, answers, Transforms(self.state, self.typing))
        rules = ErrorRules(self.state, steps)
        machines = tuple(
            machine_of(self.state, self.contracts, declared, names) for declared in self.node.state_machines
        )
        effects = EffectLowering(self.state, steps, rules, {machine.name: machine for machine in machines}, self.types)
        steps.lower_effect = effects.lower
        scope = NameScope(names=dict(names), inputs=names)
        flow = steps.block(self.node.flow, scope)
        self.state.flow = flow
        self.state.end_names = dict(scope.names)
        node_rules = rules.read_node(NameScope(names=dict(names), inputs=names))
        preconditions, postconditions, invariants = self._contracts(names, success, error)
        program = ir.NodeProgram(
            node_id=self.node.node_id,
            kind=self.node.kind,
            intent=self.node.intent,
            digest="",
            inputs=inputs,
            success=success,
            error=error,
            steps=flow,
            preconditions=preconditions,
            postconditions=(*postconditions, *self._output_contracts(success)),
            invariants=invariants,
            olds=tuple(self.state.olds),
            machines=machines,
            rules=node_rules,
            capabilities=self.node.security.capabilities_required,
            denied=self.node.security.denied_capabilities,
            ambient=tuple(sorted(self.state.ambient - {"error"} | self._error_ambient(flow))),
            limits=self._limits(),
            pure=not any(isinstance(part, (ir.EffectStep, ir.TransitionStep)) for part in parts_of((flow, node_rules))),
            idempotency_key="idempotency_key" if "idempotency_key" in names else "",
            idempotent=self.node.idempotent,
            audit=self.node.security.audit_level,
        )
        if depth_of(program) > IR_DEPTH_MAX:
            self.state.error("limit", "an expression has too many parts", ("flow",))
            return program
        return msgspec.structs.replace(program, digest=digest_of(program))

    def _error_ambient(self, flow: Any) -> set[str]:
        """Return `error` where steps read it as an ambient object: postconditions have a value of that name
        themselves."""
        return {part.name for part in parts_of(flow) if isinstance(part, ir.NodeVariable) and part.name == "error"} & (
            self.state.ambient
        )

    def _input(self, field: FieldDeclaration) -> ir.NodeInput:
        kind = self.types.resolve_field(field)
        default: Any = field.default
        if field.default is not msgspec.UNSET:
            default = self.state.literal(field.default, kind, (*field.path, "default"))
        return ir.NodeInput(
            name=field.name,
            type=kind,
            required=field.required and field.default is msgspec.UNSET,
            default=default,
            constraints=self.constraints.build_conditions(field, kind),
            sensitive=self._is_sensitive(field),
            description=field.description,
        )

    def _output(self, field: FieldDeclaration) -> ir.NodeOutput:
        kind = self.types.resolve_field(field)
        is_sensitive = self._is_sensitive(field)
        is_public = field.sensitive is False and not is_sensitive
        return ir.NodeOutput(
            name=field.name, type=kind, required=field.required, sensitive=is_sensitive, public=is_public
        )

    def _is_sensitive(self, field: FieldDeclaration) -> bool:
        listed = self.node.security.sensitive_data
        is_listed = listed is True or (isinstance(listed, tuple) and field.name in listed)
        return is_listed or holds_sensitive(field, self.node.types)

    def _contracts(
        self, names: dict[str, ValueType], success: tuple[ir.NodeOutput, ...], error: tuple[ir.NodeOutput, ...]
    ) -> tuple[tuple[ir.Contract, ...], tuple[ir.Contract, ...], tuple[ir.Contract, ...]]:
        entry = NameScope(names=dict(names), inputs=names, is_contract=True, allows_hosts=True)
        after = dict(names)
        for output in success:
            after[output.name] = output.type
        for output in error:
            known = next((item.type for item in success if item.name == output.name), None)
            after[output.name] = nullable(output.type if known is None else common(known, output.type))
        after |= {"success": BOOLEAN, "error": _ERROR_RECORD}
        outputs = {output.name: after[output.name] for output in (*success, *error)}
        end = NameScope(
            names=after, inputs=names, outputs=outputs, is_contract=True, allows_hosts=True, entry=dict(names)
        )
        contracts = self.node.contracts
        return (
            self._all_of(contracts.preconditions, entry),
            self._all_of(contracts.postconditions, end),
            self._all_of(contracts.invariants, self._invariant_scope(entry, success)),
        )

    def _invariant_scope(self, entry: NameScope, success: tuple[ir.NodeOutput, ...]) -> NameScope:
        """Return what invariants may name: inputs, variables and success fields. A variable may change its type
        during the flow, and an invariant about a variable without a value is not judged."""
        fields = {output.name: output.type for output in success}
        variables = dict.fromkeys(self.state.end_names, ANY)
        return entry.copy_with(names={**fields, **variables, **entry.names})

    def _all_of(self, texts: tuple[ContractText, ...], scope: NameScope) -> tuple[ir.Contract, ...]:
        return tuple(self.contracts.contract(text, scope) for text in texts)

    def _output_contracts(self, success: tuple[ir.NodeOutput, ...]) -> list[ir.Contract]:
        """Return the constraints of outputs as postconditions."""
        contracts: list[ir.Contract] = []
        for field, output in zip(self.node.success, success, strict=True):
            subject = ir.NodeVariable(type=output.type, name=field.name, place=self.state.document.place(field.path))
            checks = self.constraints.build_conditions(field, output.type, subject)
            contracts += [ir.Contract(f"{field.name}: {check.text}", check.expression) for check in checks]
        return contracts

    def _limits(self) -> ir.NodeLimits:
        performance = self.node.performance
        time_s = float(performance.timeout_seconds or TIME_S_DEFAULT)
        memory_mb = performance.memory_limit_mb or MEMORY_MB_DEFAULT
        return ir.NodeLimits(time_s=min(time_s, TIME_S_MAX), memory_mb=min(memory_mb, MEMORY_MB_MAX))


def holds_sensitive(field: FieldDeclaration, types: tuple[TypeDeclaration, ...]) -> bool:
    """Return whether a field, or a field of a custom type in it, is declared sensitive: then the whole value is."""
    declared = {kind.name: kind for kind in types}
    rest = [field]
    while rest:
        item = rest.pop()
        if item.sensitive:
            return True
        for name in re.findall(r"\w+", item.type):
            kind = declared.pop(name, None)  # each type is looked into once
            if kind is not None:
                rest += [*kind.fields, *(() if kind.base is None else (kind.base,))]
    return False


def digest_of(program: ir.NodeProgram) -> str:
    """Return a hash over everything that decides what a program does."""
    plain = _to_digestible(program)
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def _to_digestible(value: Any) -> Any:
    """Plain data that differs where values differ: a decimal is not the text of it."""
    if isinstance(value, msgspec.Struct):
        fields = {
            name: _to_digestible(getattr(value, name)) for name in value.__struct_fields__ if name not in _NOT_DIGESTED
        }
        return {"is": type(value).__name__, **fields}
    if isinstance(value, (list, tuple)):
        return [_to_digestible(item) for item in value]
    if isinstance(value, frozenset):
        return {"set": sorted((_to_digestible(item) for item in value), key=repr)}
    if isinstance(value, dict):
        return {"map": [[key, _to_digestible(item)] for key, item in value.items()]}
    if value is None or isinstance(value, (bool, int, str, float)):
        return value
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    return {type(value).__name__: text}


# State machines: their states, and the moves that they allow.
def machine_of(
    state: CheckState, contracts: ContractReader, declared: MachineDeclaration, names: dict[str, ValueType]
) -> ir.Machine:
    """Return the machine of a declaration; a state that is not listed is an error."""
    if not declared.states:
        state.error("missing_key", f"state machine `{declared.name}` has no states", declared.path)
    elif declared.initial not in declared.states:
        _unknown_state(state, declared, declared.initial, (*declared.path, "initial"))
    scope = NameScope(names=dict(names), inputs=names, allows_hosts=True)
    moves: list[tuple[str, str, ir.Condition | None]] = []
    for move in declared.moves:
        for key, name in (("from", move.source), ("to", move.target)):
            if declared.states and name not in declared.states:
                _unknown_state(state, declared, name, (*move.path, key))
        guard = contracts.guard(move.guard.value, move.guard.path, scope) if move.guard else None
        moves.append((move.source, move.target, guard))
    return ir.Machine(name=declared.name, initial=declared.initial, states=declared.states, moves=tuple(moves))


def _unknown_state(state: CheckState, declared: MachineDeclaration, name: str, path: tuple[str | int, ...]) -> None:
    hint = close_to(name, declared.states)
    state.error("unknown_state", f"`{declared.name}` has no state `{name}`", path, hint=hint, value=True)
