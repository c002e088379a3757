"""Programs whose arguments need their own parser: git, sed, awk, make, python …

A judge finds the words of a call that run something, read other settings or write anywhere (`OptionReach`). Each judge
understands a small part of its program's language; everything else counts as code that cannot be checked.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from lyra.core.commands.option_reach import (
    OptionReach,
    ProgramOptions,
    find_reached,
    long_of,
    starts_programs,
    words_of,
)
from lyra.core.commands.options import BUILDER_JUDGES, zig_runs

Judge = Callable[[Sequence[str]], Iterable[OptionReach]]


# ---------------------------------------------------------------- git
_GIT_PLAIN: Final = words_of(
    "--no-pager -P -p --paginate --version -v --help -h --no-optional-locks --literal-pathspecs --glob-pathspecs"
    " --icase-pathspecs --no-replace-objects --no-lazy-fetch --no-advice --html-path --man-path --info-path --exec-path"
)
_GIT_VALUED: Final = words_of("-C --git-dir --work-tree --namespace --super-prefix --attr-source")
# Commands that write anywhere, or run what their words name.
_GIT_WHOLE: Final = words_of(
    "filter-branch send-email instaweb daemon shell for-each-repo credential credential-store credential-cache"
    " maintenance fast-import fast-export cvsserver p4 svn bundle web--browse imap-send checkout-index hook"
    " upload-pack receive-pack submodule--helper difftool--helper remote-ext remote-fd merge-index merge-one-file"
    " bugreport diagnose pack-objects index-pack unpack-file mailsplit mailinfo"
)
_GIT_RUNS: Final = words_of(
    "shell send-email instaweb for-each-repo remote-ext remote-fd difftool--helper merge-index hook"
)
# Any other command is unknown: an alias, or a program of that name. Any word of its call may begin a command.
_GIT_KNOWN: Final = _GIT_WHOLE | words_of(
    "add am annotate apply archive bisect blame branch cat-file check-attr check-ignore check-mailmap check-ref-format"
    " checkout cherry cherry-pick clean clone column commit commit-graph commit-tree config count-objects describe diff"
    " diff-files diff-index diff-tree difftool fetch fetch-pack fmt-merge-msg for-each-ref format-patch fsck gc"
    " get-tar-commit-id grep hash-object help init init-db interpret-trailers log ls-files ls-remote ls-tree mailinfo"
    " merge merge-base merge-file merge-tree mergetool mktag mktree multi-pack-index mv name-rev notes pack-redundant"
    " pack-refs patch-id prune prune-packed pull push range-diff read-tree rebase reflog remote repack replace"
    " request-pull rerere reset restore rev-list rev-parse revert rm send-pack shortlog show show-branch show-index"
    " show-ref sparse-checkout stage stash status stripspace submodule subtree switch symbolic-ref tag unpack-objects"
    " update-index update-ref update-server-info var verify-commit verify-pack verify-tag version whatchanged worktree"
    " write-tree lfs"
)
# These select another repository: its settings name programs to run, and git does not check its owner first.
_GIT_ELSEWHERE: Final = ("--exec-path=", "--git-dir")
_GIT_LONG: Final = ProgramOptions(
    long_runs=long_of("exec upload-pack receive-pack extcmd open-files-in-pager sendmail-cmd"),
    long_wide=long_of("output output-directory unsafe-paths separate-git-dir"),
)
_GIT_MAKES: Final = _GIT_LONG._replace(
    runs="uc",
    valued="boj",
    long_runs=_GIT_LONG.long_runs | long_of("config"),
    long_wide=_GIT_LONG.long_wide | long_of("template"),
)
_GIT_OF: Final[dict[str, ProgramOptions]] = {
    "grep": _GIT_LONG._replace(runs="O", valued="eABCfm"),
    "clone": _GIT_MAKES,
    "init": _GIT_MAKES._replace(runs=""),
    "submodule": _GIT_MAKES._replace(runs=""),
    "difftool": _GIT_LONG._replace(runs="x", valued="tg"),
    "rebase": _GIT_LONG._replace(runs="x", valued="sXC"),
    "archive": _GIT_LONG._replace(wide="o"),
    "interpret-trailers": _GIT_LONG._replace(long_wide=_GIT_LONG.long_wide | long_of("in-place")),
    "format-patch": _GIT_LONG._replace(wide="o", valued="v"),
    "read-tree": _GIT_LONG._replace(long_wide=_GIT_LONG.long_wide | long_of("index-output")),
    "apply": _GIT_LONG._replace(long_wide=_GIT_LONG.long_wide | long_of("build-fake-ancestor")),
    **dict.fromkeys(
        ("commit-graph", "multi-pack-index"),
        _GIT_LONG._replace(long_wide=_GIT_LONG.long_wide | long_of("object-dir")),
    ),
    "mergetool": _GIT_LONG._replace(wide="t", long_wide=_GIT_LONG.long_wide | long_of("tool")),
}
_GIT_FAR: Final = words_of(
    "clone fetch pull push ls-remote remote submodule archive fetch-pack send-pack subtree request-pull lfs config"
)
# The address of a remote helper: `ext::rm x`, in an option, and in the setting `url.ext::rm x.insteadOf`.
_GIT_HELPER: Final = re.compile(r"(?:.*[=.])?([A-Za-z0-9][A-Za-z0-9+-]*)::(.*)", re.DOTALL)
_GIT_EXT_WORD: Final = re.compile(r"(?:%.|[^% ])+", re.DOTALL)
_GIT_EVERYDAY: Final = words_of("status log diff show add commit branch checkout switch restore stash merge tag blame")
_GIT_LONG_ANY: Final = _GIT_LONG.long_runs | _GIT_LONG.long_wide
_GIT_READS: Final = words_of("--get --get-all --get-regexp --get-urlmatch --list -l get list")
_HERE: Final = (".", "/", "~", "file:")


def _git(words: Sequence[str]) -> Iterable[OptionReach]:
    if len(words) < 2 or words[1] not in _GIT_EVERYDAY:
        return _git_reaches(words)
    for word in words:  # only long options make these commands reach further
        if word[:2] == "--" and word[2:].partition("=")[0] in _GIT_LONG_ANY:
            return _git_reaches(words)
    return ()


def _git_reaches(words: Sequence[str]) -> Iterator[OptionReach]:
    index = 1
    while index < len(words) and words[index][:1] == "-":
        word = words[index]
        following = words[index + 1] if index + 1 < len(words) else ""
        if word in ("-c", "--config-env"):
            yield OptionReach(index + 2, following.partition("=")[2].lstrip("!"), code=word != "-c")
            yield from _git_helper(following, index + 2)
            index += 1
        elif word in _GIT_VALUED:
            yield OptionReach(index + 2, code=word.startswith(_GIT_ELSEWHERE))
            index += 1
        elif word not in _GIT_PLAIN:
            yield OptionReach(index + 1, word.partition("=")[2], code=word.startswith((*_GIT_ELSEWHERE, "--config")))
        index += 1
    if index >= len(words):
        return
    command, rest = words[index], words[index + 1 :]
    if command in _GIT_WHOLE:
        yield OptionReach(len(words), code=command in _GIT_RUNS)
        for word in rest if command == "filter-branch" else ():
            yield OptionReach(len(words), word)
    elif command not in _GIT_KNOWN:
        yield OptionReach(len(words), begins=index + 1)
    if command == "config":
        yield from _git_config(words, rest)
    if command == "worktree" and rest and rest[0] in ("add", "move"):
        yield OptionReach(len(words))
    if command in ("bisect", "submodule"):
        for place, word in enumerate(rest):
            if word in ("run", "foreach"):
                yield OptionReach(min(index + place + 3, len(words)))
    if command in ("push", "remote") and any(word.startswith(_HERE) for word in rest):
        yield OptionReach(len(words))  # a local repository has settings and hooks of its own
    if command in _GIT_FAR:
        for place, word in enumerate(rest, index + 1):
            yield from _git_helper(word, place + 1)
    if command == "merge-file" and not any(word in ("-p", "--stdout") for word in rest):
        yield OptionReach(len(words))  # its first file is overwritten, wherever it lies
    yield from find_reached(words, _GIT_OF.get(command, _GIT_LONG), index + 1)


def _git_helper(word: str, through: int) -> Iterator[OptionReach]:
    """Yield the program that git starts for an address: the words of an `ext::` address, else `git-remote-NAME`."""
    match = _GIT_HELPER.fullmatch(word)
    if match is not None and match[1].lower() == "ext":
        words = [re.sub(r"%(.)", _ext_character, part) for part in _GIT_EXT_WORD.findall(match[2])]
        yield OptionReach(through, shlex.join(words), code=not words)
    elif match is not None:
        yield OptionReach(through, f"git-remote-{match[1]} {match[2]}")


def _ext_character(match: re.Match[str]) -> str:
    """Return what `%` and a character represent in an `ext::` address: a blank, a percent sign, or the service that is
    asked for."""
    return {"s": "upload-pack", "S": "git-upload-pack", "G": "", "V": ""}.get(match[1], match[1])


def _git_config(words: Sequence[str], rest: Sequence[str]) -> Iterator[OptionReach]:
    plain = [word for word in rest if word[:1] != "-"]
    wide = any(word.startswith(("-f", "--f", "--bl", "-e", "--ed")) for word in rest)
    if wide or (len(plain) > 1 and not _GIT_READS.intersection(rest)):
        yield OptionReach(len(words), plain[-1].lstrip("!") if len(plain) > 1 else None)


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
_SED_LONG: Final = {
    **dict.fromkeys(("quiet", "silent", "debug", "posix", "regexp-extended", "separate", "sandbox", "unbuffered"), ""),
    **dict.fromkeys(("null-data", "zero-terminated", "follow-symlinks", "help", "version"), ""),
    "expression": "e",
    "file": "f",
    "line-length": "l",
    "in-place": "i",
}
_SCRIPT_MAX: Final = 2_000
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_AWK_RUNS: Final = re.compile(r"system|@|getline|\|&?")
_AWK_WRITES: Final = re.compile(r"print[^;}\n]*>")
_SQLITE_SHELL: Final = re.compile(r"\.(?:sh|she|shell?|sy|sys|syst|syste|system)")
_SQLITE_WRITES: Final = re.compile(r"\b(?:attach|vacuum\s+into)\b", re.IGNORECASE)
_MAKE_NAMES: Final = re.compile(r"(?:.*SHELL.*|MAKE.*|CC|CXX|LD|AR|AS|CPP|FC|PATH)[:+?!]*")
_MAKE_VALUE: Final = re.compile(r"[A-Za-z0-9_.,:/@%+-]*")


def _is_plain_sed(script: str) -> bool:
    """Return whether every command in it prints, deletes or replaces, and none runs (`e`) or reads or writes a file."""
    if len(script) > _SCRIPT_MAX:
        return False
    index = 0
    while index < len(script):
        step = _SED_STEP.match(script, index)
        if step is None or step.end() == index:
            return False
        index = step.end()
    return True


def _read_sed(words: Sequence[str]) -> Iterator[OptionReach]:
    """Unknown options count as code: the word after one may be its value, or the script."""
    scripts: list[tuple[int, str]] = []
    plain: list[tuple[int, str]] = []
    index, given = 1, False
    while index < len(words):
        word = words[index]
        if word == "--":
            plain += enumerate(words[index + 1 :], index + 1)
            break
        if word[:1] != "-" or word == "-":
            plain.append((index, word))
            index += 1
            continue
        letter, value = _read_sed_option(word)
        through = index + 1
        if letter in ("e", "f", "l") and value is None:
            through, value = index + 2, words[index + 1] if index + 1 < len(words) else ""
        if letter == "e":
            scripts.append((through, value or ""))
        elif letter == "i":  # writes
            yield OptionReach(through)
        elif letter == "f" or letter == "?" or (letter == "l" and not (value or "").isdecimal()):
            yield OptionReach(through, code=True)
        given |= letter in ("e", "f")
        index = through
    if not given and plain:
        scripts.append((plain[0][0] + 1, plain[0][1]))
    for through, script in scripts:
        if not _is_plain_sed(script):
            yield OptionReach(through, code=True)


def _read_sed_option(word: str) -> tuple[str, str | None]:
    """Return the letter of an option ("" for a flag, `?` for an unknown option), and its attached value."""
    if word[:2] == "--":
        name, equals, value = word[2:].partition("=")
        letters = {letter for full, letter in _SED_LONG.items() if full.startswith(name)}
        return (letters.pop() if len(letters) == 1 else "?"), value if equals else None
    rest = word[1:].lstrip("nErsuz")
    if not rest:
        return "", None
    return (rest[0] if rest[0] in "efli" else "?"), rest[1:] or None


def _awk(words: Sequence[str]) -> Iterator[OptionReach]:
    index = 1
    while index < len(words):
        word = words[index]
        if word in ("-F", "-v"):
            index += 2
        elif word.startswith(("-F", "-v")):
            index += 1
        elif word[:1] == "-" and word != "--" and len(word) > 1:
            yield OptionReach(len(words), code=True)  # a program in a file, a library, or an unknown option
            return
        else:
            break
    index += index < len(words) and words[index] == "--"
    if index >= len(words):
        return
    program = words[index]
    bare = program if "/" in program else _STRING.sub('""', program)  # a `/` may begin a pattern that hides a quote
    if len(program) > _SCRIPT_MAX or _AWK_RUNS.search(bare.replace("||", "")):
        yield OptionReach(index + 1, code=True)
    elif _AWK_WRITES.search(bare):
        yield OptionReach(index + 1)


def _make(words: Sequence[str]) -> Iterator[OptionReach]:
    for index, word in enumerate(words[1:], 1):
        name, equals, value = word.partition("=")
        if "$" in word:  # a function of make's own, $(shell …)
            yield OptionReach(index + 1, code=True)
        elif (
            equals
            and word[:1] != "-"
            and (_MAKE_NAMES.fullmatch(name) or name.rstrip()[-1:] == "!" or not _MAKE_VALUE.fullmatch(value))
        ):
            yield OptionReach(index + 1, value)  # X!=rm runs it


def _sqlite(words: Sequence[str]) -> Iterator[OptionReach]:
    """Dot-commands, and SQL that calls a function that runs or writes, in any word."""
    for index, word in enumerate(words[1:], 1):
        order, _, value = word.lstrip().partition(" ")
        if order[:1] == "." and "\n" not in word and _SQLITE_SHELL.fullmatch(order):
            yield OptionReach(index + 1, value)
        elif starts_programs(word, "sqlite"):
            yield OptionReach(index + 1, code=True)
        elif (order[:1] == "." and order[1:2] not in ("", "/", ".")) or _SQLITE_WRITES.search(word):
            yield OptionReach(index + 1)


# ---------------------------------------------------------------- languages, files that are commands
_PYTHON_RUNS: Final = words_of("timeit pdb cProfile profile trace runpy code idlelib doctest")


def module_call(words: Sequence[str]) -> tuple[int, Sequence[str]]:
    """Return how many words stand before the module in `python -m pip list`, and the words from it on; (0, ()) for
    another call."""
    for index, word in enumerate(words[1:], 1):
        if word[:1] != "-":
            break
        if word[1:2] != "-" and "m" in word and "c" not in word.partition("m")[0]:
            attached = word.partition("m")[2]
            return (index, [attached, *words[index + 1 :]]) if attached else (index + 1, words[index + 1 :])
    return 0, ()


def _python(words: Sequence[str]) -> Iterator[OptionReach]:
    """Modules that run their arguments: `python -m timeit CODE`."""
    _, called = module_call(words)
    if called and called[0].partition(".")[0] in _PYTHON_RUNS:
        yield OptionReach(len(words), code=True)


def _files(words: Sequence[str]) -> Iterator[OptionReach]:
    """Programs that take a file name with a `|` for a command: `perl -pe 1 'rm x |'`, `convert '|rm x' y`."""
    for index, word in enumerate(words[1:], 1):
        text = word.strip()
        if "%pipe%" in text:
            yield OptionReach(index + 1, text.partition("%pipe%")[2])
        elif text[:1] == "|" or text[-1:] == "|":
            yield OptionReach(index + 1, text.strip("|"))
        elif ":|" in text:
            yield OptionReach(index + 1, text.partition(":|")[2])


def _read_ed(words: Sequence[str]) -> Iterator[OptionReach]:
    """Yield the command in a file's name that begins with `!`."""
    for index, word in enumerate(words[1:], 1):
        if word[:1] == "!":
            yield OptionReach(index + 1, word[1:])


