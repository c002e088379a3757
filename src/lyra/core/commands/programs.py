"""Programs that run others: which words of a call can run something, read other settings, or write anywhere.

`git *` sounds harmless; `git -c alias.x='!rm y' x`, `tar -I rm` and `sed '1e rm y'` are not. `reaches(words)` lists
what a call does beyond the program itself: the words that a rule with a wildcard has to name, the text that is run
where there is one, and whether code is run that cannot be checked. A rule that allows a program outside these tables
allows all that it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from lyra.core.commands.languages import JUDGES, ONLY_WRITE, Judge, module_call
from lyra.core.commands.option_reach import OptionReach, ProgramOptions, count_own_words, find_reached, words_of
from lyra.core.commands.options import OPTIONS

# Programs without an option that runs or writes anything: a wildcard may expand to a file name that is an option.
INERT: Final = words_of(
    "ls cat echo wc head tail grep egrep fgrep stat du basename dirname md5sum sha256sum nl tac rev"
)

# Words after which a program runs the rest of the call.
_RUNNERS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(
        ("poetry", "pipenv", "conda", "mamba", "micromamba", "hatch", "pdm", "rye", "pipx", "pixi"),
        words_of("run exec"),
    ),
    **dict.fromkeys(
        words_of("pyenv rbenv nodenv goenv jenv plenv nodeenv direnv bundle asdf mise rtx fnm"), words_of("exec x")
    ),
    "npm": words_of("exec x explore edit config set init create innit"),
    **dict.fromkeys(("yarn", "pnpm", "bun"), words_of("exec dlx x config create init")),
    **dict.fromkeys(("lerna", "nx", "turbo"), words_of("exec")),
    **dict.fromkeys(("nvm", "n", "volta", "rustup", "ghcup"), words_of("exec run which")),
    **dict.fromkeys(("nix", "guix", "flatpak", "snap"), words_of("run shell develop environment time-machine")),
    **dict.fromkeys(
        ("stack", "cabal"), words_of("exec run runghc runhaskell ghci ghc script eval repl v2-exec v2-run")
    ),
    **dict.fromkeys(("dune", "esy", "tox"), words_of("exec x b")),
    "opam": words_of("exec config"),  # `opam config exec`, of older versions
    **dict.fromkeys(("lake", "mix", "meson", "spack"), words_of("exe env cmd devenv build-env run")),
    **dict.fromkeys(
        ("aws-vault", "saml2aws", "chamber", "doppler", "infisical", "teller", "dotenvx", "op", "honcho"),
        words_of("exec run"),
    ),
    **dict.fromkeys(("sops", "consul", "etcdctl"), words_of("exec-env exec-file exec lock watch exec-watch")),
    **dict.fromkeys(("foreman", "overmind", "goreman", "heroku", "pm2", "forever"), words_of("run run:detached start")),
    "brew": words_of("sh exec irb ruby bundle"),
    "cmake": words_of("-E"),
    **dict.fromkeys(("gem", "terragrunt"), words_of("exec")),
    "just": words_of("-c --command"),
    "R": words_of("CMD"),
    "cargo": words_of("watch"),
}
# The same in a container or on another machine: deny rules look at the inner command, allow rules need not name it.
_INSIDE: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "oc"), words_of("exec run debug rsh ssh")),
    **dict.fromkeys(("docker-compose", "podman-compose", "buildah", "crictl", "k3s"), words_of("exec run")),
    **dict.fromkeys(("incus", "multipass", "microk8s", "limactl", "colima", "minikube"), words_of("exec shell ssh")),
    **dict.fromkeys(("gcloud", "fly", "flyctl"), words_of("ssh")),
    "adb": words_of("shell exec-out"),
    "pulumi": words_of("run"),  # pulumi env run
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
        *("cargo-watch", "systemd-nspawn", "lxc-execute", "arch-chroot", "switch_root", "pivot_root", "flatpak-spawn"),
        *("distrobox-enter", "distrobox-host-exec", "host-spawn", "sandbox-exec", "launchctl", "s6-applyuidgid"),
        *(
            "s6-setsid",
            "s6-notifyoncheck",
            "s6-envdir",
            "pgrphack",
            "fghack",
            "setpgrp",
            "inetd",
            "viddy",
            "hwatch",
            "xe",
        ),
        *("rsh", "remsh", "rexec", "dbclient", "plink", "pssh", "parallel-ssh", "pdsh", "clush", "dsh", "et", "salt"),
        *("salt-call", "fab", "knife", "gksudo", "gksu", "kdesu", "kdesudo", "super", "please", "calife", "sudo-rs"),
        *(
            "dzdo",
            "pfexec",
            "runas",
            "uname26",
            "gdbserver",
            "memusage",
            "sotruss",
            "trace-cmd",
            "sysprof-cli",
            "samply",
        ),
        *(
            "multitime",
            "bench",
            "poop",
            "lckdo",
            "dotlockfile",
            "with-lock-ex",
            "gpg-agent",
            "keychain",
            "xinit",
            "startx",
        ),
        *("urxvt", "rxvt", "st", "terminator", "tilix", "xfce4-terminal", "lxterminal", "mate-terminal", "qterminal"),
        *(
            "cool-retro-term",
            "ghostty",
            "sakura",
            "dtruss",
            "lima",
            "lfs",
            "websocat",
            "watchman-make",
            "watchmedo",
            "envchain",
        ),
        *("summon", "envconsul", "consul-template", "qsub", "bsub", "condor_run", "oarsub", "jsrun", "aprun", "pexec"),
        *("ppss", "uutils", "sbase-box", "ubase-box", "box64", "lsyncd", "nox", "corepack"),
    }
)
_WRAPPERS: Final = words_of(
    "sudo doas env nice ionice chrt taskset timeout nohup setsid stdbuf time xargs command builtin exec chroot fakeroot"
    " eval source . trap"
)
# Shells whose language is read, and shells with their own language, which is not.
SHELLS: Final = words_of(
    "sh bash dash zsh ksh mksh ash rbash fish yash posh rzsh lksh pdksh oksh loksh hush bosh pbosh osh jsh"
    " static-sh sash"
)
OTHER_SHELLS: Final = words_of(
    "csh tcsh nu elvish xonsh ysh oil rc es scsh ion murex ngs gash pwsh powershell pwsh-preview closh shill nsh"
)
_SHELLS: Final = SHELLS | OTHER_SHELLS
_SHELL_TEXT: Final = re.compile(r"-[A-Za-z]*[cs]|--(?:rc|init)")
_WHOLE: Final = words_of("coreutils run-parts")  # a rule has to name every word of such a call
_RUNS_WORDS: Final = _WRAPPERS | _SHELLS | GREEDY | _WHOLE
_MODULES_OF: Final = words_of("python pypy")
_HARMLESS: Final = re.compile(r"[A-Za-z0-9_./: ]*")  # arguments without an option or a setting
_DIGITS: Final = frozenset("0123456789")
_PROGRAM: Final = re.compile(r"(?!-)(?![A-Za-z_][A-Za-z0-9_]*=)(?![0-9.]+[smhd]?$).*", re.DOTALL)


PROGRAMS: Final = OPTIONS.keys() | _RUNNERS.keys() | _INSIDE.keys()

# Other names of programs in the tables: GNU tools on other systems, and names that distributions give.
_GNU: Final = words_of(
    "awk sed tar find xargs make sort split install env nice nohup timeout stdbuf chroot time date ls cat cp mv"
    " rm ln head tail cut tr wc tee touch mkdir rmdir echo printf test sleep stat du df dd uniq join comm paste"
    " readlink realpath"
)
_ALIASES: Final[dict[str, str]] = {
    **{f"g{name}": name for name in _GNU - {"awk", "sed", "tar"}},  # these three have rows of their own
    **dict.fromkeys(("goawk", "original-awk", "bwk"), "awk"),
    "ssed": "sed",
    **dict.fromkeys(("remake", "bmake", "pmake", "nmake"), "make"),
    "bfs": "find",
    "slogin": "ssh",
    **dict.fromkeys(("ipython", "bpython", "ptpython", "micropython", "jython", "graalpy", "python-config"), "python"),
    "jruby": "ruby",
    **dict.fromkeys(("ts-node", "tsx", "qjs", "d8", "js", "rhino", "coffee", "nodejs"), "node"),
    "texlua": "lua",
    "hhvm": "php",
    "duckdb": "sqlite3",
    **dict.fromkeys(("pico", "rnano"), "nano"),
    **dict.fromkeys(("rpmspec", "rpmbuild"), "rpm"),
    "gpg2": "gpg",
    "hub": "git",
    "vi-improved": "vim",
    "batcat": "bat",
    "bazelisk": "bazel",
    **dict.fromkeys(("perl-rename", "prename", "file-rename"), "rename"),
}
_STATIC: Final = ("-static", ".static")


@lru_cache(maxsize=1024)
def program_name(word: str) -> str:
    """Return the program's name in the tables: `/usr/bin/python3.11` is python, `ld-linux-x86-64.so.2` is ld.so."""
    name = word.rpartition("/")[2]
    name = _ALIASES.get(name, name)
    if name.endswith(_STATIC):
        name = name[: -len(_STATIC[0])]
    if name[-1:] not in _DIGITS:
        return name
    if name[:3] == "ld-" and ".so" in name:
        return "ld.so"
    if name in PROGRAMS or name in _RUNS_WORDS:
        return name
    bare = name.rstrip("0123456789.-") or name
    return _ALIASES.get(bare, bare)


