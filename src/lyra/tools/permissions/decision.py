"""The decision on one call: asked in one order, answered with the rule that decided and where it came from.

    a deny rule                  → deny, whatever else is said
    the mode is `plan`           → deny what is not reading
    a protected path is written  → deny
    an answer kept as "always"   → as it was answered
    an ask rule                  → ask
    the mode is `bypass`         → allow
    a command that no sandbox would hold → ask, whatever else is said
    an allow rule                → allow; after untrusted text only one that names the tool alone or the exact thing
    the mode is `accept-edits`   → allow writing in the workspace
    the mode is `sandboxed`      → allow commands that a sandbox holds
    reading in the workspace, a command that only reads in a sandbox, or what does nothing outside the conversation
                                 → allow
    nothing said                 → ask

Without a person who can answer (`attended=False`), or in the mode `deny-unasked`, "ask" becomes "deny". A model never
answers: of a call's arguments only the subject (the command, path or URL) is read. An answer of `always` or `never` is
a rule from then on; the function `keep` receives it and can store it beyond the life of this object.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple, Self

from lyra.core.checking.check import one_of
from lyra.core.commands.option_reach import words_of
from lyra.core.own_files import find_own_paths
from lyra.core.rights.capability import Capability, Grant
from lyra.errors import ApprovalRefused, ConfigError
from lyra.sandbox.protection.obeyed import find_asked_part, find_obeyed_part
from lyra.sandbox.protection.protected_names import HIDDEN
from lyra.tools.permissions.answers import config_folder
from lyra.tools.permissions.rules import Effect, Rule
from lyra.tools.permissions.subjects import Subject, check_workspace, subject_of

MODES: Final[dict[str, str]] = {
    "default": "ask for what no rule allows",
    "accept-edits": "edits in the workspace are allowed, the rest as in default",
    "sandboxed": "commands in the sandbox, without a network, are allowed, the rest as in default",
    "plan": "reading only",
    "bypass": "allow what no rule denies or asks for",
    "deny-unasked": "as default, but deny instead of asking",
}
ANSWERS: Final = ("allow", "always", "deny", "never")
MANAGED: Final = "managed"
IN_SANDBOX: Final = "sandbox"  # the source of a decision that allows a command because it has no network there
UNHELD: Final = "no sandbox"
_READERS: Final = ("Read", "Glob", "Grep")
_GRANTS_KEPT: Final = 64
_HELPERS_MAX: Final = 256  # workspaces of helpers that are remembered
_TOOLS_KEPT: Final = 1_024  # tools whose rules are remembered

_SHOWN: Final = r"(?!\.env\.(?:example|sample|template|dist)(?:/|$))"  # templates without secrets


def _names(names: Iterable[str]) -> re.Pattern[str]:
    """Return a path with one of these names in it; a star is any run within a name."""
    alternatives = "|".join(re.escape(name).replace(r"\*", "[^/]*") for name in names)
    return re.compile(rf"(?:^|/){_SHOWN}({alternatives})(?:/|$)", re.IGNORECASE)


_SECRETS: Final = _names(HIDDEN)  # not read without an answer


def may_hold_secrets(path: str) -> bool:
    """Return whether the path has a name that is usual for secrets. The file itself is not read."""
    return _SECRETS.search(path) is not None


class PermissionDecision(NamedTuple):
    """What was decided, by which rule (as it is written), why, and where the rule comes from."""

    decision: Literal["allow", "ask", "deny"]
    rule: str | None
    reason: str
    source: str = "default"

    @property
    def allowed(self) -> bool:
        return self.decision == "allow"

    def require(self) -> None:
        """Raise ApprovalRefused unless it is allowed."""
        if self.decision != "allow":
            raise ApprovalRefused(self.reason, rule=self.rule, source=self.source)


class Permissions:
    """Rules of every source, a mode, and the answers that were given "always"."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        *,
        mode: str = "default",
        workspace: str = "/",
        home: str = "",
        protected: Iterable[str] = (),
        forbid_modes: Iterable[str] = (),
        extra_folders: Iterable[str] = (),
        attended: bool = True,
        keep: Callable[[Rule], object] | None = None,
        answers: Iterable[Rule] = (),
        only: Iterable[Rule] | None = None,
        own_text: bool = False,
        asks_outside: bool = False,
    ) -> None:
        self._forbidden_modes = frozenset(forbid_modes)
        self.set_mode(mode)
        self.workspace = check_workspace(workspace)
        self.extra_folders = tuple(
            check_workspace(folder) for folder in extra_folders
        )  # count as inside, like the workspace
        self.home = home
        self._named = tuple(protected)
        self._protected = _names(self._named) if self._named else None
        self._narrowed: dict[Grant, Grant] = {}
        folders = {config_folder(), config_folder(home), *find_own_paths().hidden} - {""}
        folders |= {os.path.realpath(folder) for folder in folders}
        self._own = tuple(f"{folder}/" for folder in folders)  # the user's own settings, answers and keys
        self._only = None if only is None else tuple(only)  # calls that none of these matches are forbidden
        self._rules = tuple(rules)
        self._rules_by_tool: dict[str, _ToolRules] = {}
        self._answers = list(answers)  # of earlier runs
        self._helpers: tuple[str, ...] = ()  # workspaces of helpers: not protected because of where they lie
        self.own_text = own_text  # the files of the workspace are the user's own project
        self.asks_outside = asks_outside  # a person is asked about files and hosts that no right opens
        self.attended = attended  # a person can answer questions
        self._keep = keep

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of settings and flags, and those that were added since."""
        return self._rules

    def add(self, rule: Rule, *, as_answer: bool = False) -> None:
        """Decide by one more rule from now on; `as_answer`: as by an answer of `always` or `never`."""
        if as_answer:
            self._answers = [kept for kept in self._answers if kept.text != rule.text]
            self._answers.append(rule)
        else:
            self._rules = (*self._rules, rule)
        self._rules_by_tool.clear()
        self._narrowed.clear()

    @property
    def answers(self) -> tuple[Rule, ...]:
        """The rules that answers of `always` and `never` became."""
        return tuple(self._answers)

    # ------------------------------------------------------------ deciding
    def decide(self, subject: Subject, *, tainted: bool = False, attended: bool | None = None) -> PermissionDecision:
        """Decide on one call. `tainted`: the process has read text from outside. `attended` overrides the setting for
        this call."""
        decision = self._decide(subject, tainted)
        if decision.decision != "ask":
            return decision
        if (self.attended if attended is None else attended) and self.mode != "deny-unasked":
            return decision
        why = "the mode is deny-unasked" if self.mode == "deny-unasked" else "no person is there to be asked"
        return decision._replace(decision="deny", reason=f"{decision.reason}; {why}")

    def forbids(self, subject: Subject) -> PermissionDecision | None:
        """Return the denial that no answer changes: by a rule, by the mode `plan`, or because it is protected."""
        return self._forbids(subject, self._rules_for(subject.tool))

    def _forbids(self, subject: Subject, rules: _ToolRules) -> PermissionDecision | None:
        denied = _first_match(rules.deny, subject) if rules.deny else None
        if denied is not None:
            return _decide_by(denied, subject, "deny")
        if self._only is not None and subject.act != "talk" and not any(rule.matches(subject) for rule in self._only):
            allowed = ", ".join(rule.text for rule in self._only) or "no tool"
            return PermissionDecision("deny", None, f"only {allowed} may be used here", "limit")
        if self.mode == "plan" and subject.act not in ("read", "talk"):
            return PermissionDecision("deny", None, f"{subject.tool} does more than read, and the mode is plan", "mode")
        part = self._find_protected_part(subject) if subject.act == "write" else None
        if part is not None:
            return PermissionDecision("deny", None, f"{part} is protected from being written", "protected")
        return None

    def _asks_first(self, subject: Subject) -> str | None:
        """Return why a person is asked before a file is written, unless an answer names it: other programs obey it."""
        if subject.act != "write" or subject.value is None:
            return None
        roots = (self.workspace, *self.extra_folders, *self._helpers)
        for path in dict.fromkeys(filter(None, (subject.value, subject.called))):
            part = find_asked_part(path, roots, exact=False)
            if part is not None:
                return f"other programs obey {part}"
        return None

    def _decide(self, subject: Subject, tainted: bool) -> PermissionDecision:
        rules = self._rules_for(subject.tool)
        forbidden = self._forbids(subject, rules)
        if forbidden is not None:
            return forbidden
        if subject.held is False:
            reason = "no sandbox works here, so the command would have all your rights; no rule answers for that"
            return PermissionDecision("ask", None, reason, UNHELD)
        asked = _first_match(rules.ask, subject) if rules.ask else None
        if rules.always and (asked is None or asked.source.partition(":")[0] != MANAGED):
            answered = self._find_answer(rules.always, subject, tainted)
            if answered is not None:
                return _decide_by(answered, subject, "allow")
        if asked is not None:
            return _decide_by(asked, subject, "ask")
        if self.mode == "bypass":
            return PermissionDecision("allow", None, "the mode is bypass", "mode")
        return self._unless_asked(subject, rules, tainted)

    def _unless_asked(self, subject: Subject, rules: _ToolRules, tainted: bool) -> PermissionDecision:
        obeyed = self._asks_first(subject)
        consequential = obeyed is not None or (tainted and self._consequential(subject))
        weaker: Rule | None = None
        for rule in _candidates(rules.allow, subject):
            if rule.speaks_of(subject):
                if not consequential or _is_answer(rule, subject):
                    return _decide_by(rule, subject, "allow")
                weaker = weaker or rule
        if subject.reads and not self._rules_for("Read").ask:
            return PermissionDecision("allow", None, "the command only reads, and can do nothing else", IN_SANDBOX)
        if subject.held and self.mode == "sandboxed" and subject.act == "run":
            return PermissionDecision("allow", None, "the mode is sandboxed", IN_SANDBOX)
        piped = None if consequential else self._allow_parts(_Rules((*rules.always, *rules.allow)), subject)
        if piped is not None:
            return piped
        if weaker is not None:
            kind = "taint" if obeyed is None else "protected"
            why = f"{obeyed or 'the process has read untrusted text'}, and a pattern is no answer"
            return PermissionDecision("ask", weaker.text, f"{why}{weaker.at_any_depth(subject)}", kind)
        if obeyed is not None:
            return PermissionDecision("ask", None, obeyed, "protected")
        if subject.kind == "path" and subject.inside and subject.doubt is None:
            if self.mode == "accept-edits" and subject.act == "write":
                return PermissionDecision("allow", None, "the mode is accept-edits", "mode")
            if subject.act == "read" and self._is_secret(subject):
                return PermissionDecision("ask", None, f"{subject.value} may hold secrets", "protected")
            if subject.act == "read":
                return PermissionDecision("allow", None, "reading in the workspace needs no rule")
        if subject.act == "talk":
            return PermissionDecision("allow", None, f"{subject.tool} does nothing outside the conversation")
        reason = f"no rule speaks of this {subject.tool}"
        if subject.line is not None and subject.line.single is None and rules.allow:
            reason = (
                f"{reason}; an allow with a wildcard covers one simple command or each part of a pipe, list or loop"
            )
        return PermissionDecision("ask", None, reason)

    def _allow_parts(self, rules: _Rules, subject: Subject) -> PermissionDecision | None:
        """Decide by the first part of a pipe or list that needs a rule or writes a file, where each part is allowed or
        only reads in a sandbox; None where one of them is not. A list may begin with a `cd` into a folder of the
        workspace: after it only rules for whole programs count, because the words of others may mean other files there.
        A file for output is one that could be written without a question."""
        line = subject.line
        if line is None or not line.parts or not (subject.held or line.is_pipe):
            return None
        deciding: PermissionDecision | None = None
        root = folder = os.path.realpath(self.workspace)
        for number, part in enumerate(line.parts):
            words = part.line.words
            if words is None or ("printf" in words and "-v" in part.line.text):
                return None
            if "cd" in words:
                entered = _find_folder(part.line.text, root)
                if number or entered is None or not subject.held:
                    return None
                folder = entered
            elif not (subject.held and part.line.reads_only):
                own = subject._replace(value=part.line.text, line=part.line)
                matching = (rule for rule in _candidates(rules, own) if rule.speaks_of(own))
                rule = next(
                    (rule for rule in matching if folder == root or _PROGRAM.fullmatch(rule.pattern or "")), None
                )
                if rule is None or words & _CHANGES:
                    return None
                deciding = deciding or _decide_by(rule, subject, "allow")
            for name in part.writes:
                written = self._decide_writing(os.path.join(folder, name))
                if not written.allowed:
                    return None
                deciding = deciding or written
        return deciding

    def _decide_writing(self, path: str) -> PermissionDecision:
        subject = subject_of(
            "Write",
            {"file_path": path},
            workspace=self.workspace,
            home=self.home,
            path=os.path.realpath(path),
            extra_folders=self.extra_folders,
        )
        return self._decide(subject, tainted=False)

    def limit(self, rules: Iterable[str]) -> Permissions:
        """Permissions that forbid each call which none of these rules matches, and decide nothing else. Tools that do
        nothing outside the conversation stay."""
        only = [Rule(text, "allow", source="limit", workspace=self.workspace, home=self.home) for text in rules]
        return Permissions(
            mode="bypass", workspace=self.workspace, home=self.home, extra_folders=self.extra_folders, only=only
        )

    def rules_of(self, effect: Effect, tool: str) -> tuple[Rule, ...]:
        """Return the rules of one effect that cover a tool."""
        rules = self._rules_for(tool)
        return {"allow": rules.allow, "ask": rules.ask, "deny": rules.deny}[effect]

    def _rules_for(self, tool: str) -> _ToolRules:
        """Return the rules that cover a tool; answers of `never` are denies like any other."""
        rules = self._rules_by_tool.get(tool)
        if rules is None:
            rules = _tool_rules(
                [rule for rule in self._rules if rule.covers_tool(tool)],
                [rule for rule in self._answers if rule.covers_tool(tool)],
            )
            if len(self._rules_by_tool) < _TOOLS_KEPT:
                self._rules_by_tool[tool] = rules
        return rules

    def _find_protected_part(self, subject: Subject) -> str | None:
        if subject.value is None:
            return None
        own = (self.workspace, *self.extra_folders)
        for path in dict.fromkeys(filter(None, (subject.value, subject.called))):
            roots = (*own, *(folder for folder in self._helpers if path.startswith(f"{folder}/")))
            match = self._protected.search(path) if self._protected is not None else None
            if match is not None:
                return match[1]
            part = path if f"{path}/".startswith(self._own) else find_obeyed_part(path, roots, exact=False)
            if part is not None:
                return part
        return None

    def _find_answer(self, answers: _Rules, subject: Subject, tainted: bool) -> Rule | None:
        """Return the answer of `always` that covers the call; after untrusted text only one that is for exactly
        this."""
        consequential = (tainted and self._consequential(subject)) or self._asks_first(subject) is not None
        for rule in _candidates(answers, subject):
            if rule.speaks_of(subject) and (not consequential or _is_answer(rule, subject)):
                return rule
        return None

    def _consequential(self, subject: Subject) -> bool:
        """Return whether a call is egress, runs a program, writes outside the workspace, reads secrets or uses an
        unknown tool."""
        if subject.act in ("run", "fetch", "other"):
            return True
        if subject.act == "write":
            return not subject.inside
        return subject.act == "read" and (not subject.inside or self._is_secret(subject))

    def _is_secret(self, subject: Subject) -> bool:
        """By the name of the file, or of the link that the call names; the user's own folder of Lyra has keys."""
        paths = (subject.value or "", subject.called)
        return any(_SECRETS.search(path) is not None or f"{path}/".startswith(self._own) for path in paths)

    def is_hidden(self, path: str) -> bool:
        """Return whether a search skips this file: it may hold secrets, or a rule denies reading it."""
        if _SECRETS.search(path) is not None or path.startswith(self._own):
            return True
        subject = Subject("Read", "path", "read", path, inside=True, workspace=self.workspace)
        return any(_first_match(self._rules_for(tool).deny, subject) is not None for tool in _READERS)

    def narrow(self, grant: Grant) -> Grant:
        """Return the Grant without the paths that `Read(…)` and `Edit(…)` deny and those protected by name, so that a
        command cannot reach them either. A deny of a whole tool takes away that tool alone."""
        narrowed = self._narrowed.get(grant)
        if narrowed is None:
            if len(self._narrowed) >= _GRANTS_KEPT:
                self._narrowed.clear()
            denied = self.denied
            narrowed = grant.narrow(Grant(["*"], denied)) if denied else grant
            self._narrowed[grant] = narrowed
        return narrowed

    @property
    def denied(self) -> tuple[Capability, ...]:
        """The paths that no program may read or write, under any Grant."""
        by_rule = [
            Capability(verb, path)
            for verb, tool in (("fs.read", "Read"), ("fs.write", "Edit"))
            for rule in self._rules_for(tool).deny
            for path in rule.paths
        ]
        names = [name.strip("/") for name in self._named if name.strip("/")]
        return (*by_rule, *(Capability("fs.write", f"/**/{name}{end}") for name in names for end in ("", "/**")))

    def asks(self, subject: Subject, *, tainted: bool = False) -> PermissionDecision | None:
        """Return the decision of the ask rule that matches, unless a kept answer allows the call."""
        rules = self._rules_for(subject.tool)
        asked = _first_match(rules.ask, subject)
        if asked is None:
            return None
        if asked.source.partition(":")[0] != MANAGED and self._find_answer(rules.always, subject, tainted) is not None:
            return None
        return _decide_by(asked, subject, "ask")

    # ------------------------------------------------------------ answers
    def answer(self, subject: Subject, answer: str, *, wider: str = "") -> Rule | None:
        """Take a person's answer. `always` and `never` become a rule for exactly this call, which is returned; `never`
        to a URL is a rule for its host, and `always` one of the `rules_for` the call where a `wider` one is named."""
        one_of(answer, ANSWERS, "answer")
        if answer in ("allow", "deny"):
            return None
        effect: Effect = "allow" if answer == "always" else "deny"
        text = self.rule_for(subject, answer)
        if answer == "always" and wider in self.rules_for(subject):
            text = wider
        if text is None:
            raise ConfigError(f"no rule can say this {subject.tool}", hint="answer for this once")
        rule = Rule(text, effect, source="answers", workspace=self.workspace, home=self.home)
        if not any(kept.text == rule.text and kept.effect == effect for kept in self._answers):
            self._answers.append(rule)
            self._rules_by_tool.clear()
            self._narrowed.clear()
        return rule

    def set_mode(self, mode: str) -> None:
        """Decide in another mode from now on; ConfigError where the managed policy forbids it."""
        if one_of(mode, MODES, "mode") in self._forbidden_modes:
            raise ConfigError(f"the managed policy forbids the mode {mode!r}", place=MANAGED, key="mode")
        self.mode = mode

    def rule_for(self, subject: Subject, answer: str = "always") -> str | None:
        """Return the rule that an answer of `always` or `never` becomes; None where it can be none."""
        from lyra.tools.permissions.offers import render_exact, render_refusal  # imported at the first question

        if subject.held is False and answer == "always":
            return None
        try:
            text = render_exact(subject) if answer == "always" else render_refusal(subject)
            rule = Rule(text, "allow", workspace=self.workspace, home=self.home)
        except ConfigError:
            return None
        return rule.text if rule.speaks_of(subject) else None

    def rules_for(self, subject: Subject) -> list[str]:
        """Return the rules that an answer of `always` may become, the exact one first. None covers a file that other
        programs obey, or a command that no sandbox holds."""
        from lyra.tools.permissions.offers import offer_rules

        if subject.held is False:
            return []
        wider = not self._asks_first(subject)
        offered = [text for text in offer_rules(subject) if wider or text == self.rule_for(subject)]
        rules = [(text, Rule(text, "allow", workspace=self.workspace, home=self.home)) for text in offered]
        return [text for text, rule in rules if rule.speaks_of(subject) or self._allow_parts(_Rules([rule]), subject)]

    def keep(self, rule: Rule) -> None:
        """Pass an answer to the function that stores it, if one was given."""
        if self._keep is not None:
            self._keep(rule)

    # ------------------------------------------------------------ for a helper
    def for_helper(self, *, mode: str = "", only: Iterable[str] | None = None, workspace: str = "") -> Permissions:
        """Return a copy with another mode, or limited to calls that rules of `only` speak of: these allow nothing by
        themselves. In another workspace the rules and answers hold for the same places in it, and answers to new
        questions are not stored. An answer that the copy takes is not known here."""
        root = check_workspace(workspace) if workspace else self.workspace
        rules, answers = self._rules, tuple(self._answers)
        if root != self.workspace:
            self._helpers = (*(folder for folder in self._helpers if folder != root), root)[-_HELPERS_MAX:]
            rules, answers = (tuple(self._move_rule(rule, root) for rule in kept) for kept in (rules, answers))
        limits = self._only
        if only is not None:
            limits = tuple(Rule(text, "allow", source="agent", workspace=root, home=self.home) for text in only)
        return Permissions(
            rules,
            mode=mode or self.mode,
            workspace=root,
            home=self.home,
            protected=self._named,
            forbid_modes=self._forbidden_modes,
            extra_folders=self.extra_folders if root == self.workspace else (),
            attended=self.attended,
            keep=self._keep if root == self.workspace else None,
            answers=answers,
            only=limits,
            own_text=self.own_text,
            asks_outside=self.asks_outside,
        )

    def _move_rule(self, rule: Rule, root: str) -> Rule:
        """Return the rule for the same places below another workspace."""
        here = f"{self.workspace.rstrip('/')}/"
        pattern = rule.pattern
        text = rule.text
        if pattern is not None and pattern.startswith(here) and rule.paths:
            text = f"{text.partition('(')[0]}({root.rstrip('/')}/{pattern[len(here) :]})"
        return Rule(text, rule.effect, source=rule.source, workspace=root, home=self.home)


