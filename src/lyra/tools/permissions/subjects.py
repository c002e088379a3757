"""What a call is about: the one argument that the patterns of rules are compared with.

`subject_of(tool, arguments, workspace=…)` finds the command of a `Bash`, the path of an `Edit`, the URL of a
`WebFetch`, in the one form that rules compare; `TOOLS` is the table. Paths are made absolute and `..` is taken out by
name alone: for a real file the caller resolves the links first and passes the resolved path.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.tools.shell.command_line import CommandLine


Kind = Literal["command", "path", "url", "text", "none"]
Act = Literal["read", "write", "run", "fetch", "talk", "other"]


class ToolFacts(NamedTuple):
    """How the calls of one tool are read. `act` says what it does to the world; `talk` does nothing to it."""

    name: str
    kind: Kind
    argument: str
    act: Act


TOOLS: Final[dict[str, ToolFacts]] = {
    facts.name.lower(): facts
    for facts in (
        ToolFacts("Read", "path", "file_path", "read"),
        ToolFacts("Glob", "path", "path", "read"),
        ToolFacts("Grep", "path", "path", "read"),
        ToolFacts("Write", "path", "file_path", "write"),
        ToolFacts("Edit", "path", "file_path", "write"),
        ToolFacts("MultiEdit", "path", "file_path", "write"),
        ToolFacts("NotebookEdit", "path", "notebook_path", "write"),
        ToolFacts("Bash", "command", "command", "run"),
        ToolFacts("Git", "command", "command", "run"),
        ToolFacts("WebFetch", "url", "url", "fetch"),
        ToolFacts("TodoWrite", "none", "", "talk"),
        ToolFacts("AskUser", "none", "", "talk"),
        ToolFacts("Remember", "none", "", "talk"),
        ToolFacts("Recall", "none", "", "talk"),
        ToolFacts("ToolSearch", "none", "", "talk"),
        ToolFacts("Task", "none", "", "talk"),  # what its sub-agent does is decided call by call
        ToolFacts("Skill", "none", "", "talk"),
        ToolFacts("BashOutput", "none", "", "talk"),
        ToolFacts("KillShell", "none", "", "talk"),
    )
}
GIT: Final = "Git"
GIT_WIDENS: Final = ("hooks", "obeyed")  # arguments of Git by which it does more than its command says
# A rule for the first tool covers the others too: a deny of Edit denies writing the file as a whole.
FAMILIES: Final[dict[str, frozenset[str]]] = {
    "edit": frozenset({"write", "multiedit", "notebookedit"}),
    "read": frozenset({"glob", "grep"}),
}
# Tools that run or fetch are never allowed without a rule, so a foreign tool with such a name is read like Lyra's own.
_STRICT: Final = ("run", "fetch")
_PORTS: Final = {"http": 80, "https": 443}
_BAD_IN_URL: Final = re.compile(r"[\x00-\x20\x7f\\]")


class CanonicalUrl(NamedTuple):
    """A URL in the form in which two that mean the same are equal."""

    scheme: str
    host: str
    port: int | None
    path: str


class Subject(NamedTuple):
    """One call, as rules see it. `value` is None where the call has nothing to compare."""

    tool: str
    kind: Kind
    act: Act
    value: str | None = None
    url: CanonicalUrl | None = None
    line: CommandLine | None = None
    doubt: str | None = None  # why the value cannot be read for certain: every deny applies, no allow with a pattern
    inside: bool = False  # for a path: within the workspace
    called: str = ""  # for a path that was resolved: how the call names it; a link may have a protected name, too
    workspace: str = ""
    alone: bool = False  # `value` is the only argument
    whole: str | None = None  # for an unknown tool: all its arguments as canonical JSON
    confined: bool = False  # nothing can leave by the call: the program that runs it has no network
    held: bool | None = None  # for a command of Lyra's own tools: a sandbox holds it; False: none works here
    reads: bool = False  # the command only reads, and can do nothing else
    reaches: str = ""  # the addresses that a command with a network reaches


def facts_of(tool: str) -> ToolFacts:
    return TOOLS.get(tool.lower()) or ToolFacts(tool, "text", "", "other")


def subject_of(
    tool: str,
    arguments: Mapping[str, Any],
    *,
    workspace: str = "/",
    home: str = "",
    path: str | None = None,
    extra_folders: Iterable[str] = (),
    known: bool = True,
) -> Subject:
    """Return the subject of one call. `path` is the resolved path of a file tool's argument, if the caller resolved it;
    what lies in one of `extra_folders` counts as inside, like the workspace. A tool that is not `known` is not Lyra's
    own: of the table's row for its name only those facts count that make a call harder to allow."""
    facts = facts_of(tool)
    if facts.act == "other" or (not known and facts.act not in _STRICT):
        doubt = f"it is not Lyra's own {facts_of(tool).name}" if (facts.act != "other") else None
        value, alone = _only_text(arguments), len(arguments) == 1
        return Subject(tool, "text", "other", value, doubt=doubt, alone=alone, whole=to_canonical_json(arguments))
    if facts.kind == "none":
        return Subject(facts.name, facts.kind, facts.act)
    value = arguments.get(facts.argument)
    if facts.kind == "path":
        subject = _path_subject(facts, path if path is not None else value, workspace, home, extra_folders)
        if path is None or not isinstance(value, str):
            return subject
        return subject._replace(called=absolute(value, workspace=workspace, home=home))
    if value is None or not isinstance(value, str):
        return Subject(facts.name, facts.kind, facts.act, doubt="it names nothing")
    if facts.kind == "url":
        url = read_url(value)
        doubt = None if url else "the URL cannot be read for certain"
        return Subject(facts.name, "url", facts.act, value, url=url, doubt=doubt)
    from lyra.tools.shell.command_line import read_line  # imported when there is a line to read

    if facts.name == GIT:
        value = to_git_line(value)
        wide = [f"it is called with {name}" for name in GIT_WIDENS if arguments.get(name)]
        if wide:  # a rule with a pattern does not cover it, and no rule can say it
            return Subject(facts.name, facts.kind, facts.act, value, line=read_line(value), doubt=wide[0])
    return Subject(facts.name, facts.kind, facts.act, value, line=read_line(value))


