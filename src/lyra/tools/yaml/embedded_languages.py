"""Words and input that a program reads as a language of its own: sed, awk, sqlite3, `git -c`, `python -c` …

A value there would be code, whatever the argument around it looks like. `code_problem` finds that in the words of a
file: it fills in sample values that are code and looks at what the program would do. `values_become_code` repeats the
check with the values of a call, since some programs treat a plain argument as code only when it has a certain form
(`make SHELL=x`, `convert '|x'`). The tables are in `core.commands.programs`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Final

from lyra.core.commands.option_reach import Reach, own_words, words_of
from lyra.core.commands.options import OPTIONS
from lyra.core.commands.programs import GREEDY, OTHER_SHELLS, SHELLS, program_name, reaches
from lyra.tools.shell.stdin_programs import STDIN_PROGRAMS
from lyra.tools.yaml.template import Template

_SHELLS: Final = SHELLS | OTHER_SHELLS
# Programs that run what their arguments name: with a value among those, it is not known what runs.
_RUNNERS: Final = frozenset(
    {"env", "xargs", "sudo", "doas", "su", "nohup", "nice", "timeout", "setsid", "stdbuf", "busybox", "eval", "ssh"}
    | {"coreutils", "run-parts"}
) | (GREEDY - {"ip", "fd", "fdfind", "nc", "ncat", "uv", "ts"})
_BEFORE_PROGRAM: Final = frozenset({"poetry", "pipenv", "hatch", "pdm", "rye", "conda", "mamba", "bundle", "uv"})
_SCRIPT: Final = re.compile(r"-[A-Za-z]*c[A-Za-z]*\Z")
_PLAIN: Final = ("value", "1", "p", "5p")
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
    """How a value could become code in this command, with a hint; None if it cannot. `numbers` are the parameters
    that are not free text: their values hold no code."""
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
    """Whether the values of a call make a program do more than it does with harmless ones, as in `plain`."""
    skipped = len(words) - len(_without_runner(words))
    return bool(_beyond(argv[skipped:]) - _beyond(plain[skipped:]))


def _beyond(argv: Sequence[str]) -> set[Reach]:
    return set(reaches(argv)) if argv else set()


def _without_runner(words: Sequence[Template]) -> Sequence[Template]:
    """`poetry run pytest …` is a call of pytest."""
    runs = len(words) > 2 and program_name(words[0].text) in _BEFORE_PROGRAM and words[1].text in ("run", "exec")
    return words[2:] if runs and not words[2].names and words[2].text[:1] != "-" else words


def _is_shell(words: Sequence[Template], index: int) -> bool:
    """Whether this word is a shell: the program, or a later word if a script follows: `docker exec c sh -c …`."""
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
    """Whether the program runs its standard input as code; most do only without a script argument."""
    if name not in STDIN_PROGRAMS:
        return False
    index = _script_index(name, words)
    return index is None or index >= len(words) or words[index].text == "-"


def _is_script(name: str, words: Sequence[Template]) -> bool:
    """Whether a value is the name of the file that is run, or of the module."""
    index = _script_index(name, words)
    return index is not None and index < len(words) and bool(words[index].names)


def _script_index(name: str, words: Sequence[Template]) -> int | None:
    """Where the script of an interpreter stands; None for other programs. Code in an option is one, too."""
    options = OPTIONS.get(name)
    if options is None or not options.leading:
        return None
    texts = [_fill(word, _PLAIN[0]) for word in words]
    own = own_words(texts, options)
    letters = set(options.code + options.unread) - set(_LOADS.get(name, ""))
    for index, text in enumerate(texts[1:own], 1):
        if text[:2] in ("--", "-") or text[:1] != "-":
            if text.partition("=")[0] in ("--eval", "--print", "--execute", "--command"):
                return index
        elif letters & set(text[1:]):
            return index
    return own


def _is_code(name: str, words: Sequence[Template], index: int) -> bool:
    """Whether code as this word makes the program do more than a plain value does, or an option runs the word."""
    if not words[index].names or (name == "sqlite3" and all(word.text in _SQLITE_FLAGS for word in words[1:index])):
        return False
    plain = [_fill(word, _PLAIN[0]) for word in words]

    def beyond(value: str) -> set[Reach]:
        return _beyond([*plain[:index], _fill(words[index], value), *plain[index + 1 :]])

    usual = set.intersection(*map(beyond, _PLAIN))
    if any(beyond(code) - usual for code in _CODE):
        return True
    by_option = (
        plain[index - 1][:1] == "-" or plain[index][:1] == "-" or (name in ("python", "pypy") and "-m" in plain[:index])
    )
    return by_option and any(reach.code and reach.through >= index + 1 for reach in usual)


def _fill(word: Template, value: str) -> str:
    return word.fill(dict.fromkeys(word.names, value)) or ""
