"""Commands that run other commands: `sudo rm`, `xargs rm`, `find -exec rm`, `bash -c 'rm'`, `eval`, `trap`, aliases.

Tables say how the nested command is found. `WRAPPERS` take options and then a command; `SHELLS` and evaluators take a
text that is a script; for the programs of `GREEDY` (in `core.commands.programs`) no options are listed, so every word
of theirs may begin a command. An option that no table has makes its program greedy. What programs run by an option is
in `core.commands.programs`. What cannot be known (a script in a variable, a pipe into a shell) is reported as a doubt,
and then every deny applies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from typing import Final, NamedTuple

from lyra.core.commands.programs import GREEDY, PROGRAMS, doubtful_words, reaches
from lyra.tools.shell.grammar import ShellCommand, ShellScript, Word
from lyra.tools.shell.stdin_programs import (
    ALL_SHELLS,
    HISTORY,
    STDIN_PROGRAMS,
    TAKES_COMMANDS,
    Nested,
    commands_in_input,
    commands_in_stdin,
    script_file,
    script_in,
    shell_script,
)
from lyra.tools.shell.text_glob import PATH, UNKNOWN, calculates, decides_what_runs

# ---------------------------------------------------------------- wrapper options
# Wrappers that take options and then a command: `sudo -u bob rm`, `timeout -k 1 5 rm`; which options they have.


class WrapperOptions(NamedTuple):
    """How a wrapper's own arguments are read: short options without and with a value, long ones likewise, and how
    many plain arguments come before the command."""

    flags: str = ""
    values: str = ""
    long_flags: frozenset[str] = frozenset()
    long_values: frozenset[str] = frozenset()
    plain: int = 0
    assigns: bool = False


def _long(text: str) -> frozenset[str]:
    return frozenset(text.split())


WRAPPERS: Final[dict[str, WrapperOptions]] = {
    "sudo": WrapperOptions(
        "ABbEeHiKklNnPSsVv",
        "CcDghpRrTtUu",
        _long("askpass background bell preserve-env edit set-home login reset-timestamp non-interactive stdin shell"),
        _long("close-from chdir group host prompt chroot role command-timeout type other-user user"),
        assigns=True,
    ),
    "doas": WrapperOptions("Lns", "aCu"),
    "env": WrapperOptions("i0v", "uC", _long("ignore-environment null debug"), _long("unset chdir"), assigns=True),
    "nice": WrapperOptions("0123456789", "n", frozenset(), _long("adjustment")),
    "ionice": WrapperOptions("t", "cn", _long("ignore"), _long("class classdata")),
    "chrt": WrapperOptions("bfiorRvda", "TPD", plain=1),
    "taskset": WrapperOptions("apc", plain=1),
    "timeout": WrapperOptions("fpv", "ks", _long("preserve-status foreground verbose"), _long("kill-after signal"), 1),
    "nohup": WrapperOptions(),
    "setsid": WrapperOptions("cfw", "", _long("ctty fork wait")),
    "stdbuf": WrapperOptions("", "ioe", frozenset(), _long("input output error")),
    "time": WrapperOptions("apqv", "fo", _long("append portability quiet verbose"), _long("format output")),
    "xargs": WrapperOptions(
        "0oprtxil",
        "adEILnPs",
        # The value of the last three is attached or missing.
        _long("null open-tty interactive no-run-if-empty verbose exit show-limits max-lines replace eof"),
        _long("arg-file delimiter max-args max-procs max-chars process-slot-var"),
    ),
    "command": WrapperOptions("pvV"),
    "builtin": WrapperOptions(),
    "exec": WrapperOptions("cl", "a"),
    "chroot": WrapperOptions("", "", _long("skip-chdir"), _long("groups userspec"), 1),
    "ld.so": WrapperOptions(),
    "fakeroot": WrapperOptions("u", "lsib"),
    "caffeinate": WrapperOptions("disum", "tw"),
}


def short_options(letters: str, options: WrapperOptions) -> int:
    """Return how many words this cluster of short options takes; 0 if it has an unknown letter."""
    for place, letter in enumerate(letters):
        if letter in options.values:
            return 1 if place + 1 < len(letters) else 2
        if letter not in options.flags:
            return 0
        if letter in "il" and "I" in options.values:  # xargs: its value is attached or missing
            return 1
    return 1


def long_option(text: str, options: WrapperOptions) -> int:
    """Return how many words a long option takes; 0 if it is unknown."""
    name, equals, _ = text.partition("=")
    if name not in options.long_values and name not in options.long_flags:  # an abbreviation, if it is unambiguous
        full = [known for known in (*options.long_values, *options.long_flags) if known.startswith(name)]
        name = full[0] if len(full) == 1 else ""
    if name in options.long_values:
        return 1 if equals else 2
    return 1 if name in options.long_flags else 0


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
    """Return whether the purpose of this program is to run others."""
    return name in WRAPPERS or name in ALL_SHELLS or name in GREEDY or name in ("eval", "source", ".", "trap", "alias")


def find_nested(
    name: str, words: list[Word], texts: list[str], command: ShellCommand, script: ShellScript
) -> Iterator[Nested]:
    """Yield the commands that these words run, if they run any: a call of one of `RUNS_OTHERS`. `command` is the simple
    command that holds the words."""
    if name in WRAPPERS:
        yield from _read_wrapped(words, WRAPPERS[name], name, script)
    elif name in ALL_SHELLS:
        yield from shell_script(name, words, command, script)
    elif name in GREEDY:
        yield from _greedy(words)
    elif name in _SPECIAL:
        yield from _SPECIAL[name](words)
    elif name in ("source", "."):
        if len(words) > 1:
            yield Nested(words=words[1:])  # the shell searches PATH for it
            yield from script_file(words[1], command, script)
    elif name == "alias":
        # Yield the values, so that denies match them. Later commands may use the alias: `alias q='env '`, `q rm x`.
        if len(script.commands) > 1 and any(word.text[:1] != "-" for word in words[1:]):
            yield Nested(doubt="it gives a command another name, by which the rest of it may be read")
        for word in words[1:]:
            _, equals, value = word.text.partition("=")
            if equals or UNKNOWN in word.text:
                yield from script_in(value if equals else word.text)
    elif name in _ARITHMETIC:
        yield from _builtin(words, name, script)
    if name in PROGRAMS:
        yield from _read_options(words, texts, name, script)
    if name in TAKES_COMMANDS:
        yield from commands_in_input(words, name, command, script)
    if name in STDIN_PROGRAMS:
        yield from commands_in_stdin(words, name, command, script)


# ---------------------------------------------------------------- wrappers
def _read_wrapped(words: list[Word], options: WrapperOptions, name: str, script: ShellScript) -> Iterator[Nested]:
    index, token = 1, ""
    while index < len(words):
        text = words[index].text
        if UNKNOWN in text and text[:1] in ("-", UNKNOWN):
            yield from _greedy(words)
            return
        if text == "--":
            index += 1
            break
        if name == "env" and text == "-":  # the same as -i
            index += 1
            continue
        if text[:1] != "-" or text == "-":
            break
        if name == "env" and _SPLITS.match(text):
            yield from _split_string(words, index)
            return
        if name == "command" and ("v" in text or "V" in text):
            return  # it prints where the program is
        if name == "xargs":
            token = _placeholder(words, index) or token
        taken = long_option(text[2:], options) if text.startswith("--") else short_options(text[1:], options)
        if taken == 0:
            yield from _greedy(words)
            return
        index += taken
    if options.assigns:
        while index < len(words) and "=" in words[index].text:
            yield from _variable(words[index].text, script)
            index += 1
    inside = words[index + options.plain :]
    if inside and name == "xargs":
        yield _with_input(inside, token)
    elif inside:
        yield Nested(words=inside)


def _placeholder(words: list[Word], index: int) -> str:
    """Return the placeholder that xargs replaces by its input, if this option sets one."""
    text = words[index].text
    following = words[index + 1].text if index + 1 < len(words) else ""
    if text.startswith("--r"):
        return text.partition("=")[2] or "{}"
    match = _REPLACES.fullmatch(text)
    if match is None:
        return ""
    return match[2] or (following if match[1] == "I" else "{}")


def _with_input(inside: list[Word], token: str) -> Nested:
    """Return the command of xargs, with `UNKNOWN` for the words that come from the input."""
    if not token:
        return Nested(words=[*inside, Word(UNKNOWN, UNKNOWN, expands=True, plain=False)], added=1)
    if not any(token in word.text for word in inside):
        return Nested(words=inside)
    return Nested(
        words=[
            Word(word.text.replace(token, UNKNOWN), word.raw, expands=True, plain=False) if token in word.text else word
            for word in inside
        ]
    )


def _variable(text: str, script: ShellScript, *, fills: bool = False) -> Iterator[Nested]:
    """Yield a doubt if the assignment decides what runs. `fills`: a name without a value is set, too."""
    name, equals, value = text.partition("=")
    if equals and name.rstrip("+") == PATH:
        script.path_set(value)
    elif fills and name == PATH:
        yield Nested(doubt="it sets PATH, which decides what runs")
    if (equals and UNKNOWN in name) or ((equals or fills) and decides_what_runs(name.rstrip("+"))):
        yield Nested(doubt=f"it sets {name.replace(UNKNOWN, '?')[:40]}, which decides what runs")


def _split_string(words: list[Word], index: int) -> Iterator[Nested]:
    text = words[index].text
    attached = text.partition("=")[2] if text.startswith("--") else text.partition("S")[2]
    rest = words[index + 1 :]
    parts = [attached, *(word.text for word in rest)] if attached else [word.text for word in rest]
    yield from script_in(" ".join(parts))


def _greedy(words: list[Word]) -> Iterator[Nested]:
    """Any word may begin the command, and a word with blanks may be a script."""
    if len(words) > _GREEDY_MAX:
        yield Nested(doubt=f"it has more than {_GREEDY_MAX} words of which each may begin a command")
        return
    for start in range(1, len(words)):
        yield Nested(words=words[start:])
        text = words[start].text
        if any(char in text for char in " \t\n;&|`$()<>"):
            yield from script_in(text)
        if text[:1] == "-" and len(text) > 2 and text[1] != "-":
            yield from _read_attached(text, words[start + 1 :])
        behind = _BEHIND_NAME.match(text)  # -oProxyCommand=rm, 'ProxyCommand rm', 'EXEC:rm', '!rm'
        if behind is not None and behind.end() < len(text):
            yield from script_in(text[behind.end() :])


def _read_attached(text: str, rest: list[Word]) -> Iterator[Nested]:
    """Yield the values of a short option, which may begin after any of its letters: `-tC'rm x'`."""
    letters = _LETTERS.match(text)
    for end in range(2, min(letters.end() if letters else 2, _CLUSTER_MAX) + 1):
        value = text[end:]
        if any(char in value for char in " \t\n;&|`$()<>"):
            yield from script_in(value)
        elif value:
            yield Nested(words=[Word(value, value), *rest], aside=True)


_LETTERS: Final = re.compile(r"-[A-Za-z0-9]+")
_CLUSTER_MAX: Final = 12
_GREEDY_MAX: Final = 512  # words; the cost grows with their square
_SET_HERE: Final = re.compile(r"`|\$[(@*0-9]|\$\{[@*0-9]|^\0$")  # set by this line itself, not by the environment
_SPLITS: Final = re.compile(r"-[i0v]*S|--s")
_REPLACES: Final = re.compile(r"-[0oprtx]*([Ii])(.*)", re.DOTALL)
_LISTS: Final = re.compile(r"-[lnr]*l[lnr]*")
_READS_HISTORY: Final = re.compile(r"-[A-Za-z]*H")
_BEHIND_NAME: Final = re.compile(r'!|"[^"]*"[ \t]*:|-?[A-Za-z_-]+[=: ][ \t]*')


# ---------------------------------------------------------------- scripts in arguments
def _eval(words: list[Word]) -> Iterator[Nested]:
    yield from script_in(" ".join(word.text for word in words[1:] if word.text != "--"))


def _trap(words: list[Word]) -> Iterator[Nested]:
    plain = [word for word in words[1:] if word.text[:1] != "-"]
    if plain:
        yield from script_in(plain[0].text)


def _find(words: list[Word]) -> Iterator[Nested]:
    """Each `-exec … ;` or `+`. A predicate that only the shell knows may be one."""
    for index, word in enumerate(words):
        if word.text in _FIND_EXEC or (word.expands and word.text[:1] in (UNKNOWN, "-")):
            inside = list(takewhile(lambda part: part.text not in (";", "+"), islice(words, index + 1, None)))
            if inside:
                yield Nested(words=inside)


def _git(words: list[Word]) -> Iterator[Nested]:
    """Yield the few ways in which git runs commands without an option: aliases with `!`, foreach, bisect run."""
    texts = [word.text for word in words]
    if _GIT_RUNS.isdisjoint(texts) and "!" not in "".join(texts):
        return
    for index, word in enumerate(words[1:], start=1):
        if word.text in _GIT_RUNS and index + 1 < len(words):
            yield Nested(words=words[index + 1 :])
            yield from script_in(words[index + 1].text)
        elif word.text[:1] == "!":
            yield from script_in(word.text[1:])
        elif "=!" in word.text and word.text.startswith("alias."):
            yield from script_in(word.text.partition("=!")[2])


def _read_options(words: list[Word], texts: list[str], name: str, script: ShellScript) -> Iterator[Nested]:
    """Yield what options run. A word that only the shell knows may be such an option."""
    if UNKNOWN in "".join(texts):
        for word in words[1 : doubtful_words(texts)]:
            known = word.text.partition(UNKNOWN)[0]
            if (
                word.text != known
                and known[:1] in ("", "-")
                and (word.globs or script.sets or _SET_HERE.search(word.raw))
            ):
                yield Nested(doubt=f"an argument of {name!r} is known only to the shell")
    for reach in reaches(texts):
        yield Nested(named=reach.through)
        if reach.begins:
            yield from _from_word_on(words, reach.begins, aside=reach.through <= reach.begins)
        elif reach.code:
            yield Nested(doubt=f"{name!r} may run what it is given")
        elif reach.run:
            yield from script_in(reach.run)


def _from_word_on(words: list[Word], start: int, *, aside: bool) -> Iterator[Nested]:
    """Yield a command that begins at this word or at a later one."""
    for nested in _greedy(words[start - 1 :]):
        option = nested.words is not None and nested.words[0].text[:1] == "-"
        value = nested.words is not None and UNKNOWN in nested.words[0].text and _follows_option(words, nested.words)
        if not option and not value:
            yield nested._replace(aside=aside and nested.words is not None)


def _follows_option(words: list[Word], inside: list[Word]) -> bool:
    return words[len(words) - len(inside) - 1].text[:1] == "-"


def _builtin(words: list[Word], name: str, script: ShellScript) -> Iterator[Nested]:
    """Builtins that calculate with their arguments, or set variables."""
    if any("$(" in word.text or "`" in word.text for word in words):
        yield Nested(doubt=f"{name!r} may evaluate a quoted substitution")
    if name in _SETS:
        for word in words[1:]:
            text = word.text[2:] if name == "printf" and word.text[:2] == "-v" else word.text
            yield from _variable(text, script, fills=name in _FILLS)
            if word.text[:1] == "-" and "n" in word.text and name not in _FILLS:
                yield Nested(doubt="it gives a variable another name")
            if word.text[:1] == "-" and "i" in word.text:
                script.evaluates = True
    script.evaluates = script.evaluates or _calculates(words, name)


def _calculates(words: list[Word], name: str) -> bool:
    """Return whether a name that it is given may be a place in an array, whose index the shell calculates."""
    if name in ("test", "["):
        return any(word.text in ("-v", "-R") or (word.text[:1] == UNKNOWN and word.raw[:1] == "$") for word in words)
    if name == "printf" and (len(words) < 2 or words[1].text[:2] not in ("-v", UNKNOWN)):
        return False
    for word in words[1:]:
        place = word.text.partition("=")[0]
        if UNKNOWN in place or calculates(place):
            return True
    return name == "let"


def _hash(words: list[Word]) -> Iterator[Nested]:
    if any(word.text.startswith("-p") for word in words):
        yield Nested(doubt="it gives a program another name")


def _fc(words: list[Word]) -> Iterator[Nested]:
    if not any(_LISTS.fullmatch(word.text) for word in words):
        yield Nested(doubt="it runs lines once more, changed by its own words")


def _options(words: list[Word]) -> Iterator[Nested]:
    """`set -H`, `shopt -so history`: later lines may then insert earlier ones."""
    for word in words[1:]:
        if word.text == "--" and words[0].text == "set":
            return  # the rest are the script's own arguments
        if word.text in HISTORY or UNKNOWN in word.text or _READS_HISTORY.match(word.text):
            yield Nested(doubt="it lets a shell put earlier lines into later ones")


def _coreutils(words: list[Word]) -> Iterator[Nested]:
    """`coreutils --coreutils-prog=rm x`, `coreutils rm x`: one program that is all of them."""
    for index, word in enumerate(words[1:3], 1):
        _, equals, program = word.text.partition("=")
        if equals and word.text.startswith("--coreutils-prog"):
            yield Nested(words=[Word(program, program), *words[index + 1 :]])
        elif word.text[:1] != "-":
            yield Nested(words=words[index:])
            return
        elif UNKNOWN in word.text:
            yield Nested(doubt="a program in it is known only to the shell")


def _run_parts(words: list[Word]) -> Iterator[Nested]:
    """Every program of a folder, which may be one of the system's."""
    if not any(word.text in ("--test", "--list") for word in words):
        yield Nested(doubt="it runs all programs of a folder")


def _enable(_words: list[Word]) -> Iterator[Nested]:
    yield Nested(doubt="it changes what builtins are")


_SPECIAL: Final[dict[str, Callable[[list[Word]], Iterator[Nested]]]] = {
    "eval": _eval,
    "trap": _trap,
    "find": _find,
    "git": _git,
    "hash": _hash,
    "enable": _enable,
    "coreutils": _coreutils,
    "run-parts": _run_parts,
    **dict.fromkeys(("fc", "hist"), _fc),
    **dict.fromkeys(("set", "shopt"), _options),
}
# The programs that may run others at all, in any way.
RUNS_OTHERS: Final = frozenset(
    {*WRAPPERS, *ALL_SHELLS, *GREEDY, *_SPECIAL, *_ARITHMETIC, *PROGRAMS, *STDIN_PROGRAMS, "source", ".", "alias"}
)
