"""Admission: may this call be made? Decided before the effect, written down, and never by the model.

    what the call is about → rules, mode, marks decide → allow | ask a person | deny

What it is about comes from the arguments alone: the whole command, the path with its links resolved, the URL. The
decision is a row of the process, so a replay does as was decided then and asks nobody twice. A question shows the exact
thing, every character visible, and why it is asked. The arguments that were decided on are the ones that run. A denial
is told to the model, and the turn goes on. Every decision is an Event, `tool.decided`; what the Grant or the tool
itself refuses is `tool.refused`.

An agent without permissions is asked about only for tools that are `guarded`, and for files that may hold secrets; for
tools that are neither guarded nor Lyra's own nothing here is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.agents.session.events import Interrupted
from lyra.agents.turn.approval import above, answered, as_json, seen, why
from lyra.core import codec
from lyra.core.rights.capability import Capability
from lyra.core.tool import Tool, ToolCall, error_code
from lyra.errors import ApprovalRefused, CapabilityDenied, DeadlineExceeded, Denied, LyraError
from lyra.kernel.process.call_keys import next_key, upcoming
from lyra.kernel.programs.context import once, read
from lyra.tools.permissions.decision import Decision, Permissions
from lyra.tools.permissions.subjects import Subject, facts_of, subject_of

if TYPE_CHECKING:
    from lyra.agents.session.replies import Sink
    from lyra.agents.session.session import Session
    from lyra.agents.session.shared import Runtime
    from lyra.core.rights.capability import Grant
    from lyra.kernel.process.process import Process
    from lyra.kernel.programs.context import Context

__all__ = ["Admitted", "Case", "admit", "decided_before", "publish", "refused"]

_ROW: Final = "admit"
_KEPT: Final = "kept"
_GRANT: Final = "grant"
_SHOWN_CHARS_MAX: Final = 50_000  # of what a question is about; more than that nobody reads before they answer
_EVENT_CHARS_MAX: Final = 10_000
_GIVEN_CHARS_MAX: Final = 300
_HINT: Final = "do not look for a way around it: go on without it, or tell the user what you would need"


class Admitted(NamedTuple):
    """A call that may be made: its arguments, which nobody else holds, the real path it is about, what it may do."""

    call: ToolCall
    path: str | None
    hides: Callable[[str], bool] | None
    rights: Grant


async def admit(
    ctx: Context, runtime: Runtime, session: Session, tool: Tool, call: ToolCall, sink: Sink | None
) -> Admitted:
    """The call as it may be made; ApprovalRefused where it may not."""
    process = ctx.own_process
    if process.replay is not None and not decided_before(process) and upcoming(process) is not None:
        return Admitted(call, None, None, process.grant)  # made in a life that did not ask
    replaying = process.replay is not None and upcoming(process) is not None
    # A copy: whoever was shown the arguments cannot change what runs.
    call = ToolCall(call.id, call.name, codec.decode(codec.encode(call.arguments)))
    case = Case(runtime, session, tool, call, process.grant)
    row = read(process, _ROW, case.decide)
    case.read(row)
    if not replaying:
        publish(runtime, process, call, row)
    if row["decision"] == "ask":
        row = await _ask(ctx, case, row, sink)
    if row["decision"] == "deny":
        raise _denial(tool, call, row)
    path = case.subject.value if case.subject.kind == "path" else None
    return Admitted(call, path, case.hides if case.subject.kind == "path" else None, case.held())


def _denial(tool: Tool, call: ToolCall, row: dict[str, Any]) -> Denied:
    """What the model is told. Where a link leads are words of whoever made the link, and stay with us."""
    reason = row["reason"]
    if row.get("linked") and row["source"] != "answer":
        given = str(call.arguments.get(facts_of(tool.name).argument, ""))[:_GIVEN_CHARS_MAX]
        reason = f"{given} is a link, and what it leads to is not allowed here"
    if row["source"] == _GRANT:
        return CapabilityDenied(reason, hint=_HINT, rule=row["rule"])
    return ApprovalRefused(f"{tool.name} was not run: {reason}", hint=_HINT, rule=row["rule"], source=row["source"])


def decided_before(process: Process) -> bool:
    """On a replay: a decision on the call that comes next is in the journal."""
    entry = upcoming(process)
    return entry is not None and entry.kind == "read" and entry.name == _ROW


class Case:
    """One call and what speaks for and against it."""

    __slots__ = ("_linked", "_subject", "call", "grant", "runtime", "session", "tool")

    def __init__(self, runtime: Runtime, session: Session, tool: Tool, call: ToolCall, grant: Grant) -> None:
        self.runtime = runtime
        self.session = session
        self.tool = tool
        self.call = call
        self.grant = grant
        self._subject: Subject | None = None
        self._linked = False  # the path leads somewhere else than it says

    @property
    def permissions(self) -> Permissions:
        return self.session.permissions or self.session.agent.guard

    @property
    def subject(self) -> Subject:
        assert self._subject is not None
        return self._subject

    def decide(self) -> dict[str, Any]:
        """The decision as its row: plain data, known keys blotted out."""
        tainted = self.session.judged
        try:
            found = self._found(tainted)
        except Exception as error:  # noqa: BLE001 - what a tool says of its needs may be anything; a row has to be
            said = error.message if isinstance(error, LyraError) else f"{type(error).__name__}: {error}"
            found = Decision("deny", None, f"it cannot be judged: {said}", "error")
        shown = self.runtime.clean(_shown(self.call, self._subject))
        if found.decision == "ask" and len(shown) > _SHOWN_CHARS_MAX:
            reason = f"{found.reason}, and it is too long to be shown to a person"
            found = found._replace(decision="deny", reason=reason)
        return {
            "decision": found.decision,
            "rule": found.rule,
            "reason": self.runtime.clean(found.reason),
            "source": found.source,
            "subject": shown[: _SHOWN_CHARS_MAX + 1],
            "tainted": tainted,
            **({"linked": True} if self._linked else {}),
        }

    def _found(self, tainted: bool) -> Decision:
        permissions = self.permissions
        given = _given_path(self.tool, self.call.arguments, permissions)
        real = os.path.realpath(given) if given is not None else None
        self._linked = real is not None and real != os.path.normpath(given or "")
        subject = self._subject = self._about(real)
        found = permissions.decide(subject, tainted=tainted)
        for outer in self.session.outer:  # what the caller may not do its helper may not, what it asks about is asked
            found = _stricter(found, outer, subject)
        if found.decision == "ask" or (self._linked and found.decision == "allow"):
            # It would be refused whatever a person says: nobody is bothered. Of a link it is said here, in our words.
            found = self._granted() or found
        return found

    def read(self, row: dict[str, Any]) -> None:
        """After a replay: the same subject as then, whatever the path leads to by now."""
        if self._subject is None and row["decision"] != "deny":
            self._subject = self._about(row["subject"])

    def _about(self, path: str | None) -> Subject:
        tool, permissions = self.tool, self.permissions
        facts = facts_of(tool.name)
        subject = subject_of(
            tool.name,
            self.call.arguments,
            workspace=permissions.workspace,
            home=permissions.home,
            path=path if facts.kind == "path" else None,
            also=permissions.also,
            known=tool.builtin,
        )
        if subject.act == "read" and not subject.inside and self._is_own():
            return subject._replace(inside=True)
        return subject._replace(act="talk") if tool.harmless and subject.act == "other" else subject

    def _is_own(self) -> bool:
        """Output of this process's own commands, put aside because it was long: to read it needs no right."""
        needs_of = self.tool.needs_of
        return needs_of is not None and bool(self.tool.folders) and not list(needs_of(self.call.arguments))

    def _granted(self) -> Decision | None:
        tool, path = self.tool, self.subject.value
        if self.subject.kind == "path" and path is not None and not _within(path, tool.folders):
            return Decision("deny", None, f"{path} is outside the workspace", _GRANT)
        try:
            for need in (*tool.needs, *(tool.needs_of(self.call.arguments) if tool.needs_of is not None else ())):
                self.grant.check(need)
        except CapabilityDenied as error:
            return Decision("deny", error.fields.get("rule"), error.message, _GRANT)
        return None

    def hides(self, path: str) -> bool:
        """What a search passes over: what nobody may read without being asked, or not at all."""
        hidden = any(each.hidden(path) for each in (self.permissions, *self.session.outer))
        return hidden or not self.grant.allows(Capability("fs.read", path))

    def held(self) -> Grant:
        """What the call may do: as its process, and nothing that the rules deny by path."""
        grant = self.grant
        for each in (self.permissions, *self.session.outer):
            grant = each.held(grant)
        return grant