_COMPILER_WRITES: Final = re.compile(
    r"-MF.+|-MJ.+|-W[lap],.*(?:-Map|-o|--output|-plugin|--out-implib|--dependency-file|-M|=|-a).*|-fdump-.*=.+|-fdebug-.*dir.*"
    r"|-fdiagnostics-(?:add|set)-output=.*|-fpass-plugin=.*|-fprofile-(?:dir|generate|use|note|instr-generate)=.*|-save-temps=.*|-dump(?:dir|base).*|-f(?:time-trace|opt).*=.*"
)


def _compiler(words: Sequence[str]) -> Iterator[OptionReach]:
    """Options in a file, which are not checked (`gcc @options`), and options whose file is in the same word."""
    for index, word in enumerate(words[1:], 1):
        if word[:1] == "@":
            yield OptionReach(index + 1, code=True)
        elif word[:1] == "-" and _COMPILER_WRITES.fullmatch(word):
            yield OptionReach(index + 1)


def _zig(words: Sequence[str]) -> Iterator[OptionReach]:
    """`zig cc` is a C compiler; other subcommands run what they have built."""
    yield from zig_runs(words)
    yield from _compiler(words)


_CURL_FORMAT: Final = re.compile(r"^(?:-[A-Za-z#]*w ?|--wr[a-z-]*[= ])@")


