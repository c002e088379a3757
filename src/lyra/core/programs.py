"""Programs that run others: which words of a call can run something, read other settings, or write anywhere.

`git *` sounds harmless; `git -c alias.x='!rm y' x`, `tar -I rm` and `sed '1e rm y'` are not. `reaches(words)` names
what in a call goes beyond the program itself: the words that a rule with a wildcard has to name on its own, the text
that is run where there is one, and whether code is run that nobody can read. Who allows a program that is not in these
tables allows all that it does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from lyra.core.judges import JUDGES
from lyra.core.reach import Options, Reach, long_of, reached_by, words_of

__all__ = ["GREEDY", "INERT", "PROGRAMS", "can_reach", "doubtful_words", "named_words", "reaches"]

_TAR: Final = Options(
    "IF",
    "PT",
    "fbCgHKLNVX",
    long_of("checkpoint-action to-command use-compress-program info-script new-volume-script rsh-command rmt-command"),
    long_of("files-from absolute-names"),
    known=words_of("checkpoint"),
    bundle=True,
)
_CC: Final = Options(
    commas=True, valued="o", dashes_run=words_of("-wrapper"), dashes_wide=words_of("-specs -fplugin"), wide="B"
)
_EDITOR: Final = Options(plus=True, code="cSsuW", long_code=long_of("cmd eval load funcall"), wide="w")
_NODE: Final = Options(
    code="epr", long_code=long_of("eval print require import loader experimental-loader"), leading=True
)
_NPM: Final = Options(
    "c",
    "C",
    "w",
    long_of("call script-shell shell editor viewer browser git onload-script"),
    long_of("prefix userconfig globalconfig node-options init-module dir cwd"),
)
_APT: Final = Options("o", "c", "t", long_of("option"), long_of("config-file"))
_COPY: Final = Options("SDo", "F", "cilPJXlBbR")

_TABLE: Final[dict[str, Options]] = {
    "find": Options(
        dashes_run=words_of("-exec -execdir -ok -okdir"),
        dashes_wide=words_of("-delete -fprint -fprint0 -fprintf -fls -files0-from"),
    ),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _TAR),
    "cpio": Options("", "FOI", "", long_of("rsh-command"), long_of("file")),
    "rsync": Options(
        "e", "M", "fT", long_of("rsh rsync-path"), long_of("daemon config write-batch log-file server files-from")
    ),
    **dict.fromkeys(("scp", "sftp"), _COPY),
    "sort": Options("", "o", "kStT", long_of("compress-program"), long_of("output files0-from")),
    "split": Options(long_runs=long_of("filter")),
    "man": Options("PH", "CM", "sLmre", long_of("pager html"), long_of("config-file manpath")),
    "zip": Options(dashes_run=words_of("-TT"), long_runs=long_of("unzip-command")),
    "install": Options(long_runs=long_of("strip-program"), valued="gmotS"),
    **dict.fromkeys(("gcc", "g++", "cc", "c++", "clang", "clang++"), _CC),
    "make": Options("", "fI", "jlWo", long_of("eval"), long_of("file makefile include-dir")),
    "wget": Options(
        "e", "OPoai", "", long_of("use-askpass execute"), long_of("config output-document directory-prefix")
    ),
    "curl": Options(
        "", "KocD", "HdXuAebFTxmrwC", frozenset(), long_of("config output cookie-jar dump-header engine trace")
    ),
    **dict.fromkeys(("apt", "apt-get", "aptitude"), _APT),
    "dpkg": Options(long_runs=long_of("pre-invoke post-invoke status-logger")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _NPM),
    **dict.fromkeys(("pip", "pip3"), Options(long_runs=long_of("python"), long_wide=long_of("log editor"))),
    "docker": Options(
        wide="Hv", long_wide=long_of("entrypoint host config volume mount privileged device pid cap-add")
    ),
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "view", "vimdiff", "emacs", "nano"), _EDITOR),
    **dict.fromkeys(("python", "python2", "python3", "pypy", "pypy3"), Options(code="c", valued="WX", leading=True)),
    "perl": Options(code="eEMm", valued="I", leading=True),
    "ruby": Options(code="er", valued="IC", leading=True),
    **dict.fromkeys(("node", "nodejs", "deno"), _NODE),
    "php": Options(code="rBRE", wide="cd", leading=True),
    **dict.fromkeys(("lua", "luajit"), Options(code="el", leading=True)),
    "dc": Options(code="e", long_code=long_of("expression")),
    "psql": Options(code="c", wide="of", long_code=long_of("command"), long_wide=long_of("output file")),
    "sqlite3": Options(dashes_run=words_of("-cmd -init")),
    "tclsh": Options(leading=True),
    "ed": Options(),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), Options(valued="Fv")),
    **dict.fromkeys(("sed", "gsed"), Options(valued="el")),
    "git": Options(),
}
# Programs none of whose options runs or writes anything: a file's name may become an option of theirs.
INERT: Final = words_of(
    "ls cat echo wc head tail grep egrep fgrep stat file du basename dirname md5sum sha256sum nl tac rev"
)

# Words that a program runs what follows by.
_RUNNERS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("poetry", "pipenv", "conda", "mamba", "hatch", "pdm", "rye"), words_of("run")),
    **dict.fromkeys(("pyenv", "rbenv", "nodenv", "direnv", "bundle"), words_of("exec")),
    "npm": words_of("exec x explore edit config set init create innit"),
    **dict.fromkeys(("yarn", "pnpm", "bun"), words_of("exec dlx x config create init")),
    "nvm": words_of("exec run"),
    "docker": words_of("exec"),
}
# Programs that run what they are given, with options too many and too rich to be listed: any word may begin it.
GREEDY: Final = frozenset(
    {
        *("su", "runuser", "unshare", "nsenter", "setpriv", "capsh", "pkexec", "gosu", "su-exec", "start-stop-daemon"),
        *("strace", "ltrace", "gdb", "lldb", "valgrind", "perf", "rr", "watch", "script", "expect", "unbuffer", "tmux"),
        *("screen", "parallel", "flock", "busybox", "toybox", "systemd-run", "dbus-run-session", "xvfb-run", "proot"),
        *("ssh", "entr", "inotifywait", "fd", "fdfind", "bwrap", "firejail", "prlimit", "numactl", "cpulimit", "at"),
        *("bind", "complete", "compgen", "mapfile", "readarray", "jobs", "noglob", "nocorrect", "uv", "npx", "rlwrap"),
        *("setarch", "linux32", "linux64", "i386", "x86_64", "choom", "systemd-inhibit", "sem", "ts", "daemonize"),
        *("logsave", "sg", "run0", "systemd-cat", "chpst", "softlimit", "dumb-init", "tini", "s6-setuidgid", "nc"),
        *("eatmydata", "faketime", "proxychains", "proxychains4", "torsocks", "ccache", "distcc", "hyperfine", "ncat"),
        *("socat", "dbus-launch", "catchsegv", "batch", "ip", "dotenv"),
    }
)
_WRAPPERS: Final = words_of(
    "sudo doas env nice ionice chrt taskset timeout nohup setsid stdbuf time xargs command builtin exec chroot fakeroot"
    " eval source . trap"
)
_SHELLS: Final = words_of("sh bash dash zsh ksh ash fish rbash")
_SHELL_TEXT: Final = re.compile(r"-[A-Za-z]*[cs]|--(?:rc|init)")
_RUNS_WORDS: Final = _WRAPPERS | _SHELLS | GREEDY
_HARMLESS: Final = re.compile(r"[A-Za-z0-9_./: ]*")  # arguments without an option or a setting
_PROGRAM: Final = re.compile(r"(?!-)(?![A-Za-z_][A-Za-z0-9_]*=)(?![0-9.]+[smhd]?$).*", re.DOTALL)


PROGRAMS: Final = _TABLE.keys() | _RUNNERS.keys()


def can_reach(name: str) -> bool:
    """Whether this program is one that may run others, so that each of its words has to be certain."""
    return name in PROGRAMS


def doubtful_words(words: Sequence[str]) -> int:
    """How many words of a call may be options by which it runs something: none where it has no such option."""
    name = words[0].rpartition("/")[2]
    options = _TABLE.get(name)
    if options is None or not (name in JUDGES or options.runs_something):
        return 0
    for at, word in enumerate(words[1:], 1):
        if word == "--" and name != "find":
            return at
        if options.leading and word[:1] != "-" and word[:1] != "\0":
            return at
    return len(words)


def reaches(words: Sequence[str]) -> list[Reach]:
    """What in this call goes beyond the program itself."""
    name = words[0].rpartition("/")[2]
    options = _TABLE.get(name)
    if options is None and name not in _RUNNERS:
        return []
    judge = JUDGES.get(name)
    plain = (judge is None or name == "make") and name not in _RUNNERS and not (options and options.bundle)
    if plain and _HARMLESS.fullmatch(" ".join(words[1:])):
        return []
    found = list(judge(words)) if judge is not None else []
    runners = _RUNNERS.get(name)
    if runners is not None:
        at = next((at for at, word in enumerate(words[1:], 1) if word[:1] != "-"), 0)
        if at and words[at] in runners:
            found.append(Reach(len(words), " ".join(words[at + 1 :])))
    if options is not None and name != "git":
        found += reached_by(words, options, 1)
    return found


def named_words(words: Sequence[str]) -> int:
    """How many words of a call a rule with a wildcard has to name itself: up to what is run inside, or reached."""
    start = through = 0
    while start < len(words) and (name := words[start].rpartition("/")[2]) in _RUNS_WORDS:
        if name in _SHELLS and not any(_SHELL_TEXT.match(word) for word in words[start + 1 :]):
            break  # a script in a file is a program like others
        if name in GREEDY:
            return len(words)
        inner = next((at for at in range(start + 1, len(words)) if _PROGRAM.fullmatch(words[at])), len(words))
        start, through = inner, min(inner + 1, len(words))
    if start < len(words):
        through = max([through, *(start + reach.through for reach in reaches(words[start:]))])
    return min(through, len(words))
