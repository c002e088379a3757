"""Admission: may this call be made? Decided before the effect, written down, and never by the model.

    what the call is about → rules, mode, marks, hooks decide → allow | ask hooks, then a person | deny

The subject of a call comes from its arguments alone: the whole command, the path with its links resolved, the URL. The
decision is a row of the process, so a replay does as was decided then and asks no question twice. A question shows the
exact subject, every character visible, and why it is asked. The arguments that were decided on are the ones that run.
Hooks can deny and have a person asked; their `allow` answers a question and overrides no denial.
The model is told of a denial, and the turn continues. Every decision is an Event, `tool.decided`; a refusal by the
Grant or by the tool itself is `tool.refused`.

For an agent without permissions only calls of `guarded` tools, and of Lyra's own tools that read files, are decided on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.agents.session.replies import show_question
from lyra.agents.turn.approval import (
    OWN_TEXT,
    UNANSWERED,
    about_call,
    answer_to_row,
    arguments_as_json,
    caller_sink,
    publish,
    reason_text,
    visible_text,
)
from lyra.core import codec
from lyra.core.rights.capability import VERBS, Capability, Grant
from lyra.core.secrets.visible import visible
from lyra.core.tool import Tool, ToolCall
from lyra.errors import ApprovalRefused, CapabilityDenied, DeadlineExceeded, Denied, LyraError, ToolError
from lyra.kernel.process.replay import next_key, upcoming
from lyra.kernel.programs.journaled_call import once, read
from lyra.sandbox.protection.protected_places import is_own
from lyra.tools.permissions.decision import IN_SANDBOX, PermissionDecision, Permissions
from lyra.tools.permissions.rules import Rule
from lyra.tools.permissions.subjects import Subject, facts_of, names_packages, subject_of

if TYPE_CHECKING:
    from lyra.agents.declaration.hooks import HookOutcome
    from lyra.agents.session.session import AgentSession
    from lyra.agents.session.shared import AgentRuntime
    from lyra.agents.turn.turn import Turn
    from lyra.kernel.process.process import Process


_ROW: Final = "admit"
_KEPT: Final = "kept"
_GRANT: Final = "grant"
_HOOK: Final = "hook"
_CHECK: Final = "check"  # the call cannot work
_CHANGED_AGAIN: Final = "a hook would change the arguments that a person has chosen"
_NO_PERSON: Final = "no person is there to be asked"
_QUESTION: Final = Capability("human.ask", "confirmation")
_HTTP: Final = "net.http"
_ALL_BUT_HTTP: Final = tuple(Capability(name) for name in VERBS if name != _HTTP)
_WILD: Final = frozenset("*?")
_SHOWN_CHARS_MAX: Final = 50_000  # of the subject in a question; a longer one would not be read before it is answered
_GIVEN_CHARS_MAX: Final = 300
_UNJUDGED: Final = PermissionDecision("allow", None, "the agent has no permissions")
_HINT: Final = "do not look for a way around it: go on without it, or tell the user what you would need"


class Admitted(NamedTuple):
    """A call that may be made: a private copy of its arguments, the real path it is about, and its rights."""

    call: ToolCall
    path: str | None
    hides: Callable[[str], bool] | None
    rights: Grant
    is_edited: bool = False  # a person has changed the arguments
    is_own_text: bool = False  # what comes out is of the user's own project
    unheld: bool = False  # a person has allowed the command, knowing that no sandbox holds it
    opened: str | None = None  # the path, where it lies outside the tool's folders


async def admit(turn: Turn, tool: Tool, call: ToolCall, hook: HookOutcome | None = None) -> Admitted:
    """Return the call as it may be made; raises ApprovalRefused where it may not. `hook` is what hooks have decided on
    it."""
    process, runtime = turn.process, turn.runtime
    if process.replay is not None and not has_decision(process) and upcoming(process) is not None:
        return Admitted(
            call, None, None, process.grant
        )  # the journal is of a version or setting that did not decide on it
    replaying = process.replay is not None and upcoming(process) is not None
    # A copy: code that was shown the arguments cannot change those that run.
    call = ToolCall(call.id, call.name, codec.decode(codec.encode(call.arguments)))
    case = Case(runtime, turn.session, tool, call, process.grant, hook=hook)
    row = read(process, _ROW, case.decide)
    case.read(row)
    if row["source"] == _CHECK:
        raise ToolError(row["reason"], hint=row["hint"], reason=row["code"])
    if not replaying:
        publish(runtime, process, call, row)
    if (row["decision"] == "ask" or row.get(UNANSWERED)) and turn.has_hooks:
        row = await _ask_hooks(turn, case, row)
    is_edited = False
    if row["decision"] == "ask":
        row = await _ask(turn, case, row)
        is_edited = row["decision"] == "allow" and "arguments" in row
        if is_edited:
            case, row = await _apply_edit(turn, case, row)
            call = case.call
    if row["decision"] == "deny":
        raise _denial(tool, call, row)
    path = case.subject.value if case.subject.kind == "path" else None
    hides_of_case = case.hides if case.subject.kind == "path" else None
    own, unheld = bool(row.get(OWN_TEXT)), row["source"] == "answer" and case.subject.held is False
    opened = path if case.asks_outside else None
    return Admitted(call, path, hides_of_case, case.narrow_grant(row), is_edited, own, unheld, opened)


async def _apply_edit(turn: Turn, case: Case, row: dict[str, Any]) -> tuple[Case, dict[str, Any]]:
    """Return the case of the call as a person has changed it, and its decision: a rule or hook that denies holds for
    it, too."""
    call = ToolCall(case.call.id, case.call.name, dict(row["arguments"]))
    hook = await _hooks_on_edited(turn, call) if turn.has_hooks else None
    edited = Case(case.runtime, case.session, case.tool, call, case.grant, hook=hook)
    replaying = turn.process.replay is not None and upcoming(turn.process) is not None
    decision = read(turn.process, _ROW, edited.decide)
    edited.read(decision)
    if decision["decision"] != "deny":
        decision = {**decision, "decision": "allow", "reason": row["reason"], "source": row["source"]}
    if not replaying:
        publish(case.runtime, turn.process, call, decision)
    return edited, decision


async def _hooks_on_edited(turn: Turn, call: ToolCall) -> HookOutcome | None:
    """Return what hooks say to a call that a person has changed: they cannot change it again behind the person's
    back."""
    from lyra.agents.turn.hook_points import before_tool

    changed, hook = await before_tool(turn, call)
    if changed.arguments != call.arguments:
        return msgspec.structs.replace(hook, decision="deny", reason=_CHANGED_AGAIN) if hook is not None else None
    return hook


def _denial(tool: Tool, call: ToolCall, row: dict[str, Any]) -> Denied:
    """Return the error that the model is told. It does not say where a link leads: the maker of the link chose those
    words."""
    reason = row["reason"]
    if row.get("linked") and row["source"] != "answer":
        given = str(call.arguments.get(facts_of(tool.name).argument, ""))[:_GIVEN_CHARS_MAX]
        reason = f"{given} is a link, and what it leads to is not allowed here"
    if row["source"] == _GRANT:
        return CapabilityDenied(reason, hint=_HINT, rule=row["rule"])
    return ApprovalRefused(f"{tool.name} was not run: {reason}", hint=_HINT, rule=row["rule"], source=row["source"])


def has_decision(process: Process) -> bool:
    """Return whether the journal of a replay holds a decision on the next call."""
    entry = upcoming(process)
    return entry is not None and entry.kind == "read" and entry.name == _ROW


class Case:
    """One call and all that its decision depends on."""

    __slots__ = ("_linked", "_subject", "_unanswered", "call", "grant", "hook", "runtime", "session", "tool")

    def __init__(
        self,
        runtime: AgentRuntime,
        session: AgentSession,
        tool: Tool,
        call: ToolCall,
        grant: Grant,
        *,
        hook: HookOutcome | None = None,
    ) -> None:
        self.runtime = runtime
        self.session = session
        self.tool = tool
        self.call = call
        self.grant = grant
        self.hook = hook
        self._subject: Subject | None = None
        self._linked = False  # the path leads somewhere else than it says
        self._unanswered = False  # it would be asked about if a person were there

    @property
    def permissions(self) -> Permissions:
        return self.session.permissions or self.session.default_permissions

    @property
    def subject(self) -> Subject:
        assert self._subject is not None
        return self._subject

    def decide(self) -> dict[str, Any]:
        """Return the decision as its row: plain data, known keys masked."""
        tainted = self.session.judged
        try:
            subject = self._read_subject()
            # Own text tells a command nothing that matters where the command can send nothing out.
            tainted = tainted and not (self.session.judged_own and subject.act == "run" and subject.confined)
            decision = self._decision(subject, tainted)
        except Exception as error:  # noqa: BLE001 - a tool's `needs_of` may raise anything; there has to be a row
            message = error.message if isinstance(error, LyraError) else f"{type(error).__name__}: {error}"
            decision = PermissionDecision("deny", None, f"it cannot be judged: {message}", "error")
        flaw = self._find_flaw() if decision.decision == "ask" else None
        if flaw is not None:
            decision = PermissionDecision("deny", None, flaw.message, _CHECK)
        shown = self.runtime.clean(_describe_subject(self.call, self._subject))
        if decision.decision == "ask" and len(shown) > _SHOWN_CHARS_MAX:
            reason = f"{decision.reason}, and it is too long to be shown to a person"
            decision = decision._replace(decision="deny", reason=reason)
        if decision.decision == "ask" and self._subject is not None and self._subject.reaches:
            decision = decision._replace(reason=f"{decision.reason}; it reaches {visible(self._subject.reaches)[:300]}")
        return {
            "decision": decision.decision,
            "rule": decision.rule,
            "reason": self.runtime.clean(decision.reason),
            "source": decision.source,
            "subject": shown[: _SHOWN_CHARS_MAX + 1],
            "tainted": tainted,
            **({"linked": True} if self._linked else {}),
            **({OWN_TEXT: True} if self._gives_own_text() else {}),
            **({"hint": flaw.hint, "code": str(flaw.fields.get("reason", ""))} if flaw is not None else {}),
            **({UNANSWERED: True} if self._unanswered and decision.decision == "deny" else {}),
        }

    def _find_flaw(self) -> ToolError | None:
        """Return why the call cannot work, so that no person is asked about it; no file outside is looked at."""
        if self.tool.check is None or (self.subject.kind == "path" and not self.subject.inside):
            return None
        try:
            self.tool.check(**self.call.arguments)
        except ToolError as error:
            return error
        except Exception:  # noqa: BLE001 - it is no answer then, and the person is asked
            return None
        return None

    def _read_subject(self) -> Subject:
        given = _find_path(self.tool, self.call.arguments, self.permissions)
        real = os.path.realpath(given) if given is not None else None
        self._linked = real is not None and real != os.path.normpath(given or "")
        subject = self._subject = self._about(real)
        return subject

    def _gives_own_text(self) -> bool:
        """Return whether what comes out is text of the user's own project: of its files, but not of packages in it, or
        of a command that reaches no network."""
        subject = self._subject
        if subject is None or not self.tool.builtin or not self.permissions.own_text or subject.act == "fetch":
            return False
        if subject.kind == "path":
            return subject.inside and not names_packages(subject.value or "")
        if subject.act == "run":
            return subject.confined and not names_packages(subject.value or "")
        return subject.act == "talk"

    def _decision(self, subject: Subject, tainted: bool) -> PermissionDecision:
        if self.hook is not None and self.hook.decision == "deny":
            return PermissionDecision("deny", None, self.hook.reason or "a hook denies it", _HOOK)
        decision = self._by_rules(subject, tainted)
        if decision.decision == "ask" and not self.grant.allows(_QUESTION):
            decision = decision._replace(
                decision="deny", reason=f"{decision.reason}, and {_QUESTION} is denied", source=_GRANT
            )
        if decision.decision == "allow" and self.asks_outside and not self._is_named(subject, tainted):
            decision = PermissionDecision("ask", None, f"{subject.value} is outside the workspace", _GRANT)
        if decision.decision == "ask" or (self._linked and decision.decision == "allow"):
            # A call that the Grant refuses in any case is denied without a question. A link is refused here too, where
            # the message does not repeat the path that it leads to.
            decision = self._check_grant() or decision
        return decision if self.session.hooks is None else self._apply_hook_answer(decision)

    def _by_rules(self, subject: Subject, tainted: bool) -> PermissionDecision:
        """Return the decision of the rules. With hooks, a question stays one where no person is there: they may answer
        it."""
        permissions, has_hooks, decision = self.permissions, self.session.hooks is not None, _UNJUDGED
        if self.session.judges(self.tool):
            decision = permissions.decide(subject, tainted=tainted, attended=True if has_hooks else None)
        for outer in self.session.enclosing:  # a helper may do nothing that its caller may not do unasked
            decision = _stricter(decision, outer, subject, tainted=tainted, has_hooks=has_hooks)
        if decision.decision == "allow" and self.hook is not None and self.hook.decision == "ask":
            reason = f"a hook asks: {self.hook.reason}" if self.hook.reason else "a hook asks"
            return PermissionDecision("ask", None, reason, _HOOK)
        return decision

    def _apply_hook_answer(self, decision: PermissionDecision) -> PermissionDecision:
        """Take the answer of a hook for a question, which else is a denial where no person can be asked."""
        if decision.decision != "ask":
            return decision
        if self.hook is not None and self.hook.decision == "allow":
            return PermissionDecision("allow", None, self.hook.reason or "a hook allows it", _HOOK)
        asking = (self.permissions, *self.session.enclosing)
        if all(permissions.attended and permissions.mode != "deny-unasked" for permissions in asking):
            return decision
        self._unanswered = True
        return decision._replace(decision="deny", reason=f"{decision.reason}; {_NO_PERSON}")

    def read(self, row: dict[str, Any]) -> None:
        """Take the subject from a replayed row: the path may lead somewhere else by now."""
        if self._subject is None and (row["decision"] != "deny" or row.get(UNANSWERED)):
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
            extra_folders=permissions.extra_folders,
            known=tool.builtin,
        )
        if subject.act == "read" and not subject.inside and self._is_own():
            return subject._replace(inside=True)
        if subject.act == "run" and tool.holds is not None and subject.value is not None:
            held = tool.holds(self.grant, subject.value)
            confined = held.works is not False and not held.network and subject.doubt is None
            # A job in the background outlives its turn, so it is asked about whatever it reads.
            reads = held.reads and subject.doubt is None and not self.call.arguments.get("run_in_background")
            return subject._replace(held=held.works, confined=confined, reads=reads, reaches=held.reaches)
        if subject.act != "other":
            return subject
        return subject._replace(act="talk" if tool.harmless else "other", confined=tool.confined)

    def _is_own(self) -> bool:
        """Return whether it reads the long output of this process's own commands, kept in a file: that needs no
        right."""
        needs_of = self.tool.needs_of
        return needs_of is not None and bool(self.tool.folders) and not list(needs_of(self.call.arguments))

    def _is_named(self, subject: Subject, tainted: bool) -> bool:
        """Return whether an allow names the path, and not only the tool; after text from outside this very path."""
        allows = (*self.permissions.rules_of("allow", subject.tool), *self.permissions.answers)
        named = [rule for rule in allows if rule.effect == "allow" and rule.paths and rule.matches(subject)]
        return any(rule.exact or not tainted for rule in named)

    @property
    def asks_outside(self) -> bool:
        """Whether it reads one file outside the tool's folders, about which a person is asked."""
        tool, path, permissions = self.tool, self.subject.value, self.permissions
        is_read = tool.builtin and tool.name == "Read" and path is not None and not _within(path, tool.folders)
        return is_read and permissions.asks_outside and not self._is_own() and not is_own(path or "", hidden=True)

    def _check_grant(self) -> PermissionDecision | None:
        tool, path = self.tool, self.subject.value
        if self.asks_outside:
            return None
        if self.subject.kind == "path" and path is not None and not _within(path, tool.folders):
            return PermissionDecision("deny", None, f"{path} is outside the workspace", _GRANT)
        try:
            for need in tool.needs_for(self.call.arguments):
                self.grant.check(need)
        except CapabilityDenied as error:
            return PermissionDecision("deny", error.fields.get("rule"), error.message, _GRANT)
        return None

    def hides(self, path: str) -> bool:
        """Return whether a search passes over a path: reading it would be denied, or would need a question."""
        hidden = any(permissions.is_hidden(path) for permissions in (self.permissions, *self.session.enclosing))
        return hidden or not self.grant.allows(Capability("fs.read", path))

    def narrow_grant(self, row: dict[str, Any]) -> Grant:
        """Return the rights of the call: those of its process, without the paths that rules deny. A command that is
        allowed because a sandbox holds it reaches no host. A command that a rule
        for exactly its line allows after untrusted text reaches only hosts that are named in full: the rest of a name
        that a pattern covers could carry data."""
        grant = self.grant
        for permissions in (self.permissions, *self.session.enclosing):
            grant = permissions.narrow(grant)
        if row["source"] == IN_SANDBOX:
            return grant.narrow(Grant(_ALL_BUT_HTTP))
        if row["tainted"] and self.subject.act == "run" and _is_by_rule_for_line(row):
            grant = _without_host_patterns(grant)
        return grant


