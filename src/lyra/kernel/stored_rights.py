"""The rights that a store would give: what each process that is not over may do when a kernel opens it.

`rights_in` takes the fold of a store's rows and gives plain data, for a person who decides whether to sign the store
(`lyra store adopt`). Rights of supervised children stand in the arguments of their supervisor. All of them are narrowed
by the Grant of the kernel that opens the store. `contacts_in` finds the processes through which others reach that
kernel or hear from it. Nothing here changes or runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core import codec
from lyra.core.naming import A2A_PUSH, GATEWAY_KEY, INCOMING_HOOK, SUPERVISE, WEBHOOK
from lyra.errors import LyraError, Tampered
from lyra.kernel.journal import rows
from lyra.kernel.journal.history import Fold, ProcessState
from lyra.kernel.recovery import grant_of

if TYPE_CHECKING:
    from lyra.store.protocol import Store


# Programs that let callers in or post to an address outside, in words. All of them are younger than signatures, so that
# no store of an earlier version has one.
CONTACTS: Final = {
    GATEWAY_KEY: "a key of the gateway: its holder can call models through it",
    INCOMING_HOOK: "a hook: a sender that knows its secret can write to the agents and processes of this store",
    WEBHOOK: "a webhook: it posts events of this store to an address that its maker chose",
    A2A_PUSH: "a push notification: it posts the state of a task to an address that its maker chose",
}


class ChildRights(msgspec.Struct):
    """A child that a supervisor starts again."""

    id: str
    program: str
    grant: Any


class ProcessRights(msgspec.Struct):
    """A process that continues; without a `grant` it has the rights of its parent, or those of the kernel."""

    pid: str
    name: str
    program: str
    parent: str
    grant: Any
    children: list[ChildRights] = []
    messages: int = 0  # that wait for it
    questions: list[str] = []  # to a human, that wait
    text_from: str = ""  # where it has text from outside from


class StoredRights(msgspec.Struct):
    """What continues when a kernel opens the store."""

    processes: list[ProcessRights]
    ended: int
    services: list[str]
    pipelines: dict[str, str]  # by pid
    entries: dict[str, str]  # that workers outside drive: their states, by pid


def rights_in(fold: Fold, get_blob: Callable[[str], bytes]) -> StoredRights:
    names = ("labels", "services", "pipelines", "lifecycle")
    labels, services, pipelines, entries = (fold.states.get(f"~{name}") for name in names)
    marks: Mapping[str, str] = getattr(labels, "pids", {})
    alive = [(pid, state) for pid, state in fold.processes.items() if state.exit is None]
    return StoredRights(
        [_rights_of(pid, state, str(marks.get(pid, "")), get_blob) for pid, state in alive],
        len(fold.processes) - len(alive),
        sorted(getattr(services, "services", {})),
        {
            pid: session.pipeline_config.name
            for pid, session in getattr(pipelines, "sessions", {}).items()
            if not session.terminated
        },
        {pid: str(entry.state) for pid, entry in getattr(entries, "entries", {}).items()},
    )


def contacts_in(rights: StoredRights) -> list[str]:
    """Return the pids of processes that run one of CONTACTS or start one, and of all processes below them."""
    contacts = {
        process.pid
        for process in rights.processes
        if process.program in CONTACTS or any(child.program in CONTACTS for child in process.children)
    }
    while below := {process.pid for process in rights.processes if process.parent in contacts} - contacts:
        contacts |= below
    return sorted(contacts)


def refuse_contacts(fold: Fold, store: Store) -> None:
    """Raise Tampered where a store without signatures has one of CONTACTS: no earlier version wrote it."""
    pids = contacts_in(rights_in(fold, store.get_blob))
    if pids:
        raise Tampered(
            f"{store.location} is not signed, and has keys of the gateway, hooks or webhooks: {', '.join(pids[:5])}",
            hint=f"look at what would go on from it, and take it over: lyra store adopt {store.location}",
            location=store.location,
            standing="unsigned",
        )


def _rights_of(pid: str, state: ProcessState, text_from: str, get_blob: Callable[[str], bytes]) -> ProcessRights:
    created = state.created
    return ProcessRights(
        pid,
        created.name,
        created.program,
        created.parent,
        _grant_data(created),
        list(_children(created, get_blob)),
        len(state.inbox),
        [pending.question for pending in state.interrupts.values()],
        text_from,
    )


def _grant_data(created: rows.Created) -> Any:
    """Return the Grant that recovery gives the process, before the kernel's own narrows it."""
    try:
        return None if created.grant is None else grant_of(created).to_data()
    except LyraError:  # opening the store says what is wrong
        return created.grant


def _children(created: rows.Created, get_blob: Callable[[str], bytes]) -> Iterator[ChildRights]:
    """Yield the children that a supervisor's plan names, those of supervisors below it too."""
    if created.program != SUPERVISE:
        return
    try:
        plans = codec.decode(get_blob(created.blob) if created.blob else bytes(created.args))
    except (LyraError, ValueError):  # opening the store says what is wrong
        return
    waiting = _parts(plans)
    while waiting:
        plan = waiting.pop(0)
        if not isinstance(plan, Mapping):
            continue  # the arguments of a child that is no supervisor may be anything
        for child in (*_parts(plan.get("children")), plan.get("template")):
            if isinstance(child, Mapping):
                yield ChildRights(str(child.get("id", "")), str(child.get("program", "")), child.get("grant"))
                waiting += [
                    part
                    for part in _parts(child.get("args"))
                    if isinstance(part, Mapping) and ("children" in part or "template" in part)
                ]


def _parts(value: Any) -> list[Any]:
    """Return the items of a stored list; none where something else is stored, which opening the store refuses."""
    return list(value) if isinstance(value, (list, tuple)) else []


def grant_words(grant: Any, parent: str = "") -> str:
    """Return a stored Grant in words."""
    if grant is None:
        return f"what process {parent} may" if parent else "all that the kernel which opens the store may"
    if not isinstance(grant, Mapping):
        return f"something that cannot be read: {grant!r}"
    layers = grant.get("layers") if "layers" in grant else [grant.get("allow")]
    lists = [", ".join(map(str, layer)) or "nothing" for layer in layers or () if isinstance(layer, (list, tuple))]
    words = "; of that only ".join(lists) or "nothing"
    denied = grant.get("deny")
    return f"{words}; never {', '.join(map(str, denied))}" if denied else words