def to_git_line(command: str) -> str:
    """Return the whole line of a call of Git, which is written with or without its first word."""
    text = command.strip()
    return text if text.startswith(("git ", "gh ")) else f"git {text}"


def to_canonical_json(arguments: Mapping[str, Any]) -> str | None:
    """All arguments as canonical JSON, so that equal arguments give equal texts. None if they are not JSON."""
    try:
        whole = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        whole.encode()  # fails for half of a surrogate pair
    except (TypeError, ValueError, RecursionError):
        return None
    return whole


def _only_text(arguments: Mapping[str, Any]) -> str | None:
    """Return what a pattern for an unknown tool is compared with: its one argument that is a text."""
    texts = [value for value in arguments.values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 else None


def _path_subject(facts: ToolFacts, value: Any, workspace: str, home: str, extra_folders: Iterable[str]) -> Subject:
    if value is None and facts.argument == "path":
        value = workspace
    if not isinstance(value, str) or not value or "\0" in value:
        return Subject(facts.name, "path", facts.act, doubt="it names no path", workspace=workspace)
    path = absolute(value, workspace=workspace, home=home)
    inside = any(path == root or path.startswith(root.rstrip("/") + "/") for root in (workspace, *extra_folders))
    return Subject(facts.name, "path", facts.act, path, inside=inside, workspace=workspace)


def absolute(path: str, *, workspace: str, home: str = "") -> str:
    """Return the path by name alone: `~` is the home, relative paths start at the workspace, `.` and `..` are
    resolved."""
    if home and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    path = posixpath.normpath(posixpath.join(workspace, path))
    return "/" + path.lstrip("/")


def read_url(text: str) -> CanonicalUrl | None:
    """Return the URL without credentials, default port, trailing dot and dot segments; None when two readers may
    differ."""
    if _BAD_IN_URL.search(text) or not text.isascii():
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    host = (parts.hostname or "").rstrip(".")
    scheme = parts.scheme.lower()
    if not host or not scheme or "%" in host or parts.netloc.count("@") > 1:
        return None
    path = unquote(parts.path)
    if "\\" in path or any(ord(char) < 0x20 for char in path):
        return None
    path = posixpath.normpath("/" + path.lstrip("/")) if path else "/"
    query = f"?{parts.query}" if parts.query else ""
    return CanonicalUrl(scheme, host.lower(), None if port == _PORTS.get(scheme) else port, path + query)


_PACKAGES: Final = re.compile(
    r"(?:^|[\s/'\"=:])(?:node_modules|site-packages|dist-packages|bower_components|\.tox|\.?venv|vendor|third_party"
    r"|\.cargo|\.rustup|\.nvm|\.pyenv|\.cache)(?=/(?!(?:\.bin|bin)/)|[\s'\"]|$)"
)


def names_packages(text: str) -> bool:
    """Return whether a path, a command line or a list of paths names a folder of installed packages; their programs are
    run and not read."""
    return _PACKAGES.search(text) is not None


def check_workspace(path: str) -> str:
    if not path.startswith("/"):
        raise ConfigError(f"a workspace is an absolute path, not {path!r}", key="workspace")
    return posixpath.normpath(path)
