"""Where a debugger stops: the forms of `--break-on`, read and judged.

    contract_violation            an execution ends because a contract does not hold
    divergence                    the other path gives another outcome, or asks for other effects
    state_transition:a->b         an entity is about to move from state a to state b
    step:NAME                     the step is about to run
    input.amount > 10000          an expression over inputs and variables becomes true

Each form is a `NodeBreakpoint`. An expression is typed by the checker like a contract, and judged by the reference
path; while a name in it has no value yet, it is not true.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lyra.errors import ConfigError
from lyra.vesper.check.contracts import ContractReader
from lyra.vesper.check.infer import Typing
from lyra.vesper.check.lower import lower_node
from lyra.vesper.check.scope import NameScope
from lyra.vesper.ir import NodeProgram, TypedExpression
from lyra.vesper.nodes import Node
from lyra.vesper.nodes.model import ContractText
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.reference.evaluate import StepMeter, is_true
from lyra.vesper.runtime.watching import steps_by_name
from lyra.vesper.values.outcome import Execution, NodeError
from lyra.vesper.values.types import BOOLEAN, without_null

FORMS: Final = "contract_violation, divergence, state_transition:A->B, step:NAME or an expression"
_TRANSITION: Final = re.compile(r"state_transition:\s*(\S+?)\s*->\s*(\S+)")
_WORD: Final = re.compile(r"[a-z_]+(:.*)?")


class NodeBreakpoint(msgspec.Struct, frozen=True):
    """A form, with what is in it."""

    text: str
    kind: str  # contract_violation, divergence, state_transition, step or expression
    step: str = ""
    states: tuple[str, str] = ("", "")
    expression: TypedExpression | None = None

    def is_true(self, program: NodeProgram, execution: Execution, variables: Mapping[str, Any]) -> bool:
        """Whether the expression holds for these values."""
        assert self.expression is not None
        try:
            return is_true(self.expression, dict(variables), StepMeter(execution, program.limits))
        except (NodeError, KeyError):
            return False


def breakpoint_of(text: str, node: Node, program: NodeProgram) -> NodeBreakpoint:
    """The breakpoint that a text asks for; ConfigError where it has none of the forms."""
    form = text.strip()
    if form in ("contract_violation", "divergence"):
        return NodeBreakpoint(text, form)
    transition = _TRANSITION.fullmatch(form)
    if transition is not None:
        return _at_transition(text, (transition[1], transition[2]), program)
    if form.startswith("step:"):
        return _at_step(text, form.removeprefix("step:").strip(), program)
    return _at_expression(text, form, node, program)


def _at_transition(text: str, states: tuple[str, str], program: NodeProgram) -> NodeBreakpoint:
    known = list(dict.fromkeys(state for machine in program.machines for state in machine.states))
    for state in states:
        if state not in known:
            hint = close_to(state, known) or (f"the states are {', '.join(known)}" if known else "it has no states")
            raise ConfigError(f"there is no state {state!r} in {program.node_id}", hint=hint, key="--break-on")
    return NodeBreakpoint(text, "state_transition", states=states)


def _at_step(text: str, name: str, program: NodeProgram) -> NodeBreakpoint:
    steps = steps_by_name(program)
    if name not in steps:
        hint = close_to(name, steps) or f"the steps are {', '.join(steps)}"
        raise ConfigError(f"there is no step {name!r} in {program.node_id}", hint=hint, key="--break-on")
    return NodeBreakpoint(text, "step", step=name)


def _at_expression(text: str, form: str, node: Node, program: NodeProgram) -> NodeBreakpoint:
    inputs = {entry.name: entry.type for entry in program.inputs}
    plain = form if "input" in inputs else re.sub(r"\binput\.", "", form)
    _, state = lower_node(node)
    known = len(state.issues.items)
    scope = NameScope(names={**state.end_names, **inputs}, inputs=inputs, is_contract=True)
    contract = ContractReader(state, Typing(state)).contract(ContractText(plain, ("flow",)), scope)
    problems = state.issues.items[known:]
    is_boolean = contract.expression is not None and without_null(contract.expression.type) == BOOLEAN
    if contract.expression is None or not is_boolean or problems or (_WORD.fullmatch(form) and form not in scope.names):
        reason = problems[0].message if problems and not _WORD.fullmatch(form) else ""
        raise ConfigError(
            f"{text!r} is no place to stop" + (f": {reason}" if reason else ""), hint=f"say {FORMS}", key="--break-on"
        )
    return NodeBreakpoint(text, "expression", expression=contract.expression)
