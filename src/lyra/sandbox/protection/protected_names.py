"""The names of files and folders that commands and file tools may not write, and of those that they may not read.

Two tables hold everywhere. `READ_ONLY` are files that a program of the user obeys without being asked: version control,
shells, editors, other agents, package managers, debuggers, session managers. `HIDDEN` are files that hold keys; those
of `OBEYED_KEYS` are obeyed as well. `ASKED` are files that editors and other agents obey, too, and that ordinary work
edits: settings of checkers, which may name code, and instructions for agents. Commands do not write them, and a file
tool asks a person first. `IN_HOME` holds for paths of the user's home folder. A name with a slash is a name in a folder
of that name. What a person starts on purpose (Makefile, package.json, pyproject.toml, conftest.py, CI files) is in none
of them: agents write those.

Nothing here looks at the disk. Lyra's own files outside a project are in `lyra.core.own_files`, git repositories that
are told by their shape in `git_repositories`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Final, Literal

Kind = Literal["hidden", "read_only"]

_VERSION_CONTROL: Final = (
    *(".git", ".gitmodules", ".gitattributes", ".gitconfig", ".config/git", ".githooks", ".git-hooks", ".tigrc"),
    *(".hg", ".hgrc", ".svn", ".bzr", ".jj", ".sl", ".config/jj", ".pijul", ".config/lazygit"),
    *(".husky", ".pre-commit-config.yaml", ".overcommit.yml", ".lefthook", ".lefthook-local"),
    *("lefthook.yml", "lefthook.yaml", "lefthook.toml", "lefthook.json", ".lefthook.yml", ".lefthook.yaml"),
    *("lefthook-local.yml", "lefthook-local.yaml", ".lefthook-local.yml", ".lefthook.toml", ".lefthook.json"),
    *(".simple-git-hooks.js", ".simple-git-hooks.cjs", ".simple-git-hooks.json"),
    *("simple-git-hooks.js", "simple-git-hooks.cjs", "simple-git-hooks.json"),
    *(".huskyrc*", ".lintstagedrc*", "lint-staged.config.*", ".pre-commit-config.yml", "prek.toml", ".lfsconfig"),
    *(".subversion", ".jjconfig.toml", ".quiltrc"),
)
LYRAS: Final = (".lyra", "lyra.toml", ".mcp.json")
_SHELLS: Final = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".zshrc.local", ".oh-my-zsh", ".zpreztorc", ".p10k.zsh"),
    *(".kshrc", ".mkshrc", ".shrc", ".shinit", ".cshrc", ".tcshrc", ".login", ".logout", ".xonshrc"),
    *(".config/fish", ".config/nushell", ".config/zsh", ".config/bash", ".config/elvish", ".config/starship.toml"),
    *(".envrc", ".direnvrc", ".config/direnv", ".direnv", ".autoenv", ".autoenv.zsh", ".autoenv_leave.zsh"),
    *(".rvmrc", ".rbenv-vars", ".asdfrc", ".mise.toml", "mise.toml", ".mise.local.toml", "mise.local.toml", ".mise"),
    *(".config/mise", ".rtx.toml", ".config/rtx", ".config/powershell", ".pam_environment"),
    *(".tmux.conf", ".tmux", ".config/tmux", ".screenrc", ".config/zellij", ".tmuxinator", ".config/tmuxinator"),
    *(".lesskey", ".less", ".ackrc", ".curlrc", "_curlrc", ".config/curlrc", ".wgetrc", ".lftprc", ".lftp"),
    *(".envrc.local", ".envrc.private", ".bash_completion", ".bash_completion.d", ".bashrc.d", ".bashrc.local"),
    *(".oh-my-bash", ".zshrc.zwc", ".zshenv.zwc", ".zprofile.zwc", ".zlogin.zwc", ".zlogout.zwc", ".zcompdump*"),
    *(".lessfilter", ".rhosts"),
)
_EDITORS: Final = (
    *(".vscode", ".vscode-server", ".vscode-insiders", ".vscode-oss", "*.code-workspace", ".idea", ".fleet", ".zed"),
    *(".vimrc", "_vimrc", ".gvimrc", "_gvimrc", ".exrc", "_exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".vim"),
    *(".local.vimrc", ".vimspector.json", ".config/nvim", ".config/vim", ".config/zed", ".config/code"),
    *(".emacs", ".emacs.d", ".emacs.el", ".dir-locals.el", ".dir-locals-2.el", ".doom.d", ".spacemacs", ".spacemacs.d"),
    *(".config/emacs", ".config/doom", ".helix", ".config/helix", ".kakrc", ".config/kak", ".kak", ".nanorc"),
    *(".config/nano", ".config/micro", "*.sublime-project", "*.sublime-workspace", ".atom", ".vs", ".theia"),
    *(".externalToolBuilders", ".devcontainer", ".devcontainer.json", ".gitpod.yml", ".gitpod.Dockerfile"),
    *(".bsp", "hie.yaml", ".lsp/config.edn", "omnisharp.json", ".pylintrc", "pylintrc", ".latexmkrc", "latexmkrc"),
)
_AGENTS: Final = (
    *(".claude", ".claude.json", ".cursor", ".cursorrules", ".codex", ".gemini", ".windsurf", ".windsurfrules"),
    *(".cline", ".clinerules", ".roo", ".roomodes", ".roorules", ".kilocode", ".continue", ".continuerc.json"),
    *(
        ".aider.conf.yml",
        ".aider.model.settings.yml",
        ".opencode",
        "opencode.json",
        "opencode.jsonc",
        ".config/opencode",
    ),
    *(".amp", ".goose", ".goosehints", ".config/goose", ".augment", ".junie", ".kiro", ".qwen", ".trae", ".factory"),
    *(".openhands", ".crush.json", "crush.json", ".crush", ".amazonq", ".copilot", ".agents", ".tabnine", ".codeium"),
    *(".config/github-copilot", ".config/claude", ".config/codex", ".config/cursor", ".vscode-mcp.json"),
)
_PACKAGES: Final = (
    *(".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn/releases", ".yarn/plugins", ".pnpmfile.cjs", "bunfig.toml"),
    *(".bunfig.toml", ".pnpmrc", ".config/pnpm", ".config/yarn", ".nodenv"),
    *("pip.conf", "pip.ini", ".pip", ".config/pip", ".pydistutils.cfg", ".condarc", "condarc", ".mambarc"),
    *("uv.toml", ".config/uv", ".config/pypoetry", ".config/hatch", ".config/pdm"),
    *(".cargo/config", ".cargo/config.toml", ".cargo/env", ".cargo/bin", ".config/go", ".gemrc", ".bundle/config"),
    *(".gradle/init.d", ".gradle/init.gradle", ".gradle/init.gradle.kts", ".gradle/gradle.properties"),
    *(".mvn", ".mavenrc", ".m2/settings-security.xml", ".m2/extensions.xml", ".sbtopts", ".jvmopts", ".sbtrc"),
    *(
        ".config/nixpkgs",
        ".config/nix",
        ".config/home-manager",
        ".config/composer",
        ".cabal/config",
        ".stack/config.yaml",
    ),
    *(".terraformrc", ".tofurc", ".terraform.d", ".ansible.cfg", ".config/helm", ".config/containers"),
    *("rust-toolchain", "rust-toolchain.toml", ".bazelrc", ".bazeliskrc", "tools/bazel", "ansible.cfg", "nuget.config"),
    *(".pdm-python", ".pnpmfile.mjs", ".rpmmacros"),
)
_INTERPRETERS: Final = (
    *(".pythonrc", ".pythonrc.py", ".pythonstartup", ".pdbrc", ".pdbrc.py", ".ipython", ".jupyter", ".config/ipython"),
    *("sitecustomize.py", "usercustomize.py", ".irbrc", ".pryrc", ".rdbgrc", ".config/irb", ".config/pry"),
    *(".Rprofile", ".Renviron", ".julia/config", ".ghci", ".ocamlinit", ".erlang", ".iex.exs"),
    *(".perldb", ".proverc", ".user.ini", ".lein", ".clojure", ".nrepl.edn", ".sqliterc", ".psqlrc"),
    *(
        ".config/sqlite3",
        ".mongorc.js",
        ".mongoshrc.js",
        ".config/usql",
        ".guile",
        ".sbclrc",
        ".clinit.cl",
        ".lispworks",
    ),
    *(".gdbinit", ".gdbearlyinit", ".config/gdb", ".lldbinit", ".radare2rc", ".config/radare2", ".rizinrc", ".tclshrc"),
    *(".wishrc", ".octaverc", ".gnuplot"),
    *("jupyter_*_config.py", "jupyter_*_config.json", ".byebugrc", ".duckdbrc"),
)
_SESSIONS: Final = (
    *(".xinitrc", ".xsession", ".xsessionrc", ".xprofile", ".xserverrc", ".Xresources", ".Xdefaults", ".Xmodmap"),
    *(".gnomerc", ".config/autostart", ".config/systemd", ".config/environment.d", ".config/plasma-workspace"),
    *(".config/i3", ".config/sway", ".config/hypr", ".config/awesome", ".config/bspwm", ".config/openbox"),
    *(".config/kitty", ".config/alacritty", ".config/wezterm", ".wezterm.lua", ".config/ghostty", ".config/foot"),
    *(".config/mimeapps.list", ".mailcap", ".muttrc", ".config/mutt", ".procmailrc", ".forward", ".fetchmailrc"),
    *(".hammerspoon", ".skhdrc", ".yabairc", ".config/karabiner", ".crontab", ".qmail", ".local/bin"),
    *("Library/LaunchAgents", ".config/google-chrome", ".config/chromium"),
    *(".vnc/xstartup", ".mutt"),
)
READ_ONLY: Final = (*_VERSION_CONTROL, *LYRAS, *_SHELLS, *_EDITORS, *_AGENTS, *_PACKAGES, *_INTERPRETERS, *_SESSIONS)
# Checkers that editors run by themselves: their settings are code, or name plugins to load.
_CHECKERS: Final = (
    *(".flake8", "mypy.ini", ".mypy.ini", ".sqlfluff", ".eslintrc*", "eslint.config.*", ".prettierrc*"),
    *("prettier.config.*", ".stylelintrc*", "stylelint.config.*", "tslint.json", ".markdownlint.cjs"),
    *(".markdownlint-cli2.*", ".rubocop.yml", ".solargraph.yml", ".golangci.*", "phpstan.neon", "phpstan.neon.dist"),
    *(".credo.exs", ".luacheckrc", ".lintr", ".clangd", ".clang-tidy"),
)
# Instructions that agents read when they start in a folder.
_INSTRUCTIONS: Final = (
    *("AGENTS.md", "AGENTS.override.md", "AGENT.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", "QWEN.md", "SAGE.md"),
    *("WARP.md", "CRUSH.md", ".rules", ".github/copilot-instructions.md", ".github/instructions", ".github/prompts"),
    *(".github/chatmodes", ".github/agents"),
)
ASKED: Final = (*_CHECKERS, *_INSTRUCTIONS)
# Hidden files that hold keys and nothing else.
_KEYS: Final = (
    *(".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"),
    *("credentials.json", "service-account*.json", ".git-credentials", ".vault-token", ".pgpass", ".dev.vars"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".terraform.d/credentials.tfrc.json"),
    *(".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json"),
)
# Hidden files that a program obeys as well: they name commands, hosts and the people who may log in.
OBEYED_KEYS: Final = (
    *(".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".dockercfg", ".netrc", "_netrc", ".pypirc"),
    *(".my.cnf", ".mylogin.cnf", ".boto", ".s3cfg", ".password-store", ".m2/settings.xml", ".config/gcloud"),
    *(".config/gh", ".config/hub", ".config/rclone", ".config/op", ".config/doctl"),
)
HIDDEN: Final = (*_KEYS, *OBEYED_KEYS)
SHOWN: Final = frozenset({".env.example", ".env.sample", ".env.template", ".env.dist"})  # examples without keys
# Folders of a home folder: settings and programs, which the user's shell and session start. A project has others.
IN_HOME: Final = (
    *(".config", ".local", ".cargo", ".rustup", ".npm", ".nvm", ".fnm", ".volta", ".n", ".deno", ".bun", ".pyenv"),
    *(".rbenv", ".rvm", ".asdf", ".sdkman", ".jenv", ".goenv", ".phpenv", ".plenv", ".ghcup", ".cabal", ".stack"),
    *(".opam", ".dotnet", ".nuget", ".m2", ".gradle", ".ivy2", ".sbt", ".gem", ".composer", ".conda", ".mamba"),
    *(".julia", ".krew", ".linuxbrew", ".nix-profile", ".nix-defexpr", ".ansible"),
    *(".minikube", ".android", ".bash_it", ".zsh", ".zplug", ".zinit", ".antigen", ".fzf.bash", ".fzf.zsh", ".kde"),
    *(".xmonad", ".i3", ".fluxbox", ".fvwm", ".wine", ".cache/pre-commit", ".cache/pip", ".cache/uv", ".cache/deno"),
    *(".cache/pypoetry", ".cache/prek", "go/bin", "Library/LaunchAgents", "Library/Preferences", ".var"),
    *(".fzf", ".gvm", ".rye", ".elan", ".atuin", ".wasmer", "miniconda3", "miniforge3", "mambaforge", "anaconda3"),
    *("micromamba", "google-cloud-sdk"),
)
KEYS_IN_HOME: Final = (".local/share/keyrings", ".mozilla", ".thunderbird", ".pki", "Library/Keychains")
# Installed packages: their keys are examples, and no file of the user can be moved there.
INSTALLED: Final = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".tox"})
# A path inside one of these belongs to it, also where the workspace lies inside it.
_ENCLOSING: Final = frozenset({".git", ".hg", ".svn", ".bzr", ".jj", ".lyra"})
# Read-only folders that are large, and those of installed packages; the others are searched for keys and links.
NOT_SEARCHED: Final = _ENCLOSING | INSTALLED | {".sl", ".pijul"}
_NO_NAMES: Final[dict[str, Kind]] = {}
_KNOWN_MAX: Final = 50_000
_STAR: Final = re.compile(r"[*?\[]")
_SET_ASIDE: Final = re.compile(r"\.held-[a-z0-9]{6}\Z")  # no program reads a file of this name; see `forbidden_names`


class NameTable:
    """Tells of which kind a name is. Names are compared without regard to case."""

    __slots__ = ("_beginnings", "_by_ending", "_in_folder", "_patterns", "_plain", "known")

    def __init__(self, read_only: Iterable[str], hidden: Iterable[str]) -> None:
        self._plain: dict[str, Kind] = {}
        self._in_folder: dict[str, dict[str, Kind]] = {}  # the name of a folder → names in it
        self._by_ending: dict[str, Kind] = {}  # `*.pem`, by far the quickest of the patterns
        self.known: dict[str, Kind | None] = {}  # names that were asked for: a search asks for the same ones again
        self._beginnings: tuple[str, ...] = ()  # of the other patterns: what stands before the first star
        self._patterns: list[tuple[Callable[[str], object], Kind]] = []
        kinds: tuple[tuple[Kind, Iterable[str]], ...] = (("read_only", read_only), ("hidden", hidden))
        for kind, names in kinds:  # a name in both tables is hidden
            for name in names:
                self._add(name.lower(), kind)

    def _add(self, name: str, kind: Kind) -> None:
        folder, _, last = name.rpartition("/")
        beginning = _STAR.split(last)[0]
        if last.startswith("*.") and not _STAR.search(last[2:]) and "." not in last[2:]:
            self._by_ending[last[2:]] = kind
        elif beginning != last:
            self._beginnings += (beginning,)
            self._patterns.append((re.compile(translate(last)).match, kind))
        elif folder:
            self._in_folder.setdefault(folder, {})[last] = kind
        else:
            self._plain[last] = kind

    def beside(self, folder: str) -> Mapping[str, Kind]:
        """Return the names that are protected in a folder of this name, besides those that are everywhere."""
        return self._in_folder.get(folder.lower(), _NO_NAMES)

    def kind(self, name: str, beside: Mapping[str, Kind] = _NO_NAMES) -> Kind | None:
        """Return the kind of a file or folder of this name; None: it is not protected."""
        if beside:
            return beside.get(name.lower()) or self._kind(name)
        if name not in self.known:
            if len(self.known) >= _KNOWN_MAX:
                self.known.clear()
            self.known[name] = self._kind(name)
        return self.known[name]

    def _kind(self, name: str) -> Kind | None:
        lower = name.lower()
        kind = self._plain.get(lower)
        if kind is None:
            dot = lower.rfind(".")
            kind = self._by_ending.get(lower[dot + 1 :]) if dot >= 0 else None
            if kind is None and lower.startswith(self._beginnings):
                kind = next((kind for matches, kind in self._patterns if matches(lower)), None)
                if kind == "read_only" and _SET_ASIDE.search(lower):
                    kind = None
        return None if kind is None or lower in SHOWN else kind

    def part(self, path: str, folder: str = "") -> str | None:
        """Return the first part of a relative path in a folder of that name that is protected."""
        for name in path.split("/"):
            if name and self.kind(name, self.beside(folder)) is not None:
                return name if self.kind(name) is not None else f"{folder}/{name}"
            folder = name
        return None


NAMES: Final = NameTable(READ_ONLY, HIDDEN)
ASKED_NAMES: Final = NameTable(ASKED, ())
COMMAND_NAMES: Final = NameTable((*READ_ONLY, *ASKED), HIDDEN)  # what commands do not write


def find_protected_part(path: str, roots: Iterable[str] = (), *, table: NameTable = NAMES) -> str | None:
    """Return the part of an absolute path because of which it may not be written. Of a path inside one of the roots
    only the part below that root counts: a person who works in `.config/nvim` has chosen it."""
    for root in roots:
        if path.startswith(root.rstrip("/") + "/"):
            inside = path[len(root.rstrip("/")) + 1 :]
            return enclosing_part(root) or table.part(inside, os.path.basename(root))
    return table.part(path.lstrip("/"))


def enclosing_part(path: str) -> str | None:
    """Return the folder in a path that forbids writing anywhere inside it, also where a workspace lies in it."""
    return next((name for name in path.split("/") if name.lower() in _ENCLOSING), None)


def home_paths() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Protected paths of the user's home folder: those that are read-only, and those that are hidden."""
    return _home_paths(os.path.expanduser("~"))


@lru_cache(maxsize=8)
def _home_paths(home: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not os.path.isabs(home) or home == "/":
        return (), ()
    home = home.rstrip("/")
    return tuple(f"{home}/{name}" for name in IN_HOME), tuple(f"{home}/{name}" for name in KEYS_IN_HOME)
