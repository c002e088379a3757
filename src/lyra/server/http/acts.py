"""Acts: what people change over HTTP, each a row and an Event `person.acted` that the audit log writes down.

`record_act` is called in one place for every request that may change something: when its handler has ended, or has been
refused. The Event names the person, the act (the name of the endpoint), its target (the values in its path) and its
outcome: `ok`, or the code of the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.core.limits import NAME_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller

__all__ = ["record_act", "record_login"]


def record_act(kernel: Kernel, caller: Caller, act: str, path: Mapping[str, str], outcome: str) -> None:
    """Tell that a person did something, or was refused it."""
    pid = path.get("pid", "")
    data: dict[str, Any] = {
        "person": caller.name,
        "role": caller.role,
        "act": act,
        "target": " ".join(value[:NAME_LENGTH_MAX] for value in path.values()),
        "outcome": outcome,
    }
    if caller.user_id:
        data["user_id"] = caller.user_id
    kernel.person_acts.record(pid if pid in kernel.processes else "", data)


def record_login(kernel: Kernel, caller: Caller, act: str) -> None:
    """Tell that a person logged in or out."""
    record_act(kernel, caller, act, {}, "ok")
