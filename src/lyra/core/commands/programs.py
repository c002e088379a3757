"""Programs that run others: which words of a call can run something, read other settings, or write anywhere.

`git *` sounds harmless; `git -c alias.x='!rm y' x`, `tar -I rm` and `sed '1e rm y'` are not. `reaches(words)` lists
what a call does beyond the program itself: the words that a rule with a wildcard has to name, the text that is run
where there is one, and whether code is run that cannot be checked. A rule that allows a program outside these tables
allows all that it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lyra.core.commands.languages import JUDGES, Judge, module_call
from lyra.core.commands.option_reach import ProgramOptions, Reach, own_words, reached_by, words_of
from lyra.core.commands.options import OPTIONS

__all__ = [
    "GREEDY",
    "INERT",
    "PROGRAMS",
    "can_reach",
    "doubtful_words",
    "language_of",
    "named_words",
    "program_name",
    "reaches",
]

# Programs without an option that runs or writes anything: a wildcard may expand to a file name that is an option.
INERT: Final = words_of(
    "ls cat echo wc head tail grep egrep fgrep stat file du basename dirname md5sum sha256sum nl tac rev"
)

# Words after which a program runs the rest of the call.
_RUNNERS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("poetry", "pipenv", "conda", "mamba", "hatch", "pdm", "rye", "pipx"), words_of("run")),
    **dict.fromkeys(("pyenv", "rbenv", "nodenv", "direnv", "bundle", "asdf", "mise"), words_of("exec x")),
    "npm": words_of("exec x explore edit config set init create innit"),
    **dict.fromkeys(("yarn", "pnpm", "bun"), words_of("exec dlx x config create init")),
    "nvm": words_of("exec run"),
    **dict.fromkeys(("nix", "guix", "flatpak", "snap"), words_of("run shell develop")),
    "cmake": words_of("-E"),
    "just": words_of("-c --command"),
    "R": words_of("CMD"),
    "cargo": words_of("watch"),
}
# The same in a container or on another machine: deny rules look at the inner command, allow rules need not name it.
_INSIDE: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "oc"), words_of("exec run debug")),
    "adb": words_of("shell exec-out"),
}
# Programs that run their arguments and have too many options to list: any word may begin the inner command.
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
        *(
            "socat",
            "dbus-launch",
            "catchsegv",
            "batch",
            "ip",
            "dotenv",
            "uvx",
            "pnpx",
            "bunx",
            "ssh-agent",
            "run-parts",
        ),
        *("xterm", "gnome-terminal", "konsole", "kitty", "alacritty", "wezterm", "foot", "wine", "wine64", "nix-shell"),
        *("qemu-x86_64", "qemu-aarch64", "cgexec", "aa-exec", "chronic", "ifne", "mispipe", "pee", "zrun", "pwsh"),
        *("env-cmd", "cross-env", "nodemon", "concurrently", "watchexec", "chokidar", "onchange", "reflex", "fswatch"),
        *("lxc-attach", "lxc", "machinectl", "distrobox", "toolbox", "vagrant", "mosh", "sshpass", "autossh", "daemon"),
        *(
            "setuidgid",
            "envdir",
            "envuidgid",
            "execlineb",
            "tcpserver",
            "mpirun",
            "mpiexec",
            "srun",
            "salloc",
            "sbatch",
        ),
        *("uftrace", "heaptrack", "nsys", "ncu", "nvprof", "trickle", "fakechroot", "schroot", "nsjail", "minijail0"),
        *("runc", "crun", "ctr", "torify", "tsocks", "dtach", "abduco", "zellij", "byobu", "ttyrec", "asciinema"),
        *("lockf", "setlock", "run-one", "timelimit", "rush", "qemu", "git-shell", "git-remote-ext", "git-bisect"),
        *("git-submodule", "git-filter-branch", "git-difftool", "git-rebase", "unbuffer-pipe", "bsdtime", "gtime"),
        *("cargo-watch",),
    }
)
_WRAPPERS: Final = words_of(
    "sudo doas env nice ionice chrt taskset timeout nohup setsid stdbuf time xargs command builtin exec chroot fakeroot"
    " eval source . trap"
)
_SHELLS: Final = words_of("sh bash dash zsh ksh ash fish rbash")
_SHELL_TEXT: Final = re.compile(r"-[A-Za-z]*[cs]|--(?:rc|init)")
_RUNS_WORDS: Final = _WRAPPERS | _SHELLS | GREEDY
_MODULES_OF: Final = words_of("python pypy")
_HARMLESS: Final = re.compile(r"[A-Za-z0-9_./: ]*")  # arguments without an option or a setting
_DIGITS: Final = frozenset("0123456789")
_PROGRAM: Final = re.compile(r"(?!-)(?![A-Za-z_][A-Za-z0-9_]*=)(?![0-9.]+[smhd]?$).*", re.DOTALL)


PROGRAMS: Final = OPTIONS.keys() | _RUNNERS.keys() | _INSIDE.keys()


def program_name(word: str) -> str:
    """The program's name in the tables: `/usr/bin/python3.11` is python, `ld-linux-x86-64.so.2` is ld.so."""
    name = word.rpartition("/")[2]
    if name[-1:] not in _DIGITS:
        return name
    if name[:3] == "ld-" and ".so" in name:
        return "ld.so"
    return name if name in PROGRAMS or name in _RUNS_WORDS else name.rstrip("0123456789.-") or name


