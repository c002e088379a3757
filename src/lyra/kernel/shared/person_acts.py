"""Acts of people: who changed what from outside the kernel, or was refused it, journaled for the audit.

A face of the kernel (the HTTP server) tells each act once it has ended. The journal keeps it as `person.acted`, so that
`lyra audit view` shows it also where no audit log was written; the state counts them. Decides nothing: whether a person
may act is the face's to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from lyra.kernel.base.subsystem import Subsystem

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.process.process import Process


class PersonActsState:
    """What survives: how many acts there were."""

    NAME: ClassVar[str] = "person_acts"
    KINDS: ClassVar[frozenset[str]] = frozenset({"person.acted"})

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        self.count += 1

    def dump(self) -> Any:
        return self.count

    def load(self, data: Any) -> None:
        self.count = int(data)


class PersonActs(Subsystem):
    """`kernel.person_acts`."""

    __slots__ = ("_core", "state")

    def __init__(self, core: Core[Process]) -> None:
        self._core = core
        self.state = PersonActsState()

    def record(self, pid: str, act: dict[str, Any]) -> None:
        """Journal and publish one act; `pid` is the process that it was about, or "". A kernel that closes writes no
        more rows: then it is only published."""
        core = self._core
        if core.stopping or (core.journal is not None and core.journal.frozen):
            core.publish(pid, "person.acted", act)
        else:
            core.fact(self.state, pid, "person.acted", act)