def _curl(words: Sequence[str]) -> Iterator[OptionReach]:
    """`curl -w '%output{file}…'` writes what it is told to print; with `-w @file` the file says that."""
    for index, word in enumerate(words[1:], 1):
        if "%output{" in word:
            yield OptionReach(index + 1)
        elif _CURL_FORMAT.search(" ".join(words[index : index + 2])):
            yield OptionReach(index + 2)


_LINKER: Final = re.compile(r"(?:-C|--codegen=?)?\s*(?:linker|link-args?)=(.*)", re.DOTALL)


def _rustc(words: Sequence[str]) -> Iterator[OptionReach]:
    """`rustc -C linker=rm x.rs` runs the linker that it is given."""
    for index, word in enumerate(words[1:], 1):
        match = _LINKER.fullmatch(word)
        if match is not None:
            yield OptionReach(index + 1, match[1])


def _output_file(words: Sequence[str]) -> Iterator[OptionReach]:
    """Programs whose second plain word is a file that they write: `uniq a b`, `xxd a b`."""
    plain = [index for index, word in enumerate(words) if index and (word[:1] != "-" or word == "-")]
    if len(plain) > 1:
        yield OptionReach(plain[1] + 1)


_DATE_VALUED: Final = re.compile(r"-[uR]*[dfr]|--(?:date|file|reference)")  # the next word is its value


