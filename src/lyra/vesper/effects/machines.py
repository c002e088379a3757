"""Where the entities of state machines stand, kept in the journal.

A transition is an effect: it is checked against the entity's state and written in one go, on the kernel's loop. A
transition that is repeated after a crash has the key of the first and changes nothing. An entity that was never moved
stands in the machine's initial state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from lyra.vesper.effects.request import EffectError

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core


class MachineState:
    """The durable state: the state of each entity, and the key of the transition that led to it."""

    NAME: ClassVar[str] = "vesper-machines"
    KINDS: ClassVar[frozenset[str]] = frozenset({"vesper.transition"})

    __slots__ = ("entities",)

    def __init__(self) -> None:
        self.entities: dict[str, tuple[str, str]] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        self.entities[data["entity"]] = (data["to"], data["key"])

    def dump(self) -> Any:
        return self.entities

    def load(self, data: Any) -> None:
        self.entities = {str(entity): (str(place[0]), str(place[1])) for entity, place in data.items()}


class Machines:
    """Reads and moves entities."""

    def __init__(self, core: Core[Any], state: MachineState) -> None:
        self._core = core
        self._state = state

    def move(self, payload: dict[str, Any], key: str) -> str:
        """Move an entity, if it stands where the request says; gives its new state."""
        name = f"{payload['machine']}/{payload['entity']}"
        source, target = str(payload["from"]), str(payload["to"])
        here, last = self._state.entities.get(name, (str(payload.get("initial", source)), ""))
        if last == key:
            return here
        if here != source:
            raise EffectError(
                "invalid_transition", f"{name} is {here}, not {source}", {"state": here, "from": source, "to": target}
            )
        row = {"entity": name, "from": source, "to": target, "key": key}
        self._core.fact(self._state, "", "vesper.transition", row)
        return target
