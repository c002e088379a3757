"""What a supervisor knows: its children in a table, and what happens to them as plain data that can be kept with it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.kernel.process.links import ExitSignal, Ready, register_signal
from lyra.kernel.supervision.child import Spec

START: Final = "start_child"
START_MARKED: Final = "start_marked_child"  # the same, asked by a process that has read text from outside


class Order(msgspec.Struct, frozen=True):
    """What a supervisor is asked to do, as it travels through its mailbox."""

    verb: str
    token: str = ""  # of the caller that waits for the answer; empty if none does
    id: str = ""
    spec: Spec | None = None
    args: list[Any] = []


register_signal("supervisor", Order)


class ChildRow(msgspec.Struct, eq=False):
    """One child in the table."""

    spec: Spec
    pid: str | None = None
    state: str = "stopped"  # running | stopped | restarting
    starts: int = 0
    failures: int = 0  # crashes in a row, for the back-off
    crashed_at: float = 0.0
    due: float | None = None  # when a back-off is over
    tainted: bool = False  # its id and arguments are a marked process's: each process that it is started as is marked


class ChildTable(msgspec.Struct):
    """All that a supervisor knows."""

    rows: list[ChildRow]
    parent: str | None = None
    made: int = 0  # children of a dynamic supervisor so far, for their ids
    times: list[float] = []  # restarts that still count
    pending: list[Any] = []  # events set aside while it waited for one of its own
    held: list[Any] = []  # a guard's messages for a child that is not running


def event_of(message: Any) -> dict[str, Any]:
    """A message as plain data, so that it can be kept with the table."""
    if isinstance(message, ExitSignal):
        return {"is": "exit", "pid": message.pid, "reason": message.reason}
    if isinstance(message, Ready):
        return {"is": "ready", "pid": message.pid}
    if isinstance(message, Order):
        if message.verb == "again":
            return {"is": "again", "id": message.id}
        return {
            "is": "command",
            "do": message.verb,
            "token": message.token,
            "id": message.id,
            "spec": message.spec,
            "args": message.args,
        }
    return {"is": "message", "message": message}


_TEXTS: Final[dict[str, tuple[str, ...]]] = {  # what each kind of event has to say
    "exit": ("pid", "reason"),
    "ready": ("pid",),
    "again": ("id",),
    "command": ("do", "token", "id"),
    "message": (),
}


def event_fault(event: Any) -> str | None:
    """What is wrong with an event that was kept, if something is: another kernel's rows may be anything."""
    kind = event.get("is") if isinstance(event, dict) else None
    texts = _TEXTS.get(kind) if isinstance(kind, str) else None
    if texts is None:
        return "is of no known kind"
    missing = [name for name in texts if not isinstance(event.get(name), str)]
    if kind == "command" and ("spec" not in event or not isinstance(event.get("args"), list)):
        missing.append("spec or args")
    if kind == "message" and "message" not in event:
        missing.append("message")
    return f"does not say its {missing[0]}" if missing else None