def language_of(name: str) -> str:
    """The language of the code in a program's options; "" where that code is not parsed."""
    options = OPTIONS.get(name)
    return options.language if options is not None else ""


def can_reach(name: str) -> bool:
    """Whether this program may run others, so that each of its words has to be known exactly."""
    return name in PROGRAMS


def doubtful_words(words: Sequence[str]) -> int:
    """How many words of a call may be options that run something; 0 for a program without such options."""
    name = program_name(words[0])
    options = OPTIONS.get(name)
    if options is None or not (name in JUDGES or options.runs_something):
        return 0
    last = own_words(words, options) if options.leading else len(words)
    for index, word in enumerate(words[1:last], 1):
        if word == "--" and name != "find":
            return index
    return last


class _Plan(NamedTuple):
    """How the calls of one program are judged."""

    judge: Judge | None
    options: ProgramOptions | None
    by_word: bool  # a word of its call may be followed by a command
    by_options: bool  # only options make it reach further


def _plan_of(name: str) -> _Plan:
    judge, options = JUDGES.get(name), OPTIONS.get(name)
    by_word = name in _RUNNERS or name in _INSIDE
    bundle = options is not None and options.bundle
    by_options = (judge is None or name == "make") and not by_word and not bundle
    return _Plan(judge, options if name != "git" else None, by_word, by_options)


_PLANS: Final = {name: _plan_of(name) for name in PROGRAMS}


def reaches(words: Sequence[str]) -> list[Reach]:
    """Everything that this call does beyond the program itself."""
    name = program_name(words[0])
    plan = _PLANS.get(name)
    if plan is None or (plan.by_options and _HARMLESS.fullmatch(" ".join(words[1:]))):
        return []
    all_reaches = list(plan.judge(words)) if plan.judge is not None else []
    if name in _MODULES_OF:
        words_before, called = module_call(words)
        if called:
            all_reaches += [reach._replace(through=reach.through + words_before) for reach in reaches(called)]
    if plan.by_word:
        all_reaches += _run_by_word(name, words)
    if plan.options is not None:
        all_reaches += reached_by(words, plan.options, 1)
    return all_reaches


def _run_by_word(name: str, words: Sequence[str]) -> Iterator[Reach]:
    """`poetry run rm x`, `docker exec -it c rm x`: after options, any later word may begin the inner command."""
    if name in _INSIDE:
        index = next((index for index, word in enumerate(words) if word in _INSIDE[name]), 0)
        if index:
            yield Reach(index + 1, begins=index + 1)
        return
    index = _runner_in(words, _RUNNERS[name])
    if index:
        after = index + 1
        if after < len(words) and words[after][:1] == "-":
            yield Reach(len(words), begins=after)
        else:
            yield Reach(len(words), " ".join(words[after:]))


def _runner_in(words: Sequence[str], runners: frozenset[str]) -> int:
    """The index of the word that runs the rest: the first plain word, which may follow options and their values; or
    0."""
    plain = 0
    for index, word in enumerate(words[1:], 1):
        if word in runners:
            return index
        if word[:1] == "+":
            continue  # cargo +nightly
        if word[:1] == "-":
            plain = 0 if "=" in word else -1
        else:
            plain += 1
            if plain > 0:
                return 0
    return 0


def named_words(words: Sequence[str]) -> int:
    """How many words of a call a rule with a wildcard has to name: up to the inner command or the last reach."""
    start = through = 0
    while start < len(words) and (name := program_name(words[start])) in _RUNS_WORDS:
        if name in _SHELLS and not any(_SHELL_TEXT.match(word) for word in words[start + 1 :]):
            break  # a script in a file is an ordinary program
        if name in GREEDY:
            return len(words)
        inner = next((index for index in range(start + 1, len(words)) if _PROGRAM.fullmatch(words[index])), len(words))
        start, through = inner, min(inner + 1, len(words))
    if start < len(words):
        through = max([through, *(start + reach.through for reach in reaches(words[start:]))])
    return min(through, len(words))
