"""What a command runs in turn: `sudo rm`, `xargs rm`, `find -exec rm`, `bash -c 'rm'`, `eval`, `trap`, aliases.

Tables say how the command inside is found. `WRAPPERS` take options and then a command; `SHELLS` and evaluators take a
text that is a script; `GREEDY` (of `core.programs`) are too many and too rich to be listed, so that every word of
theirs may begin a command. An option that no table knows makes its program greedy. What programs run by an option is
told in `core.programs`. What cannot be known (a script in a variable, a pipe into a shell) is said to be so, and then
every deny applies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from lyra.core.commands.programs import GREEDY, PROGRAMS, doubtful_words, reaches
from lyra.tools.shell.grammar import Command, Script, Word
from lyra.tools.shell.nested import Inner, script_in
from lyra.tools.shell.shells import HISTORY, SHELLS, TAKES_COMMANDS, commands_in_input, script_file, shell_script
from lyra.tools.shell.stdin_programs import TAKES_ORDERS, orders_of
from lyra.tools.shell.text_glob import UNKNOWN
from lyra.tools.shell.variables import calculates, decides_what_runs
from lyra.tools.shell.wrapper_options import WRAPPERS, WrapperOptions, long_option, short_options

__all__ = ["RUNS_OTHERS", "Inner", "basename", "inner_of", "wraps"]


# Builtins that do arithmetic with their arguments; a shell expands what is quoted in them.
_ARITHMETIC: Final = frozenset(
    {*("test", "[", "let", "declare", "typeset", "local", "export", "readonly", "printf", "read", "unset", "wait")}
    | {"getopts"}
)
_FIND_EXEC: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_SETS: Final = frozenset(
    {"export", "declare", "typeset", "local", "readonly", "read", "printf", "mapfile", "readarray", "getopts"}
)
_FILLS: Final = frozenset({"read", "printf", "mapfile", "readarray", "getopts"})
_GIT_RUNS: Final = frozenset({"foreach", "run"})


def basename(program: str) -> str:
    return program.rpartition("/")[2]


def wraps(name: str) -> bool:
    """Whether it is this program's work to run others."""
    return name in WRAPPERS or name in SHELLS or name in GREEDY or name in ("eval", "source", ".", "trap", "alias")


def inner_of(name: str, words: list[Word], texts: list[str], command: Command, script: Script) -> Iterator[Inner]:
    """The commands that these words run, if they run any: a call of one of `RUNS_OTHERS`. `command` is what they were
    found in."""
    if name in WRAPPERS:
        yield from _wrapped(words, WRAPPERS[name], name)
    elif name in SHELLS:
        yield from shell_script(words, command, script)
    elif name in GREEDY:
        yield from _greedy(words)
    elif name in _SPECIAL:
        yield from _SPECIAL[name](words)
    elif name in ("source", "."):
        yield from _source(words, command, script)
    elif name == "alias":
        yield from _alias(words, script)
    elif name in _ARITHMETIC:
        yield from _builtin(words, name, script)
    if name in PROGRAMS:
        yield from _reached(words, texts, name, script)
    if name in TAKES_COMMANDS:
        yield from commands_in_input(words, name, command, script)
    if name in TAKES_ORDERS:
        yield from orders_of(words, name, command, script)


# ---------------------------------------------------------------- wrappers
def _wrapped(words: list[Word], options: WrapperOptions, name: str) -> Iterator[Inner]:
    at, token = 1, ""
    while at < len(words):
        text = words[at].text
        if UNKNOWN in text and text[:1] in ("-", UNKNOWN):
            yield from _greedy(words)
            return
        if text == "--":
            at += 1
            break
        if name == "env" and text == "-":  # the same as -i
            at += 1
            continue
        if text[:1] != "-" or text == "-":
            break
        if name == "env" and _SPLITS.match(text):
            yield from _split_string(words, at)
            return
        if name == "command" and ("v" in text or "V" in text):
            return  # it says what the program is
        if name == "xargs":
            token = _replaced(words, at) or token
        taken = long_option(text[2:], options) if text.startswith("--") else short_options(text[1:], options)
        if taken == 0:
            yield from _greedy(words)
            return
        at += taken
    if options.assigns:
        while at < len(words) and "=" in words[at].text:
            yield from _variable(words[at].text)
            at += 1
    inside = words[at + options.plain :]
    if inside and name == "xargs":
        yield _fed(inside, token)
    elif inside:
        yield Inner(words=inside)


def _replaced(words: list[Word], at: int) -> str:
    """What xargs puts its input in the place of, where this option says so."""
    text = words[at].text
    following = words[at + 1].text if at + 1 < len(words) else ""
    if text.startswith("--r"):
        return text.partition("=")[2] or "{}"
    found = _REPLACES.fullmatch(text)
    if found is None:
        return ""
    return found[2] or (following if found[1] == "I" else "{}")


