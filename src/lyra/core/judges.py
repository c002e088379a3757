"""Programs with a language of their own, each judged by a reader of its own: git, sed, awk, make, python …

A judge finds what in a call runs something, reads other settings or writes anywhere (`Reach`). It reads little and
honestly: what it does not know counts as code that nobody can read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from lyra.core.code import starts_programs
from lyra.core.reach import Options, Reach, long_of, reached_by, words_of

__all__ = ["JUDGES", "Judge"]

Judge = Callable[[Sequence[str]], Iterable[Reach]]


# ---------------------------------------------------------------- git
_GIT_PLAIN: Final = words_of(
    "--no-pager -P -p --paginate --version -v --help -h --no-optional-locks --literal-pathspecs --glob-pathspecs"
    " --icase-pathspecs --no-replace-objects --no-lazy-fetch --no-advice --html-path --man-path --info-path --exec-path"
)
_GIT_VALUED: Final = words_of("-C --git-dir --work-tree --namespace --super-prefix --attr-source")
_GIT_WHOLE: Final = words_of(
    "filter-branch send-email instaweb daemon shell for-each-repo credential credential-store credential-cache"
    " maintenance fast-import fast-export cvsserver p4 svn bundle web--browse imap-send checkout-index"
    " upload-pack receive-pack submodule--helper difftool--helper remote-ext remote-fd"
)
_GIT_RUNS: Final = words_of("shell send-email instaweb for-each-repo remote-ext remote-fd difftool--helper")
# Another repository by name: its settings say what runs, and no check of whose it is comes before.
_GIT_ELSEWHERE: Final = ("--exec-path=", "--git-dir")
_GIT_LONG: Final = Options(
    long_runs=long_of("exec upload-pack receive-pack extcmd open-files-in-pager sendmail-cmd"),
    long_wide=long_of("output output-directory unsafe-paths separate-git-dir"),
)
_GIT_MAKES: Final = _GIT_LONG._replace(
    runs="uc",
    valued="boj",
    long_runs=_GIT_LONG.long_runs | long_of("config"),
    long_wide=_GIT_LONG.long_wide | long_of("template"),
)
_GIT_OF: Final[dict[str, Options]] = {
    "grep": _GIT_LONG._replace(runs="O", valued="eABCfm"),
    "clone": _GIT_MAKES,
    "init": _GIT_MAKES._replace(runs=""),
    "submodule": _GIT_MAKES._replace(runs=""),
    "difftool": _GIT_LONG._replace(runs="x", valued="tg"),
    "rebase": _GIT_LONG._replace(runs="x", valued="sXC"),
    "archive": _GIT_LONG._replace(wide="o"),
    "format-patch": _GIT_LONG._replace(wide="o", valued="v"),
}
_GIT_FAR: Final = words_of("clone fetch pull push ls-remote remote submodule archive fetch-pack send-pack")
_GIT_EVERYDAY: Final = words_of("status log diff show add commit branch checkout switch restore stash merge tag blame")
_GIT_LONG_ANY: Final = _GIT_LONG.long_runs | _GIT_LONG.long_wide
_GIT_READS: Final = words_of("--get --get-all --get-regexp --get-urlmatch --list -l get list")
_HERE: Final = (".", "/", "~", "file:")


def _git(words: Sequence[str]) -> Iterable[Reach]:
    everyday = len(words) > 1 and words[1] in _GIT_EVERYDAY  # only long options matter to these
    if everyday and not any(word[2:].partition("=")[0] in _GIT_LONG_ANY for word in words if word[:2] == "--"):
        return ()
    return _git_reaches(words)


def _git_reaches(words: Sequence[str]) -> Iterator[Reach]:
    at = 1
    while at < len(words) and words[at][:1] == "-":
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else ""
        if word in ("-c", "--config-env"):
            yield Reach(at + 2, following.partition("=")[2].lstrip("!"), code=word != "-c")
            at += 1
        elif word in _GIT_VALUED:
            yield Reach(at + 2, code=word.startswith(_GIT_ELSEWHERE))
            at += 1
        elif word not in _GIT_PLAIN:
            yield Reach(at + 1, word.partition("=")[2], code=word.startswith((*_GIT_ELSEWHERE, "--config")))
        at += 1
    if at >= len(words):
        return
    command, rest = words[at], words[at + 1 :]
    if command in _GIT_WHOLE:
        yield Reach(len(words), code=command in _GIT_RUNS)
        for word in rest if command == "filter-branch" else ():
            yield Reach(len(words), word)
    if command == "config":
        yield from _git_config(words, rest)
    if command in ("bisect", "submodule"):
        for place, word in enumerate(rest):
            if word in ("run", "foreach"):
                yield Reach(min(at + place + 3, len(words)))
    if command in ("push", "remote") and any(word.startswith(_HERE) for word in rest):
        yield Reach(len(words))  # a repository beside this one has settings and hooks of its own
    if command in _GIT_FAR:
        for place, word in enumerate(rest, at + 1):
            if word.startswith("ext::"):
                yield Reach(place + 1, word[5:])
    yield from reached_by(words, _GIT_OF.get(command, _GIT_LONG), at + 1)


def _git_config(words: Sequence[str], rest: Sequence[str]) -> Iterator[Reach]:
    plain = [word for word in rest if word[:1] != "-"]
    wide = any(word.startswith(("-f", "--f", "--bl", "-e", "--ed")) for word in rest)
    if wide or (len(plain) > 1 and not _GIT_READS.intersection(rest)):
        yield Reach(len(words), plain[-1].lstrip("!") if len(plain) > 1 else None)


# ---------------------------------------------------------------- sed, awk and make
_SED_ADDRESS: Final = r"(?:[0-9]+(?:~[0-9]+)?|\$|/(?:[^/\\\n]|\\.)*/I?)"
_SED_PART: Final = (
    rf"(?:{_SED_ADDRESS}(?:,[+~]?{_SED_ADDRESS})?)?[ \t]*!?[ \t]*"
    r"(?:[pdDqQ=lnNgGhHxP][ \t]*[0-9]*"
    r"|s/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/[gpIi0-9]*"
    r"|s([|,#:@_!%~])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpIi0-9]*"
    r"|y/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/"
    r"|[aic](?:[ \t]|\\\n?)[^\n]*"
    r"|[{}])?[ \t]*"
)
_SED_STEP: Final = re.compile(_SED_PART + r"(?:[;\n]|(?<=[{])|(?=[}])|$)", re.DOTALL)
_SCRIPT_MAX: Final = 2_000
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_AWK_RUNS: Final = re.compile(r"system|@|getline|\|&?")
_AWK_WRITES: Final = re.compile(r"print[^;}\n]*>")
_MAKE_NAMES: Final = re.compile(r"(?:.*SHELL.*|MAKE.*|CC|CXX|LD|AR|AS|CPP|FC|PATH)[:+?!]*")
_MAKE_VALUE: Final = re.compile(r"[A-Za-z0-9_.,:/@%+-]*")


def _sed_is_plain(script: str) -> bool:
    """Whether every command in it prints, deletes or replaces: none runs (`e`), reads or writes a file (`r`, `w`)."""
    if len(script) > _SCRIPT_MAX:
        return False
    at = 0
    while at < len(script):
        found = _SED_STEP.match(script, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
    return True


def _sed(words: Sequence[str]) -> Iterator[Reach]:
    scripts, at, given = [], 1, False
    plain: list[tuple[int, str]] = []
    while at < len(words):
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else ""
        if word == "--":
            plain += enumerate(words[at + 1 :], at + 1)
            break
        name, equals, value = word.partition("=")
        if word[:2] == "--":
            if "--expression".startswith(name) and len(name) > 2:
                scripts.append((at + 1 if equals else at + 2, value if equals else following))
                given, at = True, at if equals else at + 1
            elif "--file".startswith(name) or "--in-place".startswith(name):
                yield Reach(at + 1, code="--file".startswith(name))
                given |= "--file".startswith(name)
        elif word[:1] == "-" and len(word) > 1:
            letters = re.match(r"[nErsuz]*", word[1:])
            letter, rest = (
                word[1 + len(letters[0] if letters else "") :][:1],
                word[2 + len(letters[0] if letters else "") :],
            )
            if letter == "e":
                scripts.append((at + 1 if rest else at + 2, rest or following))
                given, at = True, at if rest else at + 1
            elif letter:  # -i writes, -f reads a script, and what nobody knows
                yield Reach(at + 1, code=letter not in "il")
                given |= letter == "f"
        else:
            plain.append((at, word))
        at += 1
    if not given and plain:
        scripts.append((plain[0][0] + 1, plain[0][1]))
    for through, script in scripts:
        if not _sed_is_plain(script):
            yield Reach(through, code=True)


def _awk(words: Sequence[str]) -> Iterator[Reach]:
    at = 1
    while at < len(words):
        word = words[at]
        if word in ("-F", "-v"):
            at += 2
        elif word.startswith(("-F", "-v")):
            at += 1
        elif word[:1] == "-" and word != "--" and len(word) > 1:
            yield Reach(len(words), code=True)  # a program in a file, a library, or an option nobody knows
            return
        else:
            break
    at += at < len(words) and words[at] == "--"
    if at >= len(words):
        return
    program = words[at]
    bare = program if "/" in program else _STRING.sub('""', program)  # a `/` may begin a pattern that hides a quote
    if len(program) > _SCRIPT_MAX or _AWK_RUNS.search(bare.replace("||", "")):
        yield Reach(at + 1, code=True)
    elif _AWK_WRITES.search(bare):
        yield Reach(at + 1)


def _make(words: Sequence[str]) -> Iterator[Reach]:
    for at, word in enumerate(words[1:], 1):
        name, equals, value = word.partition("=")
        if equals and word[:1] != "-" and (_MAKE_NAMES.fullmatch(name) or not _MAKE_VALUE.fullmatch(value)):
            yield Reach(at + 1, value)


def _sqlite(words: Sequence[str]) -> Iterator[Reach]:
    for at, word in enumerate(words[1:], 1):
        if word.lstrip()[:1] == "." and len(word) > 1 and word[1] != "/":
            yield Reach(at + 1, word.partition(" ")[2])


# ---------------------------------------------------------------- languages, files that are commands
_PYTHON_RUNS: Final = words_of("timeit pdb cProfile profile trace runpy code idlelib doctest")


def _python(words: Sequence[str]) -> Iterator[Reach]:
    """Modules that run what they are given: `python -m timeit CODE`."""
    for at, word in enumerate(words[1:], 1):
        if word[:1] != "-":
            return
        if word[1:2] != "-" and "m" in word and "c" not in word.partition("m")[0]:
            attached = word.partition("m")[2]
            module = attached or (words[at + 1] if at + 1 < len(words) else "")
            if module.partition(".")[0] in _PYTHON_RUNS:
                yield Reach(len(words), code=True)
            return


def _files(words: Sequence[str]) -> Iterator[Reach]:
    """Where a file's name may be a command: `perl -pe 1 'rm x |'`, `convert '|rm x' y`."""
    for at, word in enumerate(words[1:], 1):
        text = word.strip()
        if "%pipe%" in text:
            yield Reach(at + 1, text.partition("%pipe%")[2])
        elif text[:1] == "|" or text[-1:] == "|":
            yield Reach(at + 1, text.strip("|"))


def _deno(words: Sequence[str]) -> Iterator[Reach]:
    if "eval" in words[1:2]:
        yield Reach(len(words), code=any(starts_programs(word, "javascript") for word in words[2:]))


def _crontab(words: Sequence[str]) -> Iterator[Reach]:
    if "-l" not in words:
        yield Reach(len(words), code=True)  # what is in it runs later


JUDGES: Final[dict[str, Judge]] = {
    "git": _git,
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    "make": _make,
    "sqlite3": _sqlite,
    **dict.fromkeys(("python", "pypy"), _python),
    **dict.fromkeys(("perl", "gs", "convert", "magick", "identify", "mogrify", "sox"), _files),
    "deno": _deno,
    "crontab": _crontab,
}
