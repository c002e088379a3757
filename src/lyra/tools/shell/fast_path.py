"""A fast path for command lines without special characters, which need no grammar: most of what an agent runs.

`fast_script(text)` gives what `read_script` would find in `git log -3`, `git commit -m "part 2"` or
`cd src && make test 2>&1 | tail -5`, in a fraction of the time; None for any line with something else in it.
"""

from __future__ import annotations

import re
from typing import Final

from lyra.core.limits import WORDS_MAX
from lyra.tools.shell.grammar import ShellCommand, ShellScript, Word

_LIST_MAX: Final = 500  # characters; bounds the number of commands, and longer lines are too rare to need the fast path
_GRAMMAR: Final = "if|then|elif|else|fi|for|select|while|until|do|done|case|esac|in|function|coproc|time"
_PROGRAM: Final = rf"(?!(?:{_GRAMMAR})(?:[ ;]|$))[A-Za-z0-9_./@%+,:^-]+"
_PLAIN: Final = r"[A-Za-z0-9_./@%+,:=^-]+"
_QUOTED: Final = r""""[A-Za-z0-9_./@%+,:;=^#()<>|&' -]*"|'[A-Za-z0-9_./@%+,:;=^#()<>|&" -]*'"""
_REDIRECTS: Final = {  # as `ShellCommand` has them: what stands before the target, the operator, the target
    "2>&1": ("2>&", ">&", "1"),
    ">/dev/null": (">", ">", "/dev/null"),
    "2>/dev/null": ("2>", ">", "/dev/null"),
}
_OPERATORS: Final = frozenset({"&&", "||", "|", ";"})
_COMMAND: Final = rf"{_PROGRAM}(?: (?:{_PLAIN}|{_QUOTED}))*(?: (?:2>&1|2?>/dev/null))*"
_ONE: Final = re.compile(rf"{_PROGRAM}(?: {_PLAIN})*")
_LIST: Final = re.compile(rf"{_COMMAND}(?:(?: (?:&&|\|\|?)|;) {_COMMAND})*")
_PART: Final = re.compile(r"""'[^']*'|"[^"]*"|;|[^ ;]+""")


def fast_script(text: str) -> ShellScript | None:
    if text.count(" ") < WORDS_MAX and _ONE.fullmatch(text):
        script = ShellScript()
        command = ShellCommand()
        command.words = [Word(part, part) for part in text.split(" ")]
        script.commands.append(command)
    elif len(text) <= _LIST_MAX and _LIST.fullmatch(text):
        script = _script_of(_PART.findall(text))
    else:
        return None
    script.text = text
    script.spent = len(text)
    return script


def _script_of(parts: list[str]) -> ShellScript:
    script = ShellScript()
    command = ShellCommand()
    script.commands.append(command)
    for part in parts:
        if part in _OPERATORS:
            script.compound = True
            script.piped |= part == "|"
            command = ShellCommand()
            command.fed = script.piped
            script.commands.append(command)
        elif part in _REDIRECTS:
            start, operator, target = _REDIRECTS[part]
            command.redirects.append((start, operator, Word(target, target)))
        elif part[0] in "'\"":
            command.words.append(Word(part[1:-1], part, plain=False))
        else:
            command.words.append(Word(part, part))
    return script
