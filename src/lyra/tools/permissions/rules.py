"""Rules: `Tool`, `Tool(pattern)` or `*`, with examples that prove them.

The tool's name is compared without regard to case and may end in `*` (`mcp__github__*`). What the pattern means
depends on the tool: a path glob for file tools (`Edit(src/**)`; without a `/` it matches at any depth), a host or a
URL for those that fetch (`WebFetch(docs.python.org)`, `WebFetch(https://*.example.com/api/*)`), a text glob for
command lines (`Bash(git push *)`) and for the one text of any other tool. A JSON object is for an unknown tool: it
represents exactly those arguments, all of them (`pay({"amount":1,"to":"bob"})`). A rule for `Edit` covers every tool
that writes files, one for `Read` every tool that reads them.

Only the name of a tool alone, and `*`, speak of whole tools. A pattern of stars (`Bash(*)`) matches every call and is
still a pattern; for a file tool an allow of that form (`Read(*)`, `Edit(**)`) covers the workspace and no file outside.

A rule may carry `match` and `not_match`: examples that are tried when it is read. A rule whose own examples fail is an
error that names its place, not a surprise later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from lyra.core.checking.check import check_keys
from lyra.core.limits import RULE_LENGTH_MAX
from lyra.core.rights.scope import Glob
from lyra.errors import ConfigError
from lyra.tools.permissions.subjects import (
    FAMILIES,
    GIT,
    Subject,
    absolute,
    facts_of,
    subject_of,
    to_canonical_json,
    to_git_line,
)
from lyra.tools.shell.text_glob import TextGlob

Effect = Literal["allow", "ask", "deny"]
_FORM: Final = re.compile(r"(\*|[A-Za-z_][A-Za-z0-9_-]*\*?)(?:\((.*)\))?", re.DOTALL)
_URL_FORM: Final = re.compile(r"(?:([a-z*]+)://)?([^/:?]*)(?::([0-9]+|\*))?([/?].*)?", re.DOTALL)
_DOMAIN: Final = "domain:"


class Rule:
    """One rule. `bare`: it has no pattern. `names_tool`: it is one tool's name alone, or `*`; such an allow counts as
    an answer for whatever the tool does."""

    def __init__(
        self, text: Any, effect: Effect, *, source: str = "flags", workspace: str = "/", home: str = ""
    ) -> None:
        form = _FORM.fullmatch(text.strip()) if isinstance(text, str) and len(text) <= RULE_LENGTH_MAX * 64 else None
        if form is None:
            raise ConfigError(
                f"{str(text)[:80]!r} is not a rule",
                hint="write Tool, Tool(pattern) or *",
                place=source,
                rule=str(text)[:80],
            )
        self.text = text.strip()
        self.effect = effect
        self.source = source
        self.tool = form[1].lower()
        self.pattern = form[2]
        self._family = FAMILIES.get(self.tool, frozenset())
        self._glob: TextGlob | None = None
        self._words: TextGlob | None = None
        self._whole: tuple[str, str] | None = None  # the tool, as it is written, and all its arguments
        self.word = ""  # for command lines: the first word of all that it can match, where there is one
        self._paths: tuple[Glob, ...] = ()
        self._url: tuple[TextGlob, Glob, str | None, TextGlob] | None = None
        self._address = ""  # for a rule about URLs: the pattern, which may be one whole URL
        if self.pattern is not None and not self.pattern.strip():
            raise ConfigError(
                f"the rule {self.text!r} has an empty pattern",
                hint=f"write {form[1]} for every call of it",
                place=source,
            )
        if self.pattern is not None and self.tool.endswith("*"):
            raise ConfigError(
                f"the rule {self.text!r} has a pattern for many tools", hint="name one tool", place=source
            )
        self.bare = self.pattern is None
        self.names_tool = self.bare and (self.tool == "*" or not self.tool.endswith("*"))
        self._every = self.bare or not str(self.pattern).strip("* ")  # it matches every call of the tool
        self.exact = False
        if not self._every:
            self._compile(str(self.pattern), workspace, home)

    def _compile(self, pattern: str, workspace: str, home: str) -> None:
        kind = facts_of(self.tool).kind
        whole = _read_json_arguments(pattern)
        if whole is not None:
            self._whole = (self.text.partition("(")[0], whole)
            self.exact = True
        if kind == "text":
            self._glob = TextGlob(pattern.strip())
            self.exact = self.exact or self._glob.literal
        elif whole is not None:
            return  # it matches foreign tools of that name only
        elif kind == "path":
            self._paths = tuple(Glob(path_pattern, "/") for path_pattern in _path_patterns(pattern, workspace, home))
            self.exact = all(path_pattern.literal for path_pattern in self._paths)
        elif kind == "url":
            self._url = _url_pattern(pattern, self)
            self._address = pattern.strip().removeprefix(_DOMAIN)
        elif kind == "none":
            raise ConfigError(
                f"the rule {self.text!r} has a pattern, but {facts_of(self.tool).name} has nothing to compare",
                hint=f"write {facts_of(self.tool).name}",
                place=self.source,
            )
        else:
            text = to_git_line(pattern) if self.tool == GIT.lower() else pattern.strip()
            text = text[:-2] + " *" if text.endswith(":*") else text
            self._glob = TextGlob(text)
            self.exact = self._glob.literal
            self.word = self._glob.word
            if self.effect != "allow" and self.exact and " " not in text:
                self._words = TextGlob(f"{text} *")  # a deny of `rm` is meant with any arguments

    @property
    def paths(self) -> tuple[str, ...]:
        """For a rule about files: its absolute globs."""
        return tuple(path_pattern.text for path_pattern in self._paths)

    @property
    def host(self) -> str | None:
        """For a rule about URLs: its hosts as the scope of a capability; None for every host."""
        if self._url is None:
            return None
        _, host, port, _ = self._url
        return f"{host.text}:{port}" if port not in (None, "*") else host.text

    @property
    def whole_host(self) -> bool:
        """For a rule about URLs: whether it matches any path and scheme of its hosts."""
        return self._url is None or all(part.text == "*" for part in (self._url[0], self._url[3]))

    def covers_tool(self, tool: str) -> bool:
        name = tool.lower()
        if self.tool.endswith("*"):
            return name.startswith(self.tool[:-1])
        if name == GIT.lower() and self.tool == "bash" and not self.bare and self.effect != "allow":
            return True  # who denies `Bash(git push *)` means every push
        return name == self.tool or name in self._family

    def matches(self, subject: Subject) -> bool:
        """Return whether the rule matches this call. In doubt a deny and an ask match, an allow does not."""
        return self.covers_tool(subject.tool) and self.speaks_of(subject)

    def names(self, subject: Subject) -> bool:
        """Return whether the rule matches exactly this call; for an unknown tool: names all its arguments; for a URL:
        is that URL, character by character, since a path, a query or a way to write them can carry data."""
        if subject.kind == "url":
            return self._is_url(subject)
        return self.exact and (subject.kind != "text" or subject.alone or self._whole is not None)

    def at_any_depth(self, subject: Subject) -> str:
        """Return a remark for a decision's reason: a name without a folder matches at any depth, a path names one
        file."""
        pattern = (self.pattern or "").strip()
        if subject.kind != "path" or "/" in pattern or "*" in pattern or "?" in pattern:
            return ""
        name = self.text.partition("(")[0]
        return f": {self.text} means it in any folder, {name}(./{pattern}) only here"

    def speaks_of(self, subject: Subject) -> bool:
        """As `matches`, where the rule is known to cover the tool."""
        line = subject.line
        if line is not None and self._glob is not None:
            if self.effect == "allow":
                return subject.doubt is None and line.is_allowed_by(self._glob)
            return line.is_touched_by(self._glob) or (self._words is not None and line.is_touched_by(self._words))
        if self._every:
            if self.effect != "allow":
                return True
            if not self.bare and (subject.doubt is not None or (subject.kind == "path" and not subject.inside)):
                return False
            # Whether the rule covers the tool only as a member of a family; a foreign tool of that name is no member.
            return subject.act != "other" or subject.tool.lower() not in self._family
        if self._whole is not None:
            if (subject.tool, subject.whole) == self._whole:
                return True
            if self.effect == "allow":
                return False
        if subject.doubt is not None:
            return self.effect != "allow"
        if subject.value is None:
            return False
        if self._paths:
            return any(pattern.matches(subject.value) for pattern in self._paths)
        if self._url is not None:
            return subject.url is not None and (self._matches_url(subject) or self._is_url(subject))
        return self._glob is not None and self._glob.matches(subject.value)

    def _is_url(self, subject: Subject) -> bool:
        """Return whether the rule is this very URL; it may leave out the scheme. The part after `#` is not sent."""
        sent = (subject.value or "").partition("#")[0]
        return bool(self._address) and self._address in (sent, sent.partition("://")[2])

    def _matches_url(self, subject: Subject) -> bool:
        url = subject.url
        assert url is not None
        assert self._url is not None
        scheme, host, port, path = self._url
        if not scheme.matches(url.scheme) or not host.matches(url.host) or not path.matches(url.path):
            return False
        # No port in the rule: the scheme's own for an allow, any for a deny.
        if port is None:
            return url.port is None or self.effect != "allow"
        return port == "*" or port == str(url.port if url.port is not None else {"http": 80}.get(url.scheme, 443))

    def check_examples(self, match: Sequence[str], not_match: Sequence[str], *, workspace: str, home: str) -> None:
        """Try the rule on its own examples; each is what the pattern is compared with."""
        for examples, wanted, verb in ((match, True, "does not match"), (not_match, False, "matches")):
            for example in examples:
                facts = facts_of(self.tool)
                arguments = {facts.argument or "text": example}
                if self.matches(subject_of(facts.name, arguments, workspace=workspace, home=home)) is not wanted:
                    raise ConfigError(
                        f"the rule {self.text!r} {verb} its own example {example!r}",
                        hint="change the pattern or the example",
                        place=self.source,
                        rule=self.text,
                    )


def read_rules(value: Any, effect: Effect, *, source: str, workspace: str = "/", home: str = "") -> list[Rule]:
    """Rules as settings write them: texts, or mappings with `rule`, `match` and `not_match`."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"{effect} is a list of rules, not {value!r}", place=source, key=effect)
    rules = []
    for entry in value:
        match: Any = ()
        not_match: Any = ()
        if isinstance(entry, Mapping):
            try:
                check_keys(entry, ("rule", "match", "not_match"), "a rule")
            except ConfigError as error:
                error.place = source
                raise
            match, not_match = _examples(entry, "match", source), _examples(entry, "not_match", source)
        text = entry.get("rule") if isinstance(entry, Mapping) else entry
        rule = Rule(text, effect, source=source, workspace=workspace, home=home)
        rule.check_examples(match, not_match, workspace=workspace, home=home)
        rules.append(rule)
    return rules


