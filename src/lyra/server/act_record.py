"""Acts: what people change through a server, each a row and an Event `person.acted` that the audit log writes down.

Over HTTP `record_act` is called for every request that may change something, when its handler has ended or has been
refused; over gRPC for the calls of `grpc.guard.ACTS`. The Event names the person, the act (the endpoint or the RPC),
its target (the values in its path) and its outcome: `ok`, or the code of the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import Denied, LyraError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


def outcome_of(error: LyraError) -> str:
    """Return the outcome of an act that raised this: the code of the error, and `denied` where the error hides from the
    caller that there is such a thing of another user's."""
    cause = error.__cause__
    return cause.code if isinstance(cause, Denied) else error.code


def record_act(kernel: Kernel, caller: Caller, act: str, path: Mapping[str, str], outcome: str, more: str = "") -> None:
    """Tell that a person did something, or was refused it; `more` is what it was done to besides the path's values."""
    pid = path.get("pid", "")
    data: dict[str, Any] = {
        "person": caller.name,
        "role": caller.role,
        "act": act,
        "target": " ".join(value[:NAME_LENGTH_MAX] for value in (*path.values(), more) if value),
        "outcome": outcome,
    }
    if caller.user_id:
        data["user_id"] = caller.user_id
    kernel.person_acts.record(pid if pid in kernel.processes else "", data)
