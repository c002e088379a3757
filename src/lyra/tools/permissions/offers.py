"""The rules that an answer for good may become: for exactly this call, or for more of its kind.

`offer_rules(subject)` gives those of an `always`, the narrowest first: the exact call, then the beginning of a command
and its program (in a pipe or list too), the folder of a file, the host of a page. A person picks one; none of them
covers more than it says. `render_refusal` is the rule of a `never`.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Final

from lyra.core.commands.programs import runs_its_words
from lyra.errors import ConfigError
from lyra.tools.permissions.subjects import GIT, Subject

if TYPE_CHECKING:
    from lyra.tools.shell.command_line import CommandLine

_SUBCOMMAND: Final = re.compile(r"[a-z][a-z0-9-]*")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:@+-]+")
_STEPS: Final = frozenset({"run", "compose", "-m", "pr", "issue"})  # the word after them is part of what is done
_WILD: Final = frozenset("*?\\")


def offer_rules(subject: Subject) -> list[str]:
    """Return the rules that an `always` may become, the exact one first; none where no rule can say the call."""
    try:
        return [render_exact(subject), *_wider(subject)]
    except ConfigError:
        return []


def _wider(subject: Subject) -> list[str]:
    line = subject.line
    if line is not None:
        beginnings = _beginnings((line.single or "").split()) if not line.parts else _find_beginnings(subject, line)
        if subject.tool == GIT:
            beginnings = [text.removeprefix("git ") for text in beginnings if text not in ("git", "gh")]
        return [f"{subject.tool}({text} *)" for text in beginnings]
    if subject.kind == "path" and subject.inside and subject.value is not None:
        folder = posixpath.dirname(subject.value)
        is_below = folder.startswith(f"{subject.workspace.rstrip('/')}/")
        return [f"{subject.tool}({folder}/**)"] if is_below and not _WILD.intersection(folder) else []
    if subject.url is not None and subject.url.host:
        return [f"{subject.tool}({subject.url.host})"]
    return []


def _find_beginnings(subject: Subject, line: CommandLine) -> list[str]:
    """Return the beginnings of the commands in a pipe or list that need a rule; the caller leaves out those which do
    not allow all of it."""
    needed = (part.line for part in line.parts if not (subject.held and part.line.reads_only))
    return list(dict.fromkeys(text for own in needed for text in _beginnings((own.single or "").split())))


def _beginnings(words: list[str]) -> list[str]:
    """Return the program with its subcommand, and the program; not of a program that runs any words after it."""
    if not words or runs_its_words(words[0]) or not _PLAIN.fullmatch(words[0]):
        return []
    count = 1
    if len(words) > 1 and (_SUBCOMMAND.fullmatch(words[1]) or words[1] in _STEPS):
        count = 3 if words[1] in _STEPS and len(words) > 2 and _PLAIN.fullmatch(words[2]) else 2
    return [" ".join(words[:count]), words[0]] if count > 1 else [words[0]]


def render_exact(subject: Subject) -> str:
    """Return the rule that covers this call and no other."""
    if subject.kind == "none":
        return subject.tool
    if subject.kind == "text" and subject.whole is not None:
        return f"{subject.tool}({subject.whole})"
    if subject.kind == "text" or subject.value is None:
        raise ConfigError(f"this {subject.tool} names nothing that a rule could say", hint="answer for this once")
    if subject.kind == "url":
        if "*" in subject.value:
            raise ConfigError(f"{subject.value[:80]!r} cannot be the URL of a rule", hint="answer for this once")
        return f"{subject.tool}({subject.value.partition('#')[0]})"
    if subject.kind == "path":
        if any(char in subject.value for char in "*?") or subject.value != subject.value.strip():
            raise ConfigError(f"{subject.value!r} cannot be the path of a rule", hint="answer for this once")
        return f"{subject.tool}({subject.value})"
    escaped = re.sub(r"([*?\\])", r"\\\1", subject.value.strip())
    return f"{subject.tool}({escaped.removeprefix('git ') if subject.tool == GIT else escaped})"


def render_refusal(subject: Subject) -> str:
    """Return the rule of a `never`: for a URL all of its host, which otherwise could be asked for with another path."""
    url = subject.url
    if url is None:
        return render_exact(subject)
    return f"{subject.tool}({url.scheme}://{url.host}{f':{url.port}' if url.port else ''}/*)"
