"""State machines: their states, and the moves that they allow."""

from __future__ import annotations

from lyra.vesper.check.contracts import ContractReader
from lyra.vesper.check.scope import NameScope
from lyra.vesper.check.state import CheckState
from lyra.vesper.ir.program import Condition, Machine
from lyra.vesper.nodes.model import MachineDeclaration
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.types import ValueType

__all__ = ["machine_of"]


def machine_of(
    state: CheckState, contracts: ContractReader, declared: MachineDeclaration, names: dict[str, ValueType]
) -> Machine:
    """The machine of a declaration; a state that is not listed is an error."""
    if not declared.states:
        state.error("missing_key", f"state machine `{declared.name}` has no states", declared.path)
    elif declared.initial not in declared.states:
        _unknown_state(state, declared, declared.initial, (*declared.path, "initial"))
    scope = NameScope(names=dict(names), inputs=names, allows_hosts=True)
    moves: list[tuple[str, str, Condition | None]] = []
    for move in declared.moves:
        for key, name in (("from", move.source), ("to", move.target)):
            if declared.states and name not in declared.states:
                _unknown_state(state, declared, name, (*move.path, key))
        guard = contracts.guard(move.guard.value, move.guard.path, scope) if move.guard else None
        moves.append((move.source, move.target, guard))
    return Machine(name=declared.name, initial=declared.initial, states=declared.states, moves=tuple(moves))


def _unknown_state(state: CheckState, declared: MachineDeclaration, name: str, path: tuple[str | int, ...]) -> None:
    hint = close_to(name, declared.states)
    state.error("unknown_state", f"`{declared.name}` has no state `{name}`", path, hint=hint, value=True)
