"""Rules about a node as a whole, after its parts are typed."""

from __future__ import annotations

from lyra.vesper.check.capabilities import covering
from lyra.vesper.check.state import CheckState
from lyra.vesper.check.steps import always_returns
from lyra.vesper.ir.program import Program

__all__ = ["judge_program"]


def judge_program(program: Program, state: CheckState) -> None:
    """Add the remarks on a program."""
    _outputs(program, state)
    _capabilities(state)


def _outputs(program: Program, state: CheckState) -> None:
    if always_returns(program.steps) or not state.node.flow:
        return
    for field in state.node.success:
        if field.required and field.name not in state.end_names:
            state.error("missing_output", f"the required output `{field.name}` is never written", field.path)


def _capabilities(state: CheckState) -> None:
    declared = state.node.security.capabilities_required
    for capability, path in state.needed.items():
        if covering(capability, declared) is None:
            hint = f"add {capability} to security.capabilities_required"
            state.error("undeclared_capability", f"the step needs `{capability}`", path, hint=hint)