def _read_json_arguments(pattern: str) -> str | None:
    """All arguments of a call, where the pattern is a JSON object."""
    if not pattern.startswith("{"):
        return None
    try:
        return to_canonical_json(json.loads(pattern))
    except (ValueError, RecursionError):
        return None


def _examples(entry: Mapping[str, Any], key: str, source: str) -> list[str]:
    value = entry.get(key, ())
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, (list, tuple)) or not all(isinstance(example, str) for example in value):
        raise ConfigError(f"{key} is a list of examples, not {value!r}", place=source, key=key)
    return list(value)


def _path_patterns(pattern: str, workspace: str, home: str) -> list[str]:
    """Absolute globs. A name without a folder is meant at any depth, and so is all that is in a folder of that name."""
    pattern = pattern.strip()
    root = workspace.rstrip("/")
    if "/" not in pattern and pattern != "~":
        return [f"{root}/**/{pattern}", f"{root}/**/{pattern}/**"]
    path = absolute(pattern, workspace=workspace, home=home)
    return [path, f"{path}**"] if pattern.endswith("/") else [path]


def _url_pattern(pattern: str, rule: Rule) -> tuple[TextGlob, Glob, str | None, TextGlob]:
    text = pattern.strip().removeprefix(_DOMAIN)
    form = _URL_FORM.fullmatch(text.lower() if "://" not in text else _lower_host(text))
    if form is None or not form[2]:
        raise ConfigError(
            f"the rule {rule.text!r} names no host", hint="write a host or https://host/path", place=rule.source
        )
    path = form[4] or "*"
    host = form[2].rstrip(".")
    return (
        TextGlob(form[1] or "*"),
        Glob("**" if host == "*" else host, "."),
        form[3],
        TextGlob(path if path != "/" else "*"),
    )


def _lower_host(text: str) -> str:
    scheme, _, rest = text.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.rpartition('@')[2].lower()}{slash}{path}"
