"""Git repositories that are told by their shape, and files that git's settings name.

Git takes any folder for a repository that has a `HEAD` and beside it `objects` and `refs`, or a `commondir` that says
where those are; no `.git` is needed (a bare repository). From there it obeys `config`, which can name programs
("core.fsmonitor", "core.pager") that run at the next `git status` in that folder or below it. So the shape is looked
for, whatever the folder is called and in whatever order its parts came. A folder that lacks one of the parts harms
nothing: `HEAD` is the one that is taken away.

`find_named_paths` reads the settings of repositories and of the user: further settings, hooks and programs may lie
where an agent writes. Of a command line the files count that it runs, not those that it only reads. `read_settings`
follows every include, also one under a condition (`includeIf`): which branch is checked out does not matter to what is
protected. The syntax is git's own; what git would refuse is skipped up to the end of its line.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from lyra.sandbox.paths import links_on_the_way, real_path
from lyra.sandbox.protection.protected_names import NAMES
from lyra.sandbox.protection.protected_places import Places

HEAD: Final = "head"
SHAPE: Final = frozenset({HEAD, "objects", "refs", "commondir"})
# What git reads in a repository's folder; where that folder is a workspace, these stay as they are.
PARTS: Final = (
    *("HEAD", "objects", "refs", "commondir", "config", "config.worktree", "hooks", "info", "packed-refs", "index"),
    *("gitdir", "modules", "worktrees", "branches", "remotes", "shallow", "reftable", "logs", "common", "fsmonitor"),
)
_PARTS: Final = frozenset(part.lower() for part in PARTS)
# Settings that name a file or folder which git reads. A relative path of the first two starts at the settings file.
_INCLUDES: Final = ("include.path", "includeif.path")
_PATHS: Final = (
    *("core.hookspath", "init.templatedir", "core.attributesfile"),
    *("gpg.allowedsignersfile", "gpg.revocationfile"),
)
# Settings whose value is a command line: all of these sections, these names in any section, and these ones.
_COMMAND_SECTIONS: Final = frozenset({"alias", "pager"})
_COMMAND_NAMES: Final = frozenset(
    {
        *("cmd", "command", "clean", "smudge", "process", "textconv", "driver", "external", "editor", "pager"),
        *("sshcommand", "askpass", "fsmonitor", "program", "helper", "difffilter", "gitproxy", "alternaterefscommand"),
        *("packobjectshook", "defaultkeycommand", "uploadpack", "receivepack", "tunnel", "browser", "httpd"),
        *("tocmd", "cccmd", "headercmd", "sendmailcmd", "smtpserver"),
    }
)
_COMMANDS: Final = frozenset(
    {
        *("difftool.path", "mergetool.path", "browser.path", "man.path", "lfs.path"),
        *("submodule.update", "sequence.editor", "web.browser"),
    }
)
_NO_PATHS: Final = frozenset({"", "true", "false", "yes", "no", "on", "off", "0", "1"})
_HOOKS: Final = (
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg"),
    *("commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive", "update"),
    *("proc-receive", "post-receive", "post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc"),
    *("post-rewrite", "sendemail-validate", "fsmonitor-watchman", "post-index-change", "p4-changelist"),
    *("p4-prepare-changelist", "p4-post-changelist", "p4-pre-submit"),
)
# Programs that run the file which comes after them.
_RUNNERS: Final = frozenset(
    {
        *("sh", "bash", "dash", "zsh", "ksh", "fish", "python", "python3", "node", "deno", "bun", "ruby", "perl"),
        *("php", "lua", "tclsh", "Rscript", "env", "exec", "sudo", "doas", "nohup", "time", "source", ".", "command"),
        *("eval", "xargs", "nice", "timeout", "run", "uv", "npx", "then", "do", "else", "if", "while", "!"),
    }
)
_SCRIPT_ENDINGS: Final = (
    *(".sh", ".bash", ".zsh", ".fish", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".tcl"),
    *(".exe", ".bat", ".cmd", ".ps1"),
)
_OPERATORS: Final = frozenset(";&|(){}`\n")
_VARIABLE: Final = re.compile(r"\$\{?\w+\}?")
_TOKEN: Final = re.compile(r"""[;&|(){}`\n]|[^\s;&|(){}`'"<>$]+""")
_ASSIGNED: Final = re.compile(r"[\w.-]+=(.+)")
_FOLDERS_UP_MAX: Final = 64
_MARKS: Final = ("HEAD", "commondir")


class NamedPaths(NamedTuple):
    """Absolute paths that git's settings name, with links in them, and the files that were read to find them."""

    paths: tuple[str, ...]
    files: tuple[str, ...]


def is_repository(names: Collection[str]) -> bool:
    """Return whether a folder with entries of these names, in lower case, is a repository."""
    return HEAD in names and ("commondir" in names or ("objects" in names and "refs" in names))


def find_made_repository(root: str, path: str) -> str | None:
    """Return the folder below `root`, or `root` itself, that is a repository once `path` exists, or is one already."""
    folder = root.rstrip("/")
    inside = path[len(folder) + 1 :] if path.startswith(f"{folder}/") else os.path.relpath(path, folder)
    for depth, name in enumerate(inside.split("/")):
        new = name.lower()
        counts = depth > 0 or new in _PARTS  # in the root itself other files may be written as before
        has_head = counts and (new == HEAD or os.path.lexists(f"{folder}/HEAD"))
        if has_head and is_repository({*_there(folder), new}):
            return folder or "/"
        folder = f"{folder}/{name}"
    return None


def _there(folder: str) -> Iterator[str]:
    for name in ("HEAD", "objects", "refs", "commondir"):
        if os.path.lexists(f"{folder}/{name}"):
            yield name.lower()


def enclosing_repositories(root: str) -> list[str]:
    """Return the `.git` of each repository whose working tree a folder lies in."""
    repositories: list[str] = []
    folder = root.rstrip("/")
    for _ in range(_FOLDERS_UP_MAX):
        if os.path.lexists(f"{folder}/.git"):
            repositories.append(f"{folder}/.git")
        if not folder:
            break
        folder = folder.rpartition("/")[0]
    return repositories


def find_named_paths(repositories: Iterable[str], roots: Sequence[str] = ()) -> NamedPaths:
    """Return what the settings of these repositories and of the user name. A repository is its `.git`, which is a
    folder or a file that says where that is, or the folder of a bare one. Where the folder of hooks contains one of the
    `roots`, the hooks in it are named one by one."""
    user = read_settings(list_user_files())
    paths: dict[str, None] = dict.fromkeys(user.files)
    files: dict[str, None] = dict.fromkeys(user.files)
    for file, setting in user.settings:
        paths.update(dict.fromkeys(_resolve_setting(file, setting, (), roots)))
    for dot_git in repositories:
        folders = list(find_folders(dot_git))
        files.update(dict.fromkeys((dot_git, *(f"{folder}/{name}" for folder in folders for name in _MARKS))))
        if not folders or not os.path.lexists(f"{folders[0]}/HEAD"):
            continue  # no repository, but a placeholder
        own = read_settings(list_settings_files(folders))
        files.update(dict.fromkeys(own.files))
        bases = tuple(dict.fromkeys((*_trees(dot_git, own.settings), *folders)))
        paths.update(dict.fromkeys(path for folder in folders for path in _list_linked_parts(folder)))
        for file, setting in (*own.settings, *user.settings):
            paths.update(dict.fromkeys(_resolve_setting(file, setting, bases, roots)))
    return NamedPaths(tuple(paths), tuple(files))


def find_program_setting(folders: Iterable[str]) -> str | None:
    """Return the first setting of the repositories around these folders that names a program which git would run; None
    where there is none. What the user's own settings name is not looked at."""
    for folder in folders:
        for dot_git in enclosing_repositories(os.path.realpath(folder)):
            folders = [*find_folders(dot_git)]
            files = list_settings_files([*folders, *(path for folder in folders for path in _list_modules(folder))])
            for _, setting in read_settings([*files, f"{os.path.dirname(dot_git)}/.gitmodules"]).settings:
                if names_program(setting) or setting.key == "submodule.ignore":  # git would look into the submodule
                    return setting.full_name
    return None


def _list_modules(folder: str) -> Iterator[str]:
    """Yield git's own folders of the submodules of a repository."""
    try:
        with os.scandir(f"{folder}/modules") as entries:
            yield from [entry.path for entry in entries]
    except OSError:
        return


def list_settings_files(folders: Iterable[str]) -> list[str]:
    """Return the settings files in git's own folders, existing or not."""
    return [f"{folder}/{name}" for folder in dict.fromkeys(folders) for name in ("config", "config.worktree")]


def names_program(setting: GitSetting) -> bool:
    """Return whether a setting of git has a command line as its value."""
    if setting.value.lower() in _NO_PATHS:
        return False
    return (
        setting.section in _COMMAND_SECTIONS or setting.name in _COMMAND_NAMES or setting.key in _COMMANDS
    ) or setting.section == "hook"


def list_user_files() -> list[str]:
    """Return the settings files of the machine and of the user, existing or not."""
    home, read = os.path.expanduser("~"), os.environ.get
    files = ["/etc/gitconfig", f"{home}/.config/git/config", f"{home}/.gitconfig"]
    folder, named = read("XDG_CONFIG_HOME", ""), (read("GIT_CONFIG_GLOBAL", ""), read("GIT_CONFIG_SYSTEM", ""))
    files += [f"{folder}/git/config"] if os.path.isabs(folder) else []
    return list(dict.fromkeys((*files, *(file for file in named if os.path.isabs(file)))))


def find_folders(dot_git: str) -> Iterator[str]:
    """Yield the folders whose settings count: that of the repository, and the one that its working trees share."""
    folder = dot_git
    if not os.path.isdir(dot_git):
        text = read_small(dot_git)
        if not text.startswith("gitdir:"):
            return
        folder = os.path.normpath(os.path.join(os.path.dirname(dot_git), text[7:].strip()))
    yield folder
    shared = read_small(f"{folder}/commondir").strip() if os.path.lexists(f"{folder}/commondir") else ""
    if shared:
        yield os.path.normpath(os.path.join(folder, shared))


def _trees(dot_git: str, settings: Iterable[tuple[str, GitSetting]]) -> Iterator[str]:
    """Yield the working trees of a repository: programs start there."""
    if os.path.basename(dot_git) == ".git":
        yield os.path.dirname(dot_git)
    for file, setting in settings:
        if setting.key == "core.worktree":
            yield os.path.normpath(os.path.join(os.path.dirname(file), os.path.expanduser(setting.value)))


def _list_linked_parts(folder: str) -> Iterator[str]:
    """Yield parts of a repository that are links to files elsewhere: hooks are often kept in the working tree."""
    for part in ("config", "config.worktree", "hooks", "info", "info/attributes"):
        if os.path.islink(f"{folder}/{part}"):
            yield f"{folder}/{part}"
    yield from _links_in(f"{folder}/hooks")


def _links_in(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from [entry.path for entry in entries if entry.is_symlink()]
    except OSError:
        return


# ---------------------------------------------------------------- the files that one setting names
def _resolve_setting(file: str, setting: GitSetting, bases: Sequence[str], roots: Sequence[str]) -> Iterator[str]:
    """Absolute paths that a setting names; programs start at one of the `bases`."""
    key, value = setting.key, setting.value
    if value.lower() in _NO_PATHS:
        return
    if key in _INCLUDES:
        yield os.path.join(os.path.dirname(file), os.path.expanduser(value))
    elif key in _PATHS:
        for path in _join(os.path.expanduser(value), bases):
            yield path
            yield from _hooks(path, roots) if key == "core.hookspath" else ()
    elif setting.section in _COMMAND_SECTIONS or setting.name in _COMMAND_NAMES or key in _COMMANDS:
        is_shell = setting.section != "alias" or value.startswith("!")
        for word, is_program in _words(value.removeprefix("!"), is_shell=is_shell):
            paths = [path for path in _join(word, bases) if not os.path.isdir(path)]
            yield from (path for path in paths if is_program or (os.path.isfile(path) and os.access(path, os.X_OK)))


def _join(path: str, bases: Sequence[str]) -> list[str]:
    return [path] if os.path.isabs(path) else [os.path.join(base, path) for base in bases]


def _hooks(folder: str, roots: Sequence[str]) -> Iterator[str]:
    yield from _links_in(folder)
    real = os.path.realpath(folder)
    if any(f"{root}/".startswith(f"{real.rstrip('/')}/") for root in roots):
        yield from (f"{folder}/{hook}" for hook in _HOOKS)


def _words(command: str, *, is_shell: bool) -> Iterator[tuple[str, bool]]:
    """Paths in a command line, and whether it runs each of them for certain: a path in the place of a program, or the
    name of a script anywhere. In an alias of a git command (not `is_shell`) only values of options are for certain."""
    home = os.path.expanduser("~")
    text = re.sub(r"\$\{?HOME\}?(?=/)", lambda _: home, command)
    runs, before, folders = is_shell, "", [""]
    for word in _with_blanks(command) if is_shell else ():
        yield from ((path, True) for path in _readings(word, home))
    for token in _TOKEN.findall(_VARIABLE.sub("", text)):
        if token in _OPERATORS:
            runs = is_shell
            continue
        assigned = _ASSIGNED.fullmatch(token)
        word = assigned[1] if assigned else token
        is_script = word.endswith(_SCRIPT_ENDINGS) and is_shell
        if "/" in word or is_script:
            is_program = runs or is_script or assigned is not None
            yield from ((path, is_program) for path in _readings(word, home, folders))
        if before == "cd":
            folders.append(f"{token}/")
        if not assigned and not token.startswith(("-", "+")):
            runs = is_shell and token.rpartition("/")[2] in _RUNNERS
        before = token


def _with_blanks(command: str) -> Iterator[str]:
    """Yield a program with blanks in its path, quoted or as the whole value."""
    if " " in command and os.path.isfile(os.path.expanduser(command)):
        yield command
    try:
        yield from (word for word in shlex.split(command)[:1] if " " in word and "/" in word)
    except ValueError:
        return


def _readings(word: str, home: str, folders: Sequence[str] = ("",)) -> Iterator[str]:
    """Yield a path as it is written, in each of the folders that the command line enters. One that began with a
    variable or the output of a command (`$(…)/tools/x`) may lie anywhere: also in the working tree."""
    if word.startswith("~/"):
        yield home + word[1:]
    elif word.startswith("/"):
        yield word
        yield from () if os.path.lexists(word) else (word.lstrip("/"),)
    else:
        yield from (f"{folder}{word}" for folder in folders)


# ---------------------------------------------------------------- as places of a folder
def find_named_places(root: str, repositories: Iterable[str], others: Sequence[str] = ()) -> Places:
    """Return what git's settings name inside a folder, which is a real path. Besides the repositories found in it those
    count that it lies in, and those of the other folders that a command may write. Paths that are protected by their
    names are left out."""
    counted = [*repositories, *(dot_git for folder in (root, *others) for dot_git in enclosing_repositories(folder))]
    read_only: dict[str, None] = {}
    missing: dict[str, None] = {}
    links: dict[str, None] = {}
    for path in find_named_paths(dict.fromkeys(counted), (root,)).paths:
        real, exists = real_path(path)
        real = os.path.normpath(real)
        inside = _find_unnamed(root, real)
        if inside is not None:
            (read_only if exists else missing)[inside] = None
        if real != path or not exists:
            on_the_way = (_find_unnamed(root, link) for link in links_on_the_way(path))
            links.update(dict.fromkeys(link for link in on_the_way if link is not None))
    return Places(tuple(read_only), (), tuple(missing), (), tuple(links))


def _find_unnamed(root: str, path: str) -> str | None:
    """Return a path relative to the folder, if it lies inside and is not protected by its name."""
    prefix = root.rstrip("/") + "/"
    relative = path[len(prefix) :] if path.startswith(prefix) else ""
    return relative if relative and NAMES.part(relative, os.path.basename(root)) is None else None


# ---------------------------------------------------------------- git settings

_BYTES_MAX: Final = 1 << 20  # of one file
_FILES_MAX: Final = 200  # that are read for one answer, included ones among them
_SECTION: Final = re.compile(r'\[[ \t]*([\w.-]+)[ \t]*(?:"((?:[^"\\\n]|\\[^\n])*)")?[ \t]*\]')
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=?)")
_SPACE: Final = re.compile(r"[\s]+")
_REST: Final = re.compile(r"[^\n]*")
_PLAIN: Final = re.compile(r'[^\\"#;\n]+')
_QUOTED: Final = re.compile(r'[^\\"\n]+')
_ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b", "\n": ""}


class GitSetting(NamedTuple):
    """One setting. The section and the name are in lower case, a subsection is as it was written."""

    section: str
    name: str
    value: str
    subsection: str = ""

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def full_name(self) -> str:
        """The name as git takes it, with its subsection."""
        return f"{self.section}.{self.subsection}.{self.name}" if self.subsection else self.key


class GitSettings(NamedTuple):
    """Each setting with the file that it stands in, and all files that were looked at, missing ones among them."""

    settings: tuple[tuple[str, GitSetting], ...]
    files: tuple[str, ...]


def read_settings(files: Iterable[str]) -> GitSettings:
    """Return the settings of these files and of those that they include, at any depth."""
    settings: list[tuple[str, GitSetting]] = []
    waiting = list(files)
    seen: dict[str, None] = {}
    while waiting and len(seen) < _FILES_MAX:
        file = waiting.pop(0)
        if file in seen:
            continue
        seen[file] = None
        for setting in _settings(file):
            settings.append((file, setting))
            if setting.key in _INCLUDES:
                waiting.append(os.path.join(os.path.dirname(file), os.path.expanduser(setting.value)))
    return GitSettings(tuple(settings), tuple(seen))


def _settings(file: str) -> tuple[GitSetting, ...]:
    try:
        state = os.stat(file)
    except (OSError, ValueError):
        return ()
    if not stat.S_ISREG(state.st_mode):
        return ()
    return _parse(file, state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size)


@lru_cache(maxsize=256)
def _parse(file: str, *_state: int) -> tuple[GitSetting, ...]:
    return tuple(parse(read_small(file)))


def parse(text: str) -> list[GitSetting]:
    """Return the settings of a text. A name without a value is left out: it means "true"."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    settings: list[GitSetting] = []
    section, subsection = "", ""
    position = 0
    while position < len(text):
        space = _SPACE.match(text, position)
        header = _SECTION.match(text, position)
        key = _KEY.match(text, position)
        if space:
            position = space.end()
        elif header:
            section, _, old_style = header[1].lower().partition(".")
            subsection = re.sub(r"\\(.)", r"\1", header[2]) if header[2] is not None else old_style
            position = header.end()
        elif key and key[2]:
            value, position = _value(text, key.end())
            settings.append(GitSetting(section, key[1].lower(), value, subsection))
        else:  # a comment, a name without a value, or nothing that git reads
            position = _line_end(text, key.end() if key else position + 1)
    return settings


def _value(text: str, position: int) -> tuple[str, int]:
    """Return the value that begins here, and the position after it. Blanks at both ends are no part of it unless
    quoted."""
    parts: list[str] = []
    quoted, kept = False, 0  # the first `kept` characters are not stripped
    while position < len(text) and text[position] != "\n":
        char = text[position]
        plain = (_QUOTED if quoted else _PLAIN).match(text, position)
        if plain:
            piece, position = plain[0] if quoted or parts else plain[0].lstrip(), plain.end()
        elif char == '"':
            quoted, piece, position = not quoted, "", position + 1
        elif char == "\\":
            escaped = text[position + 1 : position + 2]
            piece, position = _ESCAPES.get(escaped, escaped), position + 2
        else:  # the beginning of a comment
            position = _line_end(text, position)
            break
        if piece:
            parts.append(piece)
        if quoted or char == "\\":
            kept = sum(map(len, parts))
    value = "".join(parts)
    value = value[:kept] + value[kept:].rstrip()
    return value.partition("\0")[0], position


def _line_end(text: str, position: int) -> int:
    match = _REST.match(text, position)
    return match.end() if match else len(text)


def read_small(file: str) -> str:
    """Return the text of a small plain file; "" where there is none. A pipe is not opened for reading: that could
    block."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            is_plain = stat.S_ISREG(os.fstat(opened.fileno()).st_mode)
            return os.fsdecode(opened.read(_BYTES_MAX)) if is_plain else ""
    except (OSError, ValueError):
        return ""