def _date(words: Sequence[str]) -> Iterator[OptionReach]:
    """`date 010100002020` sets the clock; a format begins with `+`."""
    for index, word in enumerate(words[1:], 1):
        if word[:1] not in "-+" and not _DATE_VALUED.fullmatch(words[index - 1]):
            yield OptionReach(index + 1)


def _find_changed_words(words: Sequence[str]) -> Iterator[OptionReach]:
    """Programs that print without a plain word, and change what such a word names: `hostname NAME`."""
    for index, word in enumerate(words[1:], 1):
        if word[:1] != "-":
            yield OptionReach(index + 1)


def _sysctl(words: Sequence[str]) -> Iterator[OptionReach]:
    """`sysctl name=value` sets, with and without `-w`."""
    for index, word in enumerate(words[1:], 1):
        if "=" in word and word[:1] != "-":
            yield OptionReach(index + 1)


_SHOWS: Final = words_of("status show show-timesync timesync-status list-timezones list-locales list-keymaps")


def _control(words: Sequence[str]) -> Iterator[OptionReach]:
    """`timedatectl set-time`, `hostnamectl hostname NAME`: all subcommands but those that show."""
    plain = [index for index, word in enumerate(words) if index and word[:1] != "-"]
    if plain and words[plain[0]] not in _SHOWS and not words[plain[0]].startswith("list-"):
        yield OptionReach(len(words))


