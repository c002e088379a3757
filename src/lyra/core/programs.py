"""Programs that run others: which words of a call can run something, read other settings, or write anywhere.

`git *` sounds harmless; `git -c alias.x='!rm y' x`, `tar -I rm` and `sed '1e rm y'` are not. `reaches(words)` names what in
a call goes beyond the program itself: the words that a rule with a wildcard has to name on its own, the text that is run
where there is one, and whether code is run that nobody can read. An abbreviated long option counts as the worst that it
can stand for. Who allows a program that is not in these tables allows all that it does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

__all__ = ["INERT", "Reach", "can_reach", "reaches", "runs_code"]


class Reach(NamedTuple):
    """`through`: a rule has to name this many words; `run`: a shell text that is run; `code`: something else is run."""

    through: int
    run: str | None = None
    code: bool = False


class _Options(NamedTuple):
    """Of one program. Short options are letters, long ones words; `dashes` are words with one dash."""

    runs: str = ""  # the value is run
    wide: str = ""  # reads other settings, or writes anywhere
    valued: str = ""  # takes a value, which ends a cluster of letters
    long_runs: frozenset[str] = frozenset()
    long_wide: frozenset[str] = frozenset()
    dashes_run: frozenset[str] = frozenset()
    dashes_wide: frozenset[str] = frozenset()
    code: str = ""  # the value is code in another language
    long_code: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()  # long options that are not short for a longer one
    leading: bool = False  # what comes after the first plain word is not the program's


def _of(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TAR: Final = _Options(
    "IF",
    "PT",
    "fbCgHKLNVX",
    _of("checkpoint-action to-command use-compress-program info-script new-volume-script rsh-command rmt-command"),
    _of("files-from absolute-names"),
    known=_of("checkpoint"),
)
_CC: Final = _Options(valued="o", dashes_run=_of("-wrapper"), dashes_wide=_of("-specs -fplugin"), wide="B")
_EDITOR: Final = _Options(code="cSsuW", long_code=_of("cmd eval load funcall"), wide="w")
_NODE: Final = _Options(code="epr", long_code=_of("eval print require import loader experimental-loader"), leading=True)
_NPM: Final = _Options(
    "c",
    "C",
    "w",
    _of("call script-shell shell editor viewer browser git onload-script"),
    _of("prefix userconfig globalconfig node-options init-module dir cwd"),
)
_APT: Final = _Options("", "oc", "t", frozenset(), _of("option config-file"))
_COPY: Final = _Options("SDo", "F", "cilPJXlBbR")

_TABLE: Final[dict[str, _Options]] = {
    "find": _Options(
        dashes_run=_of("-exec -execdir -ok -okdir"),
        dashes_wide=_of("-delete -fprint -fprint0 -fprintf -fls -files0-from"),
    ),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _TAR),
    "cpio": _Options("", "FOI", "", _of("rsh-command"), _of("file")),
    "rsync": _Options("e", "M", "fT", _of("rsh rsync-path"), _of("daemon config write-batch log-file server files-from")),
    **dict.fromkeys(("scp", "sftp"), _COPY),
    "sort": _Options("", "o", "kStT", _of("compress-program"), _of("output files0-from")),
    "split": _Options(long_runs=_of("filter")),
    "man": _Options("PH", "CM", "sLmre", _of("pager html"), _of("config-file manpath")),
    "zip": _Options(dashes_run=_of("-TT"), long_runs=_of("unzip-command")),
    "install": _Options(long_runs=_of("strip-program"), valued="gmotS"),
    **dict.fromkeys(("gcc", "g++", "cc", "c++", "clang", "clang++"), _CC),
    "make": _Options("", "fI", "jlWo", _of("eval"), _of("file makefile include-dir")),
    "wget": _Options("e", "OPoai", "", _of("use-askpass execute"), _of("config output-document directory-prefix")),
    "curl": _Options("", "KocD", "HdXuAebFTxmrwC", frozenset(), _of("config output cookie-jar dump-header engine trace")),
    **dict.fromkeys(("apt", "apt-get", "aptitude"), _APT),
    "dpkg": _Options(long_runs=_of("pre-invoke post-invoke status-logger")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _NPM),
    **dict.fromkeys(("pip", "pip3"), _Options(long_runs=_of("python"), long_wide=_of("log editor"))),
    "docker": _Options("", "Hv", "", _of("entrypoint"), _of("host config volume mount privileged device pid cap-add")),
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "view", "vimdiff", "emacs", "nano"), _EDITOR),
    **dict.fromkeys(("python", "python2", "python3", "pypy", "pypy3"), _Options(code="c", valued="WX", leading=True)),
    "perl": _Options(code="eEMm", valued="I", leading=True),
    "ruby": _Options(code="er", valued="IC", leading=True),
    **dict.fromkeys(("node", "nodejs", "deno"), _NODE),
    "php": _Options(code="rBRE", wide="cd", leading=True),
    **dict.fromkeys(("lua", "luajit"), _Options(code="el", leading=True)),
    "dc": _Options(code="e", long_code=_of("expression")),
    "psql": _Options(code="c", wide="of", long_code=_of("command"), long_wide=_of("output file")),
    "sqlite3": _Options(dashes_run=_of("-cmd -init")),
    "tclsh": _Options(leading=True),
    "ed": _Options(),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _Options(valued="Fv")),
    **dict.fromkeys(("sed", "gsed"), _Options(valued="el")),
    "git": _Options(),
}
# Programs none of whose options runs or writes anything: a file's name may become an option of theirs.
INERT: Final = _of("ls cat echo wc head tail grep egrep fgrep stat file du basename dirname md5sum sha256sum nl tac rev")

# Words that a program runs what follows by.
_RUNNERS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("poetry", "pipenv", "conda", "mamba", "hatch", "pdm", "rye"), _of("run")),
    **dict.fromkeys(("pyenv", "rbenv", "nodenv", "direnv", "bundle"), _of("exec")),
    "npm": _of("exec x explore edit config set init create innit"),
    **dict.fromkeys(("yarn", "pnpm", "bun"), _of("exec dlx x config create init")),
    "nvm": _of("exec run"),
    "docker": _of("exec"),
}
_STARTS_PROGRAMS: Final = re.compile(r"system|popen|exec|spawn|subprocess|child_process|shell|\bfork\b|qx|`|!|__import__|getattr")


def can_reach(name: str) -> bool:
    """Whether this program is one that may run others, so that each of its words has to be certain."""
    return name in _TABLE or name in _RUNNERS


def runs_code(text: str) -> bool:
    """Whether code of another language seems to start programs. It is a look, not a proof: such code is not read."""
    return _STARTS_PROGRAMS.search(text) is not None


def reaches(words: Sequence[str]) -> list[Reach]:
    """What in this call goes beyond the program itself."""
    name = words[0].rpartition("/")[2]
    options = _TABLE.get(name)
    if options is None and name not in _RUNNERS:
        return []
    judge = _JUDGES.get(name)
    found = list(judge(words)) if judge is not None else []
    runners = _RUNNERS.get(name)
    if runners is not None:
        at = next((at for at, word in enumerate(words[1:], 1) if word[:1] != "-"), 0)
        if at and words[at] in runners:
            found.append(Reach(len(words), " ".join(words[at + 1 :])))
    if options is not None and name != "git":
        found += _options(words, options, 1)
    return found


# ---------------------------------------------------------------- options
def _options(words: Sequence[str], options: _Options, at: int) -> Iterator[Reach]:
    bundle = options is _TAR and len(words) > 1 and words[1][:1] != "-"  # tar's old way: letters without a dash
    while at < len(words):
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else ""
        if word == "--":
            return
        if word[:2] == "--":
            yield from _long(word, following, options, at)
        elif word[:1] == "-" and len(word) > 1:
            if word.partition("=")[0] in options.dashes_run:
                yield Reach(at + 2, following)
            elif word.partition("=")[0] in options.dashes_wide:
                yield Reach(at + 1)
            else:
                yield from _short(word[1:], following, options, at)
                if options.leading and word[-1] == "m":
                    return  # python -m: the rest is the module's
        elif bundle and at == 1:
            yield from _short(word, following, options._replace(valued=""), at)
        elif options.leading:
            return
        elif options is _EDITOR and word[:1] == "+" and len(word) > 1:
            yield Reach(at + 1, code=True)
        at += 1


def _long(word: str, following: str, options: _Options, at: int) -> Iterator[Reach]:
    name, equals, value = word[2:].partition("=")
    if name in options.known or not name:
        return
    through, value = (at + 1, value) if equals else (at + 2, following)
    if _stands_for(name, options.long_runs):
        yield Reach(through, value.removeprefix("exec="))
    elif _stands_for(name, options.long_code):
        yield Reach(through, code=runs_code(value))
    elif _stands_for(name, options.long_wide):
        yield Reach(through)


def _stands_for(name: str, full: frozenset[str]) -> bool:
    return name in full or any(each.startswith(name) for each in full)


def _short(letters: str, following: str, options: _Options, at: int) -> Iterator[Reach]:
    for place, letter in enumerate(letters):
        rest = letters[place + 1 :]
        through, value = (at + 1, rest) if rest else (at + 2, following)
        if letter in options.runs:
            # `-oProxyCommand=rm x` of ssh's kin has the command behind the name.
            yield Reach(through, re.split(r"[= ]", value, maxsplit=1)[-1] if letter == "o" else value)
            return
        if letter in options.code:
            yield Reach(through, code=runs_code(value))
            return
        if letter in options.wide:
            yield Reach(through)
            return
        if letter in options.valued:
            return


# ---------------------------------------------------------------- git
_GIT_PLAIN: Final = _of(
    "--no-pager -P -p --paginate --version -v --help -h --no-optional-locks --literal-pathspecs --glob-pathspecs"
    " --icase-pathspecs --no-replace-objects --no-lazy-fetch --no-advice --html-path --man-path --info-path --exec-path"
)
_GIT_VALUED: Final = _of("-C --git-dir --work-tree --namespace --super-prefix --attr-source")
_GIT_WHOLE: Final = _of(
    "filter-branch send-email instaweb daemon shell for-each-repo credential credential-store credential-cache maintenance"
    " fast-import fast-export cvsserver p4 svn bundle web--browse imap-send checkout-index upload-pack receive-pack"
)
_GIT_LONG: Final = _Options(
    long_runs=_of("exec upload-pack receive-pack extcmd open-files-in-pager sendmail-cmd"),
    long_wide=_of("output output-directory unsafe-paths separate-git-dir"),
)
_GIT_MAKES: Final = _GIT_LONG._replace(
    runs="uc",
    valued="boj",
    long_runs=_GIT_LONG.long_runs | {"config"},
    long_wide=_GIT_LONG.long_wide | {"template"},
)
_GIT_OF: Final[dict[str, _Options]] = {
    "grep": _GIT_LONG._replace(runs="O", valued="eABCfm"),
    "clone": _GIT_MAKES,
    "init": _GIT_MAKES._replace(runs=""),
    "submodule": _GIT_MAKES._replace(runs=""),
    "difftool": _GIT_LONG._replace(runs="x", valued="tg"),
    "rebase": _GIT_LONG._replace(runs="x", valued="sXC"),
    "archive": _GIT_LONG._replace(wide="o"),
    "format-patch": _GIT_LONG._replace(wide="o", valued="v"),
}
_GIT_READS: Final = _of("--get --get-all --get-regexp --get-urlmatch --list -l get list")
_HERE: Final = (".", "/", "~", "file:")


def _git(words: Sequence[str]) -> Iterator[Reach]:
    at = 1
    while at < len(words) and words[at][:1] == "-":
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else ""
        if word in ("-c", "--config-env"):
            yield Reach(at + 2, following.partition("=")[2].lstrip("!"), code=word != "-c")
            at += 1
        elif word in _GIT_VALUED:
            yield Reach(at + 2)
            at += 1
        elif word not in _GIT_PLAIN:
            yield Reach(at + 1, word.partition("=")[2], code=word.startswith("--config"))
        at += 1
    if at >= len(words):
        return
    command, rest = words[at], words[at + 1 :]
    if command in _GIT_WHOLE:
        yield Reach(len(words), code=command in ("shell", "send-email", "instaweb", "for-each-repo"))
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
    for place, word in enumerate(rest, at + 1):
        if word.startswith("ext::"):
            yield Reach(place + 1, word[5:])
    yield from _options(words, _GIT_OF.get(command, _GIT_LONG), at + 1)


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
            letter, rest = word[1 + len(letters[0] if letters else "") :][:1], word[2 + len(letters[0] if letters else "") :]
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


_JUDGES: Final[dict[str, Callable[[Sequence[str]], Iterator[Reach]]]] = {
    "git": _git,
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    "make": _make,
    "sqlite3": _sqlite,
}
