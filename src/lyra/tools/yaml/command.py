"""YAML tools of the kind `exec`: one program with its arguments, in the sandbox, without a shell.

The command is a list of words (a text is split into words when the file is read, and never again). A placeholder
is one argument, whatever its value is: no value can add a word. A value that begins with `-` would be read as an option
by the program; it is refused unless the word has a beginning of its own (`--title={{title}}`) or stands after `--`. A
value is never put into a text that a program reads as a language of its own: a word with spaces or quotes around a
placeholder, a script of a shell, and a placeholder or an input that the program would run as code
(`embedded_languages`) are mistakes of the file.

The workspace can be read, and written where the file says `writes: true`; the network is there for the hosts that the
tool's `needs` name, through the proxy of the sandbox, and else not available.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from itertools import takewhile
from typing import Any, Final

from lyra.core.checking.document import Path
from lyra.core.checking.report import Report
from lyra.core.rights.capability import Capability, Grant
from lyra.errors import ToolError
from lyra.sandbox.profile import Profile
from lyra.tools.yaml.embedded_languages import code_problem, values_become_code
from lyra.tools.yaml.environment import ToolEnvironment, declared, narrowed, template
from lyra.tools.yaml.params import Params
from lyra.tools.yaml.template import Template, as_text

KEYS: Final = ("type", "command", "stdin", "writes", "timeout")
USES: Final = ("process.exec", "net.http")
_WORDS_MAX: Final = 200
_ARGUMENT_BYTES_MAX: Final = 100_000
_ERROR_CHARS: Final = 2_000
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./=:,@%+~^-]*\Z")  # what may stand beside a placeholder in a word


class CommandKind:
    untrusted = True
    idempotent = False

    def __init__(
        self,
        environment: ToolEnvironment,
        words: list[Template],
        stdin: str | None,
        timeout_s: float,
        own: Grant,
        commands: Grant | None,
    ) -> None:
        self._commands = commands
        self._environment = environment
        self._words = words
        self._stdin = stdin
        self._timeout_s = timeout_s
        self._own = own

    @property
    def rights(self) -> tuple[Capability, ...]:
        return tuple(cap for cap in self._own.layers[0] if cap.name == "net.http")

    @property
    def commands(self) -> tuple[Capability, ...]:
        """The command lines of all calls: the fixed words before the first value, then anything."""
        fixed = list(takewhile(lambda word: not word.names, self._words))
        line = shlex.join(word.text for word in fixed)
        scopes = [line] if len(fixed) == len(self._words) else [line, f"{line} *"]
        return tuple(Capability("process.exec", scope) for scope in scopes if fixed)

    def needs_of(self, values: Mapping[str, Any]) -> list[Capability]:
        return [Capability("process.exec", shlex.join(self.argv(values)))]

    def argv(self, values: Mapping[str, Any]) -> list[str]:
        """The words of one call. A word with a value that is missing is left out."""
        words: list[str] = []
        given: list[Template] = []
        after_dashes = False
        for word in self._words:
            text = word.fill(values)
            if text is None:
                continue
            if word.names:
                _check(word, text, after_dashes=after_dashes)
            elif text == "--":
                after_dashes = True
            words.append(text)
            given.append(word)
        plain = [word.fill(dict.fromkeys(word.names, "value")) or "" for word in given]
        if plain != words and values_become_code(given, words, plain):
            raise ToolError(f"{words[0]} would interpret the value as a command", reason="invalid_arguments")
        return words

    async def run(self, values: Mapping[str, Any]) -> str:
        if self._commands is not None:
            self._commands.check(self.needs_of(values)[0])
        profile = Profile.of(narrowed(self._own), self._environment.workspace.root)
        given = values.get(self._stdin) if self._stdin is not None else None
        result = await self._environment.sandbox.run(
            self.argv(values),
            profile,
            stdin=None if given is None else as_text(given).encode(),
            timeout_s=self._timeout_s,
        )
        text = result.output.text
        if "wall" in result.limits_hit:
            raise ToolError(f"it took longer than {self._timeout_s:g} s\n{text[-_ERROR_CHARS:]}", reason="timeout")
        if not result.ok:
            why = f"limits: {', '.join(result.limits_hit)}" if result.limits_hit else f"exit code {result.exit_code}"
            raise ToolError(f"{why}\n{text[-_ERROR_CHARS:]}".rstrip(), reason="exec_failed")
        return text


def _check(word: Template, text: str, *, after_dashes: bool) -> None:
    shown = ", ".join(word.names)
    if "\0" in text or len(text.encode()) > _ARGUMENT_BYTES_MAX:
        raise ToolError(f"{shown} cannot be an argument: it is too long or holds a NUL", reason="invalid_arguments")
    if text.startswith("-") and word.begins_with_value and not after_dashes:
        raise ToolError(f"{shown} begins with '-' and would be read as an option", reason="invalid_arguments")


# ---------------------------------------------------------------- reading it from a file
def read_command(
    given: dict[str, Any],
    path: Path,
    params: Params,
    report: Report,
    environment: ToolEnvironment,
    *,
    timeout_s: float,
    needs: list[Capability],
) -> CommandKind | None:
    before = len(report.mistakes)
    words = _words(given.get("command"), (*path, "command"), params, report)
    stdin = _stdin(given.get("stdin"), (*path, "stdin"), params, report)
    writes = report.flag(given.get("writes", False), (*path, "writes"), "writes")
    if words is None:
        return None
    names = dict.fromkeys((*params.names, *(name for word in words for name in word.names)))
    numbers = [name for name in names if params[name].type != "string" or params[name].values is not None]
    problem = code_problem(words, stdin=stdin is not None, numbers=numbers)
    if problem is not None:
        report.add((*path, "command"), *problem)
    if len(report.mistakes) > before:
        return None
    root = environment.workspace.root.rstrip("/")
    rules = [f"fs.read:{root}/**", *([f"fs.write:{root}/**"] if writes else [])]
    hosts, commands = declared(needs, "net.http"), declared(needs, "process.exec")
    own = Grant([*rules, *hosts])
    kind = CommandKind(environment, words, stdin, timeout_s, own, Grant(commands) if commands else None)
    if commands and not any(word.names for word in words):
        need = kind.needs_of({})[0]
        if not Grant(commands).allows(need):
            report.add((*path, "command"), f"the tool's needs do not cover {need}")
            return None
    return kind


def _words(value: Any, path: Path, params: Params, report: Report) -> list[Template] | None:
    if isinstance(value, str):
        try:
            value = _split(value)
        except ValueError as error:
            report.add(path, f"the command cannot be split into words: {error}", "write it as a list of words")
            return None
    if not isinstance(value, list) or not 1 <= len(value) <= _WORDS_MAX:
        report.add(path, f"command is a list of 1 to {_WORDS_MAX} words, such as [git, log, '{{{{ref}}}}']")
        return None
    read = [template(text, (*path, index), params, report, "a word of the command") for index, text in enumerate(value)]
    words = [text for text in read if text is not None]
    for index, word in enumerate(read):
        if word is not None:
            _check_word(word, (*path, index), params, report)
    if len(words) < len(read):
        return None
    program = words[0].text.rpartition("/")[2]
    if words[0].names or not program or program.startswith("-"):
        report.add((*path, 0), "the program is written out, not a value")
    return words


def _split(text: str) -> list[str]:
    """Split into words like a shell; a placeholder with spaces in its braces stays in one word."""
    lexer = shlex.shlex(re.sub(r"\{\{\s*(\.?\w+)\s*\}\}", r"{{\1}}", text), posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _check_word(word: Template, path: Path, params: Params, report: Report) -> None:
    for name in word.names:
        if params[name].type in ("array", "object"):
            report.add(path, f"{name} is a list or a mapping, and one placeholder is one argument")
    if word.names and not _PLAIN.match(word.literal):
        report.add(
            path,
            f"{word.text!r} puts a value into the middle of a text that a program reads",
            "give the value an argument of its own, or stdin",
        )


def _stdin(value: Any, path: Path, params: Params, report: Report) -> str | None:
    if value is None:
        return None
    placeholder = template(value, path, params, report, "stdin")
    if placeholder is not None and placeholder.lone is None:
        report.add(path, "stdin is one value and nothing else: '{{text}}'")
    return placeholder.lone if placeholder is not None else None