def language_of(name: str) -> str:
    """Return the language of the code in a program's options; "" where that code is not parsed."""
    options = OPTIONS.get(name)
    return options.language if options is not None else ""


def can_reach(name: str) -> bool:
    """Return whether this program may run others, so that each of its words has to be known exactly."""
    return name in PROGRAMS


def doubtful_words(words: Sequence[str]) -> int:
    """Return how many words of a call may be options that run something; 0 for a program without such options."""
    name = program_name(words[0])
    options = OPTIONS.get(name)
    if options is None or not ((name in JUDGES and name not in ONLY_WRITE) or options.runs_something):
        return 0
    last = count_own_words(words, options) if options.leading else len(words)
    for index, word in enumerate(words[1:last], 1):
        if word == "--" and name != "find":
            return index
    return last


def runs_its_words(word: str) -> bool:
    """Return whether a program runs whatever its words say, as shells and `sudo` do."""
    return program_name(word) in _RUNS_WORDS


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


def reaches(words: Sequence[str]) -> list[OptionReach]:
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
        all_reaches += find_reached(words, plan.options, 1)
    return all_reaches


def _run_by_word(name: str, words: Sequence[str]) -> Iterator[OptionReach]:
    """`poetry run rm x`, `docker exec -it c rm x`: after options, any later word may begin the inner command."""
    if name in _INSIDE:
        index = next((index for index, word in enumerate(words) if word in _INSIDE[name]), 0)
        if index:
            yield OptionReach(index + 1, begins=index + 1)
        return
    index = _runner_in(words, _RUNNERS[name])
    if index:
        after = index + 1
        if after < len(words) and words[after][:1] == "-":
            yield OptionReach(len(words), begins=after)
        else:
            yield OptionReach(len(words), " ".join(words[after:]))


