"""YAML tools of the kind `exec`: one program with its arguments, in the sandbox, without a shell.

The command is a list of words (a text is split into words when the file is read, and never again). A placeholder
is one argument, whatever its value is: no value can add a word. A value that begins with `-` would be read as an option
by the program; it is refused unless the word has its own beginning (`--title={{title}}`) or stands after `--`. A
value is never put into a text that a program reads as its own language: a word with spaces or quotes around a
placeholder, a script of a shell, and a placeholder or an input that the program would run as code
are mistakes of the file.

The workspace can be read, and written where the file says `writes: true`; the network is there for the hosts that the
tool's `needs` name, through the proxy of the sandbox, and else not available.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from lyra.core.checking.check import Report
from lyra.core.checking.document import Path
from lyra.core.commands.option_reach import OptionReach, count_own_words, words_of
from lyra.core.commands.options import OPTIONS
from lyra.core.commands.programs import GREEDY, OTHER_SHELLS, SHELLS, program_name, reaches
from lyra.core.rights.capability import Capability, Grant
from lyra.errors import ToolError
from lyra.sandbox.profile import Profile
from lyra.tools.shell.stdin_programs import STDIN_PROGRAMS
from lyra.tools.yaml.template import (
    DeclaredTool,
    Params,
    Template,
    ToolEnvironment,
    as_text,
    narrow_grant,
    select_needs,
    template,
)

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
        """Return the words of one call. A word with a value that is missing is left out."""
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
        profile = Profile.of(narrow_grant(self._own), self._environment.workspace.root)
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
def read_command(declared: DeclaredTool) -> CommandKind | None:
    given, path, params, report, environment, timeout_s, needs = declared
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
    hosts, commands = select_needs(needs, "net.http"), select_needs(needs, "process.exec")
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


# ---------------------------------------------------------------- embedded languages
# Words and input that a program reads as its own language: sed, awk, sqlite3, `git -c`, `python -c` …

_SHELLS: Final = SHELLS | OTHER_SHELLS
# Programs that run what their arguments name: with a value among those, it is not known what runs.
_RUNNERS: Final = frozenset(
    {"env", "xargs", "sudo", "doas", "su", "nohup", "nice", "timeout", "setsid", "stdbuf", "busybox", "eval", "ssh"}
    | {"coreutils", "run-parts"}
) | (GREEDY - {"ip", "fd", "fdfind", "nc", "ncat", "uv", "ts"})
_BEFORE_PROGRAM: Final = frozenset({"poetry", "pipenv", "hatch", "pdm", "rye", "conda", "mamba", "bundle", "uv"})
_SCRIPT: Final = re.compile(r"-[A-Za-z]*c[A-Za-z]*\Z")
_PLAIN_VALUES: Final = ("value", "1", "p", "5p")
_CODE: Final = (
    *("other", "!x", "1e x", "1e", "s/x/x/e", 'BEGIN{system("x")}', ".shell x", "select edit('a','b')"),
    *("import os; os.system('x')", 'system("x")', "require('child_process')", "`x`"),
)
_LOADS: Final = {"perl": "Mm", "ruby": "r", "node": "r", "nodejs": "r", "lua": "l", "luajit": "l"}  # a module
_SQLITE_FLAGS: Final = words_of(
    "-readonly -safe -json -csv -header -noheader -line -column -batch -bail -markdown -table -box -list -html"
)
# With this option a program's code can run and write nothing.
_HARMLESS_BY: Final = {"sqlite3": "-safe", "sed": "--sandbox", "gawk": "--sandbox"}


def code_problem(words: Sequence[Template], *, stdin: bool, numbers: Collection[str]) -> tuple[str, str] | None:
    """Return how a value could become code in this command, with a hint; None if it cannot. `numbers` are the
    parameters that are not free text: their values hold no code."""
    words = [word if {*word.names} - {*numbers} else Template(_fill(word, "1")) for word in _without_runner(words)]
    name = program_name(words[0].text)
    if not stdin and not any(word.names for word in words):
        return None
    if name in _RUNNERS:
        return f"{name} runs what its arguments name, and one of them is a value", "name the program itself"
    shell = next((index for index, word in enumerate(words) if _is_shell(words, index)), None)
    if shell is not None and _could_be_script(words[shell:], stdin=stdin):
        name = program_name(words[shell].text)
        return f"a value could be a script of {name}", "name the program itself: there is no shell"
    safe = _HARMLESS_BY.get(name)
    if safe is not None and any(word.text == safe for word in takewhile(lambda word: not word.names, words)):
        return None
    if (
        (stdin and _runs_stdin(name, words))
        or _is_script(name, words)
        or any(_is_code(name, words, index) for index in range(1, len(words)))
    ):
        hint = f"{name} {safe} runs nothing" if safe else "give the value where it is data, after a script of your own"
        return f"a value could be code of {name}", hint
    return None


def values_become_code(words: Sequence[Template], argv: Sequence[str], plain: Sequence[str]) -> bool:
    """Return whether the values of a call make a program do more than it does with harmless ones, as in `plain`."""
    skipped = len(words) - len(_without_runner(words))
    return bool(_beyond(argv[skipped:]) - _beyond(plain[skipped:]))


def _beyond(argv: Sequence[str]) -> set[OptionReach]:
    return set(reaches(argv)) if argv else set()


def _without_runner(words: Sequence[Template]) -> Sequence[Template]:
    """`poetry run pytest …` is a call of pytest."""
    runs = len(words) > 2 and program_name(words[0].text) in _BEFORE_PROGRAM and words[1].text in ("run", "exec")
    return words[2:] if runs and not words[2].names and words[2].text[:1] != "-" else words


def _is_shell(words: Sequence[Template], index: int) -> bool:
    """Return whether this word is a shell: the program, or a later word if a script follows: `docker exec c sh -c
    …`."""
    if words[index].names or program_name(words[index].text) not in _SHELLS:
        return False
    return index == 0 or any(not word.names and _SCRIPT.match(word.text) for word in words[index + 1 :])


def _could_be_script(words: Sequence[Template], *, stdin: bool) -> bool:
    index = next((index for index, word in enumerate(words) if not word.names and _SCRIPT.match(word.text)), 0) + 1
    script = words[index] if index < len(words) else None
    if script is None:
        return stdin or any(word.names for word in words)
    return bool(script.names) or (script.text.startswith(("-", "+")) and (stdin or any(word.names for word in words)))


def _runs_stdin(name: str, words: Sequence[Template]) -> bool:
    """Return whether the program runs its standard input as code; most do only without a script argument."""
    if name not in STDIN_PROGRAMS:
        return False
    index = _script_index(name, words)
    return index is None or index >= len(words) or words[index].text == "-"


def _is_script(name: str, words: Sequence[Template]) -> bool:
    """Return whether a value is the name of the file that is run, or of the module."""
    index = _script_index(name, words)
    return index is not None and index < len(words) and bool(words[index].names)


def _script_index(name: str, words: Sequence[Template]) -> int | None:
    """Return where the script of an interpreter stands; None for other programs. Code in an option is one, too."""
    options = OPTIONS.get(name)
    if options is None or not options.leading:
        return None
    texts = [_fill(word, _PLAIN_VALUES[0]) for word in words]
    own = count_own_words(texts, options)
    letters = set(options.code + options.unread) - set(_LOADS.get(name, ""))
    for index, text in enumerate(texts[1:own], 1):
        if text[:2] in ("--", "-") or text[:1] != "-":
            if text.partition("=")[0] in ("--eval", "--print", "--execute", "--command"):
                return index
        elif letters & set(text[1:]):
            return index
    return own


def _is_code(name: str, words: Sequence[Template], index: int) -> bool:
    """Return whether code as this word makes the program do more than a plain value does, or an option runs the
    word."""
    if not words[index].names or (name == "sqlite3" and all(word.text in _SQLITE_FLAGS for word in words[1:index])):
        return False
    plain = [_fill(word, _PLAIN_VALUES[0]) for word in words]

    def beyond(value: str) -> set[OptionReach]:
        return _beyond([*plain[:index], _fill(words[index], value), *plain[index + 1 :]])

    usual = set.intersection(*map(beyond, _PLAIN_VALUES))
    if any(beyond(code) - usual for code in _CODE):
        return True
    by_option = (
        plain[index - 1][:1] == "-" or plain[index][:1] == "-" or (name in ("python", "pypy") and "-m" in plain[:index])
    )
    return by_option and any(reach.code and reach.through >= index + 1 for reach in usual)


def _fill(word: Template, value: str) -> str:
    return word.fill(dict.fromkeys(word.names, value)) or ""