def _is_by_rule_for_line(row: dict[str, Any]) -> bool:
    """Return whether a rule for certain lines allowed the call, not one for the whole tool, a mode, or a person who was
    asked."""
    return row["rule"] is not None and row["source"] != "answer" and not Rule(row["rule"], "allow").names_tool


def _without_host_patterns(grant: Grant) -> Grant:
    """Return the Grant with the right to reach hosts that it names in full, and no other hosts."""
    hosts = [cap for layer in grant.layers for cap in layer if cap.name == _HTTP and not _WILD.intersection(cap.scope)]
    return grant.narrow(Grant([*_ALL_BUT_HTTP, *hosts]))


def _stricter(
    decision: PermissionDecision, outer: Permissions, subject: Subject, *, tainted: bool, has_hooks: bool
) -> PermissionDecision:
    """Return the decision, made stricter where the caller's permissions are. With hooks, a question that no person can
    answer stays one."""
    if decision.decision == "deny":
        return decision
    forbidden = outer.forbids(subject)
    if forbidden is not None:
        return forbidden
    if decision.decision == "allow":
        decision = outer.asks(subject, tainted=tainted) or decision
    if decision.decision == "ask" and (outer.mode == "deny-unasked" or not (outer.attended or has_hooks)):
        return decision._replace(decision="deny", reason=f"{decision.reason}; {_NO_PERSON}")
    return decision