def _stricter(found: Decision, outer: Permissions, subject: Subject) -> Decision:
    """The decision, as far as the caller's permissions leave it."""
    if found.decision == "deny":
        return found
    forbidden = outer.forbids(subject)
    if forbidden is not None:
        return forbidden
    if found.decision == "allow":
        found = outer.asks(subject) or found
    if found.decision == "ask" and not (outer.attended and outer.mode != "deny-unasked"):
        return found._replace(decision="deny", reason=f"{found.reason}; nobody is there to be asked")
    return found


def _given_path(tool: Tool, arguments: dict[str, Any], permissions: Permissions) -> str | None:
    """The path that a file tool is given, from the root on; its links are still in it."""
    facts = facts_of(tool.name)
    if facts.kind != "path" or not tool.builtin:
        return None
    root = tool.folders[0] if tool.folders else permissions.workspace
    value = arguments.get(facts.argument)
    if value is None and facts.argument == "path":
        return root
    if not isinstance(value, str) or not value or "\0" in value:
        return None
    return os.path.join(root, os.path.expanduser(value) if value.startswith("~") else value)


def _within(path: str, folders: tuple[str, ...]) -> bool:
    """Whether a path lies in one of the folders; a tool that names none goes anywhere."""
    return not folders or any(path == root or path.startswith(root.rstrip("/") + "/") for root in folders)