def _fed(inside: list[Word], token: str) -> Inner:
    """A command that gets more words, or parts of its words, from the input."""
    if not token:
        return Inner(words=[*inside, Word(UNKNOWN, UNKNOWN, expands=True, plain=False)], added=1)
    if not any(token in word.text for word in inside):
        return Inner(words=inside)
    return Inner(
        words=[
            Word(word.text.replace(token, UNKNOWN), word.raw, expands=True, plain=False) if token in word.text else word
            for word in inside
        ]
    )


def _variable(text: str, *, fills: bool = False) -> Iterator[Inner]:
    """`fills`: a name alone is set, too."""
    name, equals, _ = text.partition("=")
    if (equals and UNKNOWN in name) or ((equals or fills) and decides_what_runs(name.rstrip("+"))):
        yield Inner(doubt=f"it sets {name.replace(UNKNOWN, '?')[:40]}, which decides what runs")


def _split_string(words: list[Word], at: int) -> Iterator[Inner]:
    text = words[at].text
    attached = text.partition("=")[2] if text.startswith("--") else text.partition("S")[2]
    rest = words[at + 1 :]
    parts = [attached, *(word.text for word in rest)] if attached else [word.text for word in rest]
    yield from script_in(" ".join(parts))


def _greedy(words: list[Word]) -> Iterator[Inner]:
    """Any word may begin the command, and a word with blanks may be a script."""
    for at in range(1, len(words)):
        yield Inner(words=words[at:])
        text = words[at].text
        if any(char in text for char in " \t\n;&|`$()<>"):
            yield from script_in(text)
        if text[:1] == "-" and len(text) > 2 and text[1] != "-":
            yield from _attached(text, words[at + 1 :])
        behind = _BEHIND_NAME.match(text)  # -oProxyCommand=rm, 'ProxyCommand rm', 'EXEC:rm', '!rm'
        if behind is not None and behind.end() < len(text):
            yield from script_in(text[behind.end() :])


def _attached(text: str, rest: list[Word]) -> Iterator[Inner]:
    """The value of a short option may begin after any of its letters: `-tC'rm x'`."""
    letters = _LETTERS.match(text)
    for end in range(2, min(letters.end() if letters else 2, _CLUSTER_MAX) + 1):
        value = text[end:]
        if any(char in value for char in " \t\n;&|`$()<>"):
            yield from script_in(value)
        elif value:
            yield Inner(words=[Word(value, value), *rest], aside=True)


_LETTERS: Final = re.compile(r"-[A-Za-z0-9]+")
_CLUSTER_MAX: Final = 12
_MADE: Final = re.compile(r"`|\$[(@*0-9]|\$\{[@*0-9]|^\0$")  # by this line itself, not by who started it
_SPLITS: Final = re.compile(r"-[i0v]*S|--s")
_REPLACES: Final = re.compile(r"-[0oprtx]*([Ii])(.*)", re.DOTALL)
_LISTS: Final = re.compile(r"-[lnr]*l[lnr]*")
_READS_HISTORY: Final = re.compile(r"-[A-Za-z]*H")
_BEHIND_NAME: Final = re.compile(r"!|-?[A-Za-z_-]+[=: ][ \t]*")


# ---------------------------------------------------------------- scripts in arguments
def _eval(words: list[Word]) -> Iterator[Inner]:
    yield from script_in(" ".join(word.text for word in words[1:] if word.text != "--"))


def _trap(words: list[Word]) -> Iterator[Inner]:
    plain = [word for word in words[1:] if word.text[:1] != "-"]
    if plain:
        yield from script_in(plain[0].text)


def _source(words: list[Word], command: Command, script: Script) -> Iterator[Inner]:
    if len(words) > 1:
        yield Inner(words=words[1:])  # looked for where programs are
        yield from script_file(words[1], command, script)


def _alias(words: list[Word], script: Script) -> Iterator[Inner]:
    """Its values, for a deny to see. Beside other commands it may be a part of one: `alias q='env '`, then `q rm x`."""
    if len(script.commands) > 1 and any(word.text[:1] != "-" for word in words[1:]):
        yield Inner(doubt="it gives a command another name, by which the rest of it may be read")
    for word in words[1:]:
        _, equals, value = word.text.partition("=")
        if equals or UNKNOWN in word.text:
            yield from script_in(value if equals else word.text)


def _find(words: list[Word]) -> Iterator[Inner]:
    """Each `-exec … ;` or `+`. A predicate that only the shell knows may be one."""
    for at, word in enumerate(words):
        if word.text in _FIND_EXEC or (word.expands and word.text[:1] in (UNKNOWN, "-")):
            inside = []
            for part in words[at + 1 :]:
                if part.text in (";", "+"):
                    break
                inside.append(part)
            if inside:
                yield Inner(words=inside)


