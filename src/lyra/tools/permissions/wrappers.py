"""What a command runs in turn: `sudo rm`, `xargs rm`, `find -exec rm`, `bash -c 'rm'`, `eval`, `trap`, aliases.

Three tables say how the command inside is found. `WRAPPERS` take options and then a command; `SHELLS` and
`EVALUATORS` take a text that is a script; `GREEDY` are too many and too rich to be listed, so that every word of
theirs may begin a command. An option that no table knows makes its program greedy. What cannot be known (a script in
a variable, a pipe into a shell) is said to be so, and then every deny applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from lyra.tools.permissions.shell import Command, Script, Word
from lyra.tools.permissions.text_glob import UNKNOWN

__all__ = ["Inner", "basename", "inner_of"]


class Inner(NamedTuple):
    """A command inside: its words, or a text to read as a script, or the reason why neither is known."""

    words: list[Word] | None = None
    script: str | None = None
    doubt: str | None = None


class _Options(NamedTuple):
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


WRAPPERS: Final[dict[str, _Options]] = {
    "sudo": _Options(
        "ABbEeHiKklNnPSsVv",
        "CcDghpRrTtUu",
        _long("askpass background bell preserve-env edit set-home login reset-timestamp non-interactive stdin shell"),
        _long("close-from chdir group host prompt chroot role command-timeout type other-user user"),
        assigns=True,
    ),
    "doas": _Options("Lns", "aCu"),
    "env": _Options("i0v", "uC", _long("ignore-environment null debug"), _long("unset chdir"), assigns=True),
    "nice": _Options("0123456789", "n", frozenset(), _long("adjustment")),
    "ionice": _Options("t", "cn", _long("ignore"), _long("class classdata")),
    "chrt": _Options("bfiorRvda", "TPD", plain=1),
    "taskset": _Options("apc", plain=1),
    "timeout": _Options("fpv", "ks", _long("preserve-status foreground verbose"), _long("kill-after signal"), 1),
    "nohup": _Options(),
    "setsid": _Options("cfw", "", _long("ctty fork wait")),
    "stdbuf": _Options("", "ioe", frozenset(), _long("input output error")),
    "time": _Options("apqv", "fo", _long("append portability quiet verbose"), _long("format output")),
    "xargs": _Options(
        "0oprtxil",
        "adEILnPs",
        _long("null open-tty interactive no-run-if-empty verbose exit show-limits"),
        _long("arg-file delimiter max-lines max-args max-procs max-chars replace process-slot-var"),
    ),
    "command": _Options("pvV"),
    "builtin": _Options(),
    "exec": _Options("cl", "a"),
    "chroot": _Options("", "", _long("skip-chdir"), _long("groups userspec"), 1),
    "ld.so": _Options(),
    "fakeroot": _Options("u", "lsib"),
    "caffeinate": _Options("disum", "tw"),
}

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "ash", "rbash", "fish", "yash", "posh"})
_SHELL_VALUES: Final = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})

GREEDY: Final = frozenset(
    {
        *("su", "runuser", "unshare", "nsenter", "setpriv", "capsh", "pkexec", "gosu", "su-exec", "start-stop-daemon"),
        *("strace", "ltrace", "gdb", "lldb", "valgrind", "perf", "rr", "watch", "script", "expect", "unbuffer", "tmux"),
        *("screen", "parallel", "flock", "busybox", "toybox", "systemd-run", "dbus-run-session", "xvfb-run", "proot"),
        *("ssh", "entr", "inotifywait", "fd", "fdfind", "bwrap", "firejail", "prlimit", "numactl", "cpulimit", "at"),
        *("bind", "complete", "compgen", "mapfile", "readarray", "jobs", "noglob", "nocorrect", "uv", "npx", "rlwrap"),
        *("setarch", "linux32", "linux64", "i386", "x86_64", "choom", "systemd-inhibit", "sem", "ts", "daemonize"),
    }
)
# Builtins that do arithmetic with their arguments; a shell expands what is quoted in them.
_ARITHMETIC: Final = frozenset(
    {"test", "[", "let", "declare", "typeset", "local", "export", "readonly", "printf", "read", "unset", "wait"}
)
_FIND_EXEC: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_GIT_RUNS: Final = frozenset({"foreach", "run", "-x", "--exec", "--tree-filter", "--index-filter", "--msg-filter"})
# Options whose value is run: as the start of one word, and as a word before it.
_OPTION_RUNS: Final[dict[str, tuple[tuple[str, ...], frozenset[str]]]] = {
    "git": (
        (
            "--exec=",
            "--upload-pack=",
            "--receive-pack=",
            "--extcmd=",
            "--open-files-in-pager=",
            "--exec-path=",
            "ext::",
        ),
        frozenset({"--exec", "--upload-pack", "--receive-pack", "--extcmd", "-c", "--config-env", "--exec-path"}),
    ),
    "tar": (
        ("--checkpoint-action=exec=", "--to-command=", "--use-compress-program=", "--info-script=", "--rsh-command="),
        frozenset({"-I", "-F", "--to-command", "--use-compress-program", "--info-script", "--new-volume-script"}),
    ),
    "rsync": (("--rsh=", "--rsync-path="), frozenset({"-e", "--rsh", "--rsync-path"})),
    "man": (("--pager=",), frozenset({"-P", "--pager"})),
    "sort": (("--compress-program=",), frozenset({"--compress-program"})),
}
_STDIN_FILES: Final = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")


def basename(program: str) -> str:
    return program.rpartition("/")[2]


def inner_of(words: list[Word], command: Command, script: Script) -> Iterator[Inner]:
    """The commands that these words run, if they run any. `command` is what they were found in."""
    name = basename(words[0].text)
    if name in WRAPPERS:
        yield from _wrapped(words, WRAPPERS[name], name)
    elif name in SHELLS:
        yield from _shell(words, command, script)
    elif name in GREEDY:
        yield from _greedy(words)
    elif name in _SPECIAL:
        yield from _SPECIAL[name](words)
        yield from _options_that_run(words, name)
    elif name in _OPTION_RUNS:
        yield from _options_that_run(words, name)
    elif name in ("source", "."):
        yield from _source(words, command, script)
    elif name in _ARITHMETIC and any("$(" in word.text or "`" in word.text for word in words):
        yield Inner(doubt=f"{name!r} may evaluate a quoted substitution")


# ---------------------------------------------------------------- wrappers
def _wrapped(words: list[Word], options: _Options, name: str) -> Iterator[Inner]:
    at = 1
    while at < len(words):
        text = words[at].text
        if UNKNOWN in text and text[:1] in ("-", UNKNOWN):
            yield from _greedy(words)
            return
        if text == "--":
            at += 1
            break
        if text[:1] != "-" or text == "-":
            break
        if name == "env" and (text.startswith(("-S", "--split-string", "-vS"))):
            yield from _split_string(words, at)
            return
        taken = _long_option(text[2:], options) if text.startswith("--") else _short_options(text[1:], options)
        if taken == 0:
            yield from _greedy(words)
            return
        at += taken
    if options.assigns:
        while at < len(words) and "=" in words[at].text:
            at += 1
    inside = words[at + options.plain :]
    if inside:
        yield Inner(words=inside)


def _short_options(letters: str, options: _Options) -> int:
    """How many words this cluster takes, or 0 when it has a letter nobody knows."""
    for place, letter in enumerate(letters):
        if letter in options.values:
            return 1 if place + 1 < len(letters) else 2
        if letter not in options.flags:
            return 0
        if letter in "il" and "I" in options.values:  # xargs: its value is attached or missing
            return 1
    return 1


def _long_option(text: str, options: _Options) -> int:
    name, equals, _ = text.partition("=")
    if name in options.long_values:
        return 1 if equals else 2
    return 1 if name in options.long_flags else 0


def _split_string(words: list[Word], at: int) -> Iterator[Inner]:
    text = words[at].text
    attached = text.partition("=")[2] if text.startswith("--") else text.partition("S")[2]
    rest = words[at + 1 :]
    parts = [attached, *(word.text for word in rest)] if attached else [word.text for word in rest]
    yield from _script(" ".join(parts))


def _greedy(words: list[Word]) -> Iterator[Inner]:
    """Any word may begin the command, and a word with blanks may be a script."""
    for at in range(1, len(words)):
        yield Inner(words=words[at:])
        text = words[at].text
        if any(char in text for char in " \t\n;&|`$()<>"):
            yield from _script(text)


def _script(text: str) -> Iterator[Inner]:
    if UNKNOWN in text:
        yield Inner(doubt="it runs a script that only the shell knows")
    else:
        yield Inner(script=text)


# ---------------------------------------------------------------- scripts in arguments
def _shell(words: list[Word], command: Command, script: Script) -> Iterator[Inner]:
    at, wants_script = 1, False
    while at < len(words):
        text = words[at].text
        if text[:1] == UNKNOWN or (text[:1] in "-+" and UNKNOWN in text):
            yield Inner(doubt="it starts a shell with options that only the shell knows")
            return
        if text in ("--", "-"):
            at += 1
            break
        if text[:1] not in ("-", "+") or not text[1:]:
            break
        if not text.startswith("--") and "c" in text[1:] and text[0] == "-":
            wants_script = True
        at += 2 if text in _SHELL_VALUES or (not text.startswith("--") and text[-1:] in "oO") else 1
    if wants_script:
        if at < len(words):
            yield from _script(words[at].text)
        return
    reads_input = at >= len(words) or any("s" in word.text for word in words[1:at] if word.text[:2] != "--")
    if not reads_input:
        yield from _script_file(words[at], command, script)
    if reads_input:
        yield from _input(command, script)


def _script_file(word: Word, command: Command, script: Script) -> Iterator[Inner]:
    """A script in a file is like any other program; but not one that is made up on the way."""
    if word.raw.startswith(("<(", ">(")) or word.text[:1] == UNKNOWN:
        yield Inner(doubt="it runs a script that only the shell knows")
    elif word.text.startswith(_STDIN_FILES):
        yield from _input(command, script)


def _input(command: Command, script: Script) -> Iterator[Inner]:
    """A shell that reads its script from where its input comes from."""
    for document in command.documents:
        yield Inner(script=document)
    for _, operator, target in command.redirects:
        if operator == "<<<":
            yield from _script(target.text)
        elif target.raw.startswith("<("):
            yield Inner(doubt="it feeds a shell from a substitution")
    if script.piped:
        yield Inner(doubt="it pipes into a shell")


def _eval(words: list[Word]) -> Iterator[Inner]:
    yield from _script(" ".join(word.text for word in words[1:] if word.text != "--"))


def _trap(words: list[Word]) -> Iterator[Inner]:
    plain = [word for word in words[1:] if word.text[:1] != "-"]
    if plain:
        yield from _script(plain[0].text)


def _source(words: list[Word], command: Command, script: Script) -> Iterator[Inner]:
    if len(words) > 1:
        yield Inner(words=words[1:])  # looked for where programs are
        yield from _script_file(words[1], command, script)


def _alias(words: list[Word]) -> Iterator[Inner]:
    for word in words[1:]:
        _, equals, value = word.text.partition("=")
        if equals or UNKNOWN in word.text:
            yield from _script(value if equals else word.text)


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
    """The few ways in which git runs commands: aliases with `!`, foreach, bisect run, rebase -x, filters."""
    for at, word in enumerate(words[1:], start=1):
        if word.text in _GIT_RUNS and at + 1 < len(words):
            yield Inner(words=words[at + 1 :])
            yield from _script(words[at + 1].text)
        elif word.text[:1] == "!":
            yield from _script(word.text[1:])
        elif "=!" in word.text and word.text.startswith("alias."):
            yield from _script(word.text.partition("=!")[2])


def _options_that_run(words: list[Word], name: str) -> Iterator[Inner]:
    starts, before = _OPTION_RUNS.get(name, ((), frozenset()))
    for at, word in enumerate(words[1:], start=1):
        if word.text.startswith(starts):
            start = next(each for each in starts if word.text.startswith(each))
            yield from _script(word.text[len(start) :])
        elif word.text in before and at + 1 < len(words):
            value = words[at + 1].text
            yield from _script((value.partition("=")[2] if word.text == "-c" else value).lstrip("!"))


def _hash(words: list[Word]) -> Iterator[Inner]:
    if any(word.text.startswith("-p") for word in words):
        yield Inner(doubt="it gives a program another name")


def _enable(_words: list[Word]) -> Iterator[Inner]:
    yield Inner(doubt="it changes what builtins are")


_SPECIAL: Final[dict[str, Callable[[list[Word]], Iterator[Inner]]]] = {
    "eval": _eval,
    "trap": _trap,
    "alias": _alias,
    "find": _find,
    "git": _git,
    "hash": _hash,
    "enable": _enable,
}
