"""To whom things belong, and the check of it: processes, envelopes, questions, services.

What has no user (programs that the server itself started, services of its own) belongs to the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.core.envelope import ANONYMOUS, Envelope
from lyra.errors import ConfigError, Denied
from lyra.kernel.interrupts.interrupt import Interrupt
from lyra.kernel.services.service import ServiceInfo
from lyra.kernel.workers.blocks import unknown_process
from lyra.kernel.workers.envelope_table import unknown_envelope
from lyra.server.owners import OwnedPid, owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


SERVICE_OWNER: Final = "owner"  # the key of a service's metadata that names the user who registered it


def exists(kernel: Kernel, pid: str) -> bool:
    """Whether a pid is a process or the session of a pipeline."""
    return kernel.lifecycle.find(pid) is not None or pid in kernel.orchestrator.state.sessions


def owner_of(kernel: Kernel, pid: str) -> str:
    """The user of a process; "" for one without. NoSuchProcess if it does not exist."""
    user_id = kernel.lifecycle.user_of(pid) or owner_if_known(kernel, pid)
    return "" if user_id == ANONYMOUS else user_id


def chosen_pid(kernel: Kernel, caller: Caller, pid: str, user_id: str = "") -> str:
    """A pid that a client chose: one that the caller owns, or a new one, for `user_id`, that names no other user."""
    if exists(kernel, pid):
        is_free = caller.owns(owner_of(kernel, pid))
    else:
        owned = OwnedPid.read(pid)
        is_free = owned is None or owned.belongs_to(user_id or caller.user_id)
    if not is_free:
        raise Denied(f"the pid {pid} cannot be chosen", hint="choose another")
    return pid


def require_process(kernel: Kernel, caller: Caller, pid: str) -> str:
    """The pid of a process that the caller may see and change; NoSuchProcess also where it is another user's."""
    caller.require_owner(owner_of(kernel, pid), unknown_process, pid)
    return pid


def require_envelope(kernel: Kernel, caller: Caller, envelope_id: str) -> Envelope:
    """An envelope that the kernel keeps for the caller; NoSuchEnvelope also where it is another user's."""
    envelope = kernel.envelopes.get(envelope_id)
    caller.require_owner(envelope.user_id, unknown_envelope, envelope_id)
    return envelope


def interrupt_owner(kernel: Kernel, interrupt: Interrupt) -> str:
    """The user of a question: its own, else that of its process."""
    if interrupt.user_id or not exists(kernel, interrupt.pid):
        return interrupt.user_id
    return owner_of(kernel, interrupt.pid)


def service_owner(info: ServiceInfo) -> str:
    owner = info.metadata.get(SERVICE_OWNER)
    return owner if isinstance(owner, str) else ""


def owned_envelope(caller: Caller, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an envelope with the ids of the caller; a user that the caller may not act for is Denied."""
    owned = dict(fields)
    for name in ("user_id", "session_id"):
        if not isinstance(owned.get(name, ""), str):
            raise ConfigError(f"an envelope's {name} is text", key=name)
    caller = caller.acting_for(owned.get("user_id", ""))
    for name in ("user_id", "session_id"):
        if not owned.get(name) and getattr(caller, name):
            owned[name] = getattr(caller, name)
    return owned