class _Rules(tuple[Rule, ...]):
    """Rules that cover a tool. `by_word` maps the first word of a command line to the rules that name it, in their
    order; None where a rule names no first word."""

    by_word: dict[str, tuple[Rule, ...]] | None

    def __new__(cls, rules: Iterable[Rule]) -> Self:
        tool_rules = super().__new__(cls, rules)
        words = {rule.word for rule in tool_rules}
        named = {word: tuple(rule for rule in tool_rules if rule.word == word) for word in words}
        tool_rules.by_word = named if "" not in words else None
        return tool_rules


class _ToolRules(NamedTuple):
    """The rules that cover one tool, by what they say of it."""

    deny: _Rules
    ask: _Rules
    always: _Rules
    allow: _Rules


def _tool_rules(rules: Sequence[Rule], answers: Sequence[Rule]) -> _ToolRules:
    return _ToolRules(
        deny=_Rules(rule for rule in (*rules, *answers) if rule.effect == "deny"),
        ask=_Rules(rule for rule in rules if rule.effect == "ask"),
        always=_Rules(rule for rule in answers if rule.effect == "allow"),
        allow=_Rules(rule for rule in rules if rule.effect == "allow"),
    )


def _candidates(rules: _Rules, subject: Subject) -> Sequence[Rule]:
    """Return the rules that can match: a rule that names a program is skipped for lines that run other programs
    only."""
    line = subject.line
    words = line.words if line is not None else None
    if words is None:
        return rules
    if rules.by_word is None:
        return [rule for rule in rules if not rule.word or rule.word in words]
    named = rules.by_word.keys() & words
    if len(named) < 2:
        return rules.by_word[named.pop()] if named else ()
    return [rule for rule in rules if rule.word in words]