def _git(words: list[Word]) -> Iterator[Inner]:
    """The few ways in which git runs commands without an option: aliases with `!`, foreach, bisect run."""
    texts = [word.text for word in words]
    if _GIT_RUNS.isdisjoint(texts) and "!" not in "".join(texts):
        return
    for at, word in enumerate(words[1:], start=1):
        if word.text in _GIT_RUNS and at + 1 < len(words):
            yield Inner(words=words[at + 1 :])
            yield from script_in(words[at + 1].text)
        elif word.text[:1] == "!":
            yield from script_in(word.text[1:])
        elif "=!" in word.text and word.text.startswith("alias."):
            yield from script_in(word.text.partition("=!")[2])


def _reached(words: list[Word], texts: list[str], name: str, script: Script) -> Iterator[Inner]:
    """What options run; and words that only the shell knows may be such options."""
    if UNKNOWN in "".join(texts):
        for word in words[1 : doubtful_words(texts)]:
            known = word.text.partition(UNKNOWN)[0]
            if word.text != known and known[:1] in ("", "-") and (word.globs or script.sets or _MADE.search(word.raw)):
                yield Inner(doubt=f"an argument of {name!r} is known only to the shell")
    for reach in reaches(texts):
        yield Inner(named=reach.through)
        if reach.begins:
            yield from _begun(words, reach.begins, aside=reach.through <= reach.begins)
        elif reach.code:
            yield Inner(doubt=f"{name!r} may run what it is given")
        elif reach.run:
            yield from script_in(reach.run)


def _begun(words: list[Word], at: int, *, aside: bool) -> Iterator[Inner]:
    """A command that begins at this word or at a later one."""
    for inner in _greedy(words[at - 1 :]):
        option = inner.words is not None and inner.words[0].text[:1] == "-"
        value = inner.words is not None and UNKNOWN in inner.words[0].text and _follows_option(words, inner.words)
        if not option and not value:
            yield inner._replace(aside=aside and inner.words is not None)


def _follows_option(words: list[Word], inside: list[Word]) -> bool:
    return words[len(words) - len(inside) - 1].text[:1] == "-"


def _builtin(words: list[Word], name: str, script: Script) -> Iterator[Inner]:
    """Builtins that calculate with their arguments, or set variables."""
    if any("$(" in word.text or "`" in word.text for word in words):
        yield Inner(doubt=f"{name!r} may evaluate a quoted substitution")
    if name in _SETS:
        for word in words[1:]:
            text = word.text[2:] if name == "printf" and word.text[:2] == "-v" else word.text
            yield from _variable(text, fills=name in _FILLS)
            if word.text[:1] == "-" and "n" in word.text and name not in _FILLS:
                yield Inner(doubt="it gives a variable another name")
            if word.text[:1] == "-" and "i" in word.text:
                script.evaluates = True
    script.evaluates = script.evaluates or _calculates(words, name)


def _calculates(words: list[Word], name: str) -> bool:
    """Whether a name that it is given may be a place in an array, whose index the shell calculates."""
    if name in ("test", "["):
        return any(word.text in ("-v", "-R") or (word.text[:1] == UNKNOWN and word.raw[:1] == "$") for word in words)
    if name == "printf" and (len(words) < 2 or words[1].text[:2] not in ("-v", UNKNOWN)):
        return False
    for word in words[1:]:
        place = word.text.partition("=")[0]
        if UNKNOWN in place or calculates(place):
            return True
    return name == "let"


def _hash(words: list[Word]) -> Iterator[Inner]:
    if any(word.text.startswith("-p") for word in words):
        yield Inner(doubt="it gives a program another name")


def _fc(words: list[Word]) -> Iterator[Inner]:
    if not any(_LISTS.fullmatch(word.text) for word in words):
        yield Inner(doubt="it runs lines once more, changed by its own words")


def _options(words: list[Word]) -> Iterator[Inner]:
    """`set -H`, `shopt -so history`: what a line means then hangs on the lines before it."""
    for word in words[1:]:
        if word.text == "--" and words[0].text == "set":
            return  # the rest are the script's own arguments
        if word.text in HISTORY or UNKNOWN in word.text or _READS_HISTORY.match(word.text):
            yield Inner(doubt="it lets a shell put earlier lines into later ones")


def _enable(_words: list[Word]) -> Iterator[Inner]:
    yield Inner(doubt="it changes what builtins are")


_SPECIAL: Final[dict[str, Callable[[list[Word]], Iterator[Inner]]]] = {
    "eval": _eval,
    "trap": _trap,
    "find": _find,
    "git": _git,
    "hash": _hash,
    "enable": _enable,
    **dict.fromkeys(("fc", "hist"), _fc),
    **dict.fromkeys(("set", "shopt"), _options),
}
# The programs that may run others at all, in any way.
RUNS_OTHERS: Final = frozenset(
    {*WRAPPERS, *SHELLS, *GREEDY, *_SPECIAL, *_ARITHMETIC, *PROGRAMS, *TAKES_ORDERS, "source", ".", "alias"}
)