def _shown(call: ToolCall, subject: Subject | None) -> str:
    """What the question is about: one thing, or for a tool nobody knows everything that it is given."""
    if subject is not None and subject.kind in ("command", "path", "url") and subject.value is not None:
        return subject.value
    return as_json(call.arguments)


# ---------------------------------------------------------------------- asking


async def _ask(ctx: Context, case: Case, row: dict[str, Any], sink: Sink | None) -> dict[str, Any]:
    """The decision after a person was asked."""
    process = ctx.own_process
    interrupts = process.kernel.interrupts

    def tell(interrupt_id: str) -> None:
        listener = sink or above(case.runtime, process)
        if listener is not None:
            found = interrupts.get_interrupt(interrupt_id)
            listener.put(Interrupted(found.id, found.kind, found.question, found.message))

    replayed = False
    try:
        key = next_key(process)
        replayed = process.replay is not None and getattr(process.replay.get(key), "done", False)
        answer = await interrupts.ask(
            process,
            kind="confirmation",
            key=key,
            question=f"Allow {case.tool.name}?\n{seen(row['subject'])}",
            message=why(case, row),
            asked=tell,
        )
    except DeadlineExceeded as error:
        if process.out_of_time:
            raise
        row = {**row, "decision": "deny", "reason": f"{row['reason']}; {error.message}"}
    else:
        row = answered(case, row, answer, keep=lambda text, act: once(process, _KEPT, text, act))
    if not replayed:
        publish(case.runtime, process, case.call, row)
    return row


# ---------------------------------------------------------------------- telling


def publish(runtime: Runtime, process: Process, call: ToolCall, row: dict[str, Any]) -> None:
    kernel = runtime.kernel
    if kernel.listeners.hears("tool.decided"):
        data = {"tool": call.name, **row, "subject": row["subject"][:_EVENT_CHARS_MAX]}
        data.pop("linked", None)
        kernel.publish(process.known_as, "tool.decided", data)
        kernel.raise_if_failed()  # it could not be written down, where that was asked for


def refused(runtime: Runtime, process: Process, call: ToolCall, error: Exception) -> None:
    """Tell whoever listens that the Grant, the workspace or the guard of addresses refused a call."""
    kernel = runtime.kernel
    if isinstance(error, ApprovalRefused) or not kernel.listeners.hears("tool.refused"):
        return
    if isinstance(error, Denied) or error_code(error) == "permission_denied":
        code = error.code if isinstance(error, LyraError) else "permission_denied"
        about = call.arguments.get(facts_of(call.name).argument)
        subject = about if isinstance(about, str) else as_json(call.arguments)
        data = {
            "tool": call.name,
            "subject": runtime.clean(subject)[:_EVENT_CHARS_MAX],
            "code": code,
            "reason": runtime.clean(str(error)),
        }
        kernel.publish(process.known_as, "tool.refused", data)