def _runner_in(words: Sequence[str], runners: frozenset[str]) -> int:
    """Return the index of the word that runs the rest: the first plain word, which may follow options and their values;
    or 0."""
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


def count_named_words(words: Sequence[str]) -> int:
    """Return how many words of a call a rule with a wildcard has to name: up to the inner command or the last reach."""
    start = through = 0
    while start < len(words) and (name := program_name(words[start])) in _RUNS_WORDS:
        if name in _SHELLS and not any(_SHELL_TEXT.match(word) for word in words[start + 1 :]):
            break  # a script in a file is an ordinary program
        if name in GREEDY or name in _WHOLE:
            return len(words)
        inner = next((index for index in range(start + 1, len(words)) if _PROGRAM.fullmatch(words[index])), len(words))
        start, through = inner, min(inner + 1, len(words))
    if start < len(words):
        through = max([through, *(start + reach.through for reach in reaches(words[start:]))])
    return min(through, len(words))


# Programs that are known to take no argument for a command: names of files, patterns, packages, subcommands.

ORDINARY: Final = words_of(
    # Files and folders.
    "ls dir vdir cat tac head tail nl rev cp mv rm ln mkdir rmdir touch chmod chown chgrp stat file readlink realpath"
    " basename dirname pwd mktemp mkfifo mknod truncate shred dd tee tree du df sync lsof fuser mount umount lsblk"
    " blkid findmnt install shuf pathchk setfacl getfacl chattr lsattr getfattr setfattr namei exa eza lsd rmtrash"
    " trash"
    # Text.
    " echo printf cut tr uniq comm paste join fold fmt expand unexpand column seq yes wc grep egrep fgrep cksum"
    " md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum sum base64 base32 basenc base od xxd hexdump hd"
    " strings diff cmp colordiff iconv dos2unix unix2dos pr ptx tsort numfmt look spell aspell hunspell"
    " csvcut csvlook csvstat jq yq xq tomlq xmllint jsonlint yamllint cloc tokei scc wdiff vimdiff"
    # Archives.
    " gzip gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat zstd unzstd zstdcat lz4 brotli unzip 7z 7za 7zr unrar rar ar"
    # The machine and its processes.
    " true false test [ : sleep date cal id whoami who w users groups hostname hostnamectl uname uptime free vmstat"
    " iostat mpstat nproc lscpu lspci lsusb lsmod dmesg ps pgrep pkill kill killall pidof pstree top htop btop jobs fg"
    " bg wait journalctl systemctl service loginctl timedatectl localectl last lastlog tty stty locale getconf sysctl"
    # The shell.
    " cd pushd popd dirs export unset set shopt read exit return break continue shift local declare typeset readonly"
    " type which whereis whatis apropos info help hash umask ulimit alias unalias history times logout suspend disown"
    " let getopts printenv clear reset tput"
    # The net.
    " ping ping6 dig nslookup host whois traceroute tracepath mtr ifconfig netstat ss arp route getent nmcli iw"
    # Building, testing, checking.
    " pytest py.test unittest nosetests coverage ruff black isort flake8 pyflakes pycodestyle pyright"
    " basedpyright ty bandit autopep8 yapf pre-commit djlint sphinx-build mkdocs twine build flit maturin pip-compile"
    " pip-sync tsc eslint prettier jest vitest mocha ava karma cypress playwright webpack rollup vite esbuild swc"
    " babel stylelint biome oxlint next nuxt astro ng vue svelte-check tailwindcss postcss sass storybook rustc"
    " rustfmt clippy-driver gofmt goimports golangci-lint staticcheck golint"
    " clang-format clang-tidy cppcheck nm objdump objcopy readelf size strip addr2line"
    " c++filt gcov gprof autoconf automake aclocal pkg-config meson buf flatc thrift antlr"
    " nuget phpunit phpstan rspec rubocop erlc elixirc ghc-pkg hlint ormolu shellcheck"
    " shfmt hadolint actionlint markdownlint vale codespell typos semgrep trivy snyk gitleaks"
    # Packages and services.
    " apk dnf yum zypper pacman brew port opam choco winget scoop dpkg-query apt-cache apt-mark"
    " apt-file snapcraft terraform tofu packer kustomize argocd istioctl eksctl aws az doctl s3cmd mc"
    " pg_dump pg_restore pg_isready createdb dropdb mysqldump mysqladmin redis-cli mongodump mongorestore influx"
    " sqlcmd alembic flyway liquibase prisma tea git-lfs svnadmin ssh-keygen ssh-add ssh-keyscan"
    " gpgconf age ollama huggingface-cli hf kaggle nvidia-smi rocm-smi"
)