def _first_match(rules: _Rules, subject: Subject) -> Rule | None:
    for rule in _candidates(rules, subject):
        if rule.speaks_of(subject):
            return rule
    return None


# They change what the commands after them mean; `cd` is looked at by itself.
_CHANGES: Final = words_of(
    ". alias bind builtin command declare enable eval exec export getopts hash let local mapfile popd pushd read"
    " readarray readonly set shift shopt source trap typeset ulimit umask unalias unset"
)
_ENTERS: Final = re.compile(r"cd ([A-Za-z0-9_./@+:-]+)")
_PROGRAM: Final = re.compile(r"[A-Za-z0-9_.+-]+ \*")


def _find_folder(command: str, root: str) -> str | None:
    """Return the folder of the workspace that a `cd` enters; None where it is another one, or not known."""
    match = _ENTERS.fullmatch(command.strip())
    if match is None or match[1].startswith("-"):
        return None
    folder = os.path.realpath(os.path.join(root, match[1]))
    return folder if f"{folder}/".startswith(f"{root.rstrip('/')}/") else None


def _is_answer(rule: Rule, subject: Subject) -> bool:
    """Return whether the rule is an answer that a person gave in advance: for the whole tool, or for exactly this.
    One for many tools (`mcp__files__*`) is an answer where their program is confined, so that nothing can leave by a
    call."""
    return rule.names_tool or rule.names(subject) or (rule.bare and subject.confined and subject.act == "other")


_VERBS: Final[dict[Effect, str]] = {"allow": "allows", "ask": "asks about", "deny": "denies"}


def _decide_by(rule: Rule, subject: Subject, decision: Effect) -> PermissionDecision:
    reason = f"the {decision} rule {rule.text} ({rule.source}) {_VERBS[decision]} this"
    doubt = subject.line.unsure if subject.line is not None else subject.doubt
    if doubt and decision != "allow" and not rule.bare:
        reason = f"{reason}: it cannot be read for certain, because {doubt}"
    return PermissionDecision(decision, rule.text, reason, rule.source)