def _rename(words: Sequence[str]) -> Iterator[OptionReach]:
    """Yield the code that the rename of Perl is given: its first plain word."""
    for index, word in enumerate(words[1:], 1):
        if starts_programs(word, "perl"):
            yield OptionReach(index + 1, code=True)
        if word[:1] != "-":
            return


def _deno(words: Sequence[str]) -> Iterator[OptionReach]:
    if "eval" in words[1:2]:
        yield OptionReach(len(words), code=any(starts_programs(word, "javascript") for word in words[2:]))


def _mix(words: Sequence[str]) -> Iterator[OptionReach]:
    if "eval" in words[1:2]:
        yield OptionReach(len(words), code=True)


def _zip(words: Sequence[str]) -> Iterator[OptionReach]:
    """Yield the command in an option of two letters, after others or before its value: `-rTT 'rm x'`, `-TT'rm x'`."""
    for index, word in enumerate(words[1:], 1):
        before, option, value = word.partition("TT")
        if option and before[:1] == "-" and before[:2] != "--":
            value = value.lstrip("=")
            yield (
                OptionReach(index + 1, value)
                if value
                else OptionReach(index + 2, words[index + 1] if index + 1 < len(words) else "")
            )


def _gh(words: Sequence[str]) -> Iterator[OptionReach]:
    """`gh alias set --shell x 'rm y'`, `gh config set pager 'rm y'`: commands that a later call runs."""
    plain = [word for word in words[1:] if word[:1] != "-" or word == "-"]
    if plain[:1] in (["alias"], ["config"]) and ("set" in plain or "import" in plain):
        yield OptionReach(len(words), code="import" in plain or "-" in plain)
        for word in plain[2:]:
            yield OptionReach(len(words), word.lstrip("!"))


