"""Scopes: how the part of a capability behind the colon is read, kind by kind.

    path     `/project/**`            absolute, normalised; `..` is never resolved here, only refused
    host     `*.stripe.com:443`       case does not matter; without a port, every port
    command  `pytest`, `git log *`    a program with any arguments, an exact line, or a line ending in ` *`
    dotted   `orders.created.**`      event types, tables
    plain    `stripe_api_key`, `a/*`  anything else

Owns the normal form of each kind, the reason why a scope cannot be trusted (`problem`), its pattern, and the
commands that a shell line may start. Grants and rules are in `capability`, matching in `glob`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from lyra.core.rights.glob import BARRIER, Glob

EVERYTHING: Final = "**"

# Kinds of scope and what separates their segments.
SEPARATORS: Final = {"path": "/", "host": ".", "command": " ", "dotted": ".", "plain": "/"}

# In a requested command these may start a second command or redirect to a file, so no wildcard may match them.
SHELL: Final = frozenset(";|&$`><()\n\r")


def _normal_path(scope: str) -> str:
    if scope == EVERYTHING:
        return scope
    if scope.startswith("**/"):
        scope = "/" + scope
    parts = [part for part in scope.split("/") if part not in ("", ".")]
    return "/" + "/".join(parts) if scope.startswith("/") else scope


def _normal_host(scope: str) -> str:
    if not scope.isascii():  # lower() would turn some letters into ASCII ones; `problem` refuses the unchanged scope
        return scope
    host, port = _split_port(scope.lower())
    host = host.rstrip(".") or host
    return f"{host}:{port}" if port != "*" else host


def _normal_command(scope: str) -> str:
    if " " not in scope and "\t" not in scope:
        return scope
    return " ".join([word for word in scope.replace("\t", " ").split(" ") if word])


def _split_port(scope: str) -> tuple[str, str]:
    """A host and its port pattern; no port means every port. `[::1]:443` keeps its brackets with the host."""
    host_end = scope.find("]") + 1 if scope.startswith("[") else 0
    if scope.count(":", host_end) != 1 or (scope.startswith("[") and not host_end):
        return scope, "*"
    host, _, port = scope[host_end:].partition(":")
    return scope[:host_end] + host, port or "*"


_NORMAL: Final[dict[str, Callable[[str], str]]] = {
    "path": _normal_path,
    "host": _normal_host,
    "command": _normal_command,
    "dotted": str,
    "plain": str,
}


def normal(kind: str, scope: str) -> str:
    return _NORMAL[kind](scope)


def problem(kind: str, scope: str) -> str | None:
    """Why the meaning of a scope is not certain, or None. Such a request is denied and such a rule refused."""
    if BARRIER in scope:
        return "it contains a NUL character"
    if kind == "path" and scope != EVERYTHING:
        if not scope.startswith("/"):
            return "the path is not absolute"
        if ".." in scope.split("/"):
            return "the path contains '..'"
    if kind == "host":
        if not scope.isascii():
            return "the host is not in ASCII (write its punycode form)"
        if not _HOST.issuperset(scope):
            return "it is not a host name or a host and a port"
        if scope.count(":") > 1 and not scope.startswith("["):
            return "an IPv6 address is written in brackets"
    return None


_HOST: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.:[]*?")


def pattern_of(kind: str, scope: str, *, rule: bool) -> Glob:
    """The scope as a pattern. Only as a rule does a program's name alone stand for any arguments."""
    if kind == "host":
        host, port = _split_port(scope)
        scope = f"{host}{BARRIER}{port}"
    elif kind == "command":
        words = scope.split(" ")
        if words[-1] == "*" and len(words) > 1:
            words[-1] = EVERYTHING
        elif rule and len(words) == 1 and not SHELL.intersection(scope):
            words.append(EVERYTHING)
        scope = " ".join(words)
    return Glob(scope, SEPARATORS[kind])


# A word that a shell leaves unchanged, except for quotes: without braces, and with all quotes closed.
_WORD: Final = re.compile(r"""(?:[^\s'"\\{]|\{\}|'[^']*'|"(?:[^"\\]|\\.)*"|\\.)+""")
_QUOTING: Final = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)""", re.DOTALL)
_FILE_WILDCARDS: Final = frozenset("*?[")


def named_in(line: str) -> str | None:
    """The beginning of a line that a rule with a wildcard has to name: `git -C sub`, `timeout 5 make`; often "".

    None when the line is not one simple command whose words are certain: then only a rule with the same text allows it.
    """
    if SHELL.intersection(line) or line == EVERYTHING:
        return None if line != EVERYTHING else ""
    raw = line.split(" ") if not _QUOTES_OR_BRACES.intersection(line) else _WORD.findall(line)
    if " ".join(raw) != line:
        return None
    from lyra.core.commands.programs import INERT, can_reach, named_words  # large tables; many programs run no command

    words = [_QUOTING.sub(lambda quoted: quoted[1] or quoted[2] or quoted[3] or "", word) for word in raw]
    name = words[0].rpartition("/")[2]
    for index, word in enumerate(raw[:-1] if raw[-1] in ("*", EVERYTHING) else raw):
        if word == "--" and name == "git":
            break
        known = re.split(r"[*?[]", word, maxsplit=1)[0]
        if len(known) == len(word) or name in INERT or words[index] != word:
            continue  # no file wildcard, or one in quotes, or a program without options that matter
        if known[:1] in ("", "-") or (can_reach(name) and "/" not in known):
            return None
    return " ".join(words[: named_words(words)])


_QUOTES_OR_BRACES: Final = frozenset("\"'\\{")


def commands_in(line: str) -> list[str]:
    """The commands that a shell might start: split at every operator, unquoted, with and without the program's
    folder."""
    split = "".join("\n" if char in SHELL else char for char in line)
    commands: list[str] = []
    for part in split.split("\n"):
        words = part.replace('"', "").replace("'", "").replace("\\", "").split()
        while words and "=" in words[0]:  # NAME=value before a program
            words = words[1:]
        if words:
            commands += (" ".join(words), " ".join([words[0].rpartition("/")[2], *words[1:]]))
    return list(dict.fromkeys(command for command in commands if command))