def _find_path(tool: Tool, arguments: dict[str, Any], permissions: Permissions) -> str | None:
    """Return the absolute path that a file tool is given, with its links unresolved."""
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
    """Return whether a path lies in one of the folders; a tool that names none goes anywhere."""
    return not folders or any(path == root or path.startswith(root.rstrip("/") + "/") for root in folders)


def _describe_subject(call: ToolCall, subject: Subject | None) -> str:
    """Return the subject as a person is shown it: the command, path or URL, or all arguments of a tool without one."""
    if subject is not None and subject.kind in ("command", "path", "url") and subject.value is not None:
        return subject.value
    return arguments_as_json(call.arguments)


async def _ask_hooks(turn: Turn, case: Case, row: dict[str, Any]) -> dict[str, Any]:
    """Return the decision after hooks were asked; the same one where they have no answer."""
    from lyra.agents.turn.hook_points import fire

    entry = upcoming(turn.process)
    fields = {"tool": case.tool.name, "arguments": case.call.arguments, "call_id": case.call.id}
    fields |= {"subject": row["subject"], "reason": row["reason"], "rule": row["rule"]}
    outcome = await fire(turn, "PermissionRequest", fields)
    if outcome is None or outcome.decision not in ("allow", "deny"):
        return row
    verb = "allows" if outcome.decision == "allow" else "denies"
    reason = outcome.reason or f"a hook {verb} it"
    row = {**row, "decision": outcome.decision, "rule": None, "reason": reason, "source": _HOOK}
    if entry is None or not entry.done:
        publish(case.runtime, turn.process, case.call, row)
    return row


async def _ask(turn: Turn, case: Case, row: dict[str, Any]) -> dict[str, Any]:
    """Return the decision after a person was asked."""
    process = turn.process
    interrupts = process.kernel.interrupts

    def tell(interrupt_id: str) -> bool:
        sink = turn.session.sink or caller_sink(case.runtime, process)
        return show_question(sink, process, interrupt_id, about_call(case, row))

    replayed = False
    try:
        key = next_key(process)
        replayed = process.replay is not None and getattr(process.replay.get(key), "done", False)
        answer = await interrupts.ask(
            process,
            kind="confirmation",
            key=key,
            question=f"Allow {case.tool.name}?\n{visible_text(row['subject'])}",
            message=reason_text(case, row),
            asked=tell,
        )
    except DeadlineExceeded as error:
        if process.out_of_time:
            raise
        row = {**row, "decision": "deny", "reason": f"{row['reason']}; {error.message}"}
    else:
        row = answer_to_row(case, row, answer, keep=lambda text, act: once(process, _KEPT, text, act))
    if not replayed:
        publish(case.runtime, process, case.call, row)
    return row