def _crontab(words: Sequence[str]) -> Iterator[OptionReach]:
    if "-l" not in words:
        yield OptionReach(len(words), code=True)  # its lines run later


# Their judges find files that are written and settings that are changed, and nothing that is run.
ONLY_WRITE: Final = words_of("curl uniq xxd date hostname sysctl timedatectl hostnamectl localectl route")
JUDGES: Final[dict[str, Judge]] = {
    "git": _git,
    **dict.fromkeys(("sed", "gsed"), _read_sed),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    "make": _make,
    "sqlite3": _sqlite,
    **dict.fromkeys(("python", "pypy"), _python),
    **dict.fromkeys(("perl", "gs", "convert", "magick", "identify", "mogrify", "sox"), _files),
    "ed": _read_ed,
    **dict.fromkeys(("gcc", "g++", "cc", "c++", "clang", "clang++"), _compiler),
    "deno": _deno,
    "mix": _mix,
    "curl": _curl,
    "rustc": _rustc,
    **dict.fromkeys(("uniq", "xxd"), _output_file),
    "date": _date,
    **dict.fromkeys(("hostname", "route"), _find_changed_words),
    "sysctl": _sysctl,
    **dict.fromkeys(("timedatectl", "hostnamectl", "localectl"), _control),
    "rename": _rename,
    "glab": _gh,
    "crontab": _crontab,
    "zip": _zip,
    "gh": _gh,
    **BUILDER_JUDGES,
    "zig": _zig,
}
