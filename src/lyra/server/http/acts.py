"""Acts: what people change over HTTP, each a row and an Event `person.acted` that the audit log writes down.

`record_act` is called in one place for every request that may change something: when its handler has ended, or has been
refused. The Event names the person, the act (the name of the endpoint), its target (the values in its path) and its
outcome: `ok`, or the code of the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import Unauthenticated
from lyra.server.identity import Caller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lyra.kernel.kernel import Kernel
    from lyra.server.http.logins import LoginTable

__all__ = ["begin_login", "record_act"]

_STRANGER: Final = Caller(person="a stranger", role="none")


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


def begin_login(kernel: Kernel, logins: LoginTable, token: str, address: str, replaced: str) -> str:
    """Log the holder of a token in, and tell it; gives what the cookie holds. The login that the browser had before,
    `replaced`, ends. A token that is not known is told with the address that it came from."""
    try:
        caller, login_id = logins.begin(token.strip(), address)
    except Unauthenticated as error:
        record_act(kernel, _STRANGER, "login", {"address": address}, error.code)
        raise
    logins.end(replaced)
    record_act(kernel, caller, "login", {}, "ok")
    return login_id
