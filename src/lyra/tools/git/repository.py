"""GitRepository: git in a repository whose settings may be hostile.

Git obeys the settings of the repository that it works in, and they can name programs: hooks, monitors, filters, pagers,
drivers, helpers. Here none of them runs: hooks and monitors are switched off, and every setting that names a program is
replaced by an empty one (`silence_programs`). Those of the user count where a network is asked for, since they hold
the user's way to reach it. Git cannot write settings meanwhile: their lock is held. `read_head` finds the
repository of a folder and runs no program; a `.git` that points to a stranger's repository is none.

The runs are outside the sandbox, because the sandbox never opens git's own files. Which command lines may run is
decided by `calls` and by the permission rules. Of several acts on one repository only one runs at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from lyra.errors import ToolError
from lyra.sandbox.protection.git_repositories import (
    GitSettings,
    find_folders,
    list_settings_files,
    list_user_files,
    names_program,
    read_settings,
)

if TYPE_CHECKING:
    from lyra.sandbox import Result

PATH: Final = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin:/home/linuxbrew/.linuxbrew/bin:/run/current-system/sw/bin"
SETTINGS: Final = (
    *("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "core.attributesFile=/dev/null"),
    *("log.showSignature=false", "diff.external=", "safe.bareRepository=explicit", "core.sshCommand=false"),
    *("protocol.allow=never", "status.submoduleSummary=false", "credential.helper=", "core.untrackedCache=keep"),
    *("submodule.recurse=false", "gc.auto=0", "maintenance.auto=false", "commit.gpgSign=false", "core.editor=false"),
)
ENVIRONMENT: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_ASKPASS": "/bin/false",
    "GIT_EDITOR": "/bin/false",
}
_NOT_FOR_ACTS: Final = ("core.attributesFile", "protocol.", "diff.external")
# For acts, which need the user's name and line ends: settings without a program, over those of the user.
_ACT_SETTINGS: Final = {
    **dict(setting.split("=", 1) for setting in SETTINGS if not setting.startswith(_NOT_FOR_ACTS)),
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "push.gpgSign": "false",
    "branch.autoSetupMerge": "false",
    "push.autoSetupRemote": "false",
    "core.editor": "true",
    "sequence.editor": "true",
    "rebase.updateRefs": "false",
    "diff.ignoreSubmodules": "dirty",  # git would run in each of them
}
_ACT_ENVIRONMENT: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_MERGE_AUTOEDIT": "no",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C.UTF-8",
}
_NO_NETWORK: Final = {"GIT_ALLOW_PROTOCOL": "none", "GIT_CONFIG_NOSYSTEM": "1", "GIT_ASKPASS": "/bin/false"}
_NETWORK: Final = {
    "GIT_ALLOW_PROTOCOL": "http:https:ssh:git",
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "GH_PAGER": "cat",
    "BROWSER": "false",
    "NO_COLOR": "1",
}
# Of the user's own environment, where a network is asked for.
_USERS: Final = ("SSH_AUTH_SOCK", "GH_TOKEN", "GITHUB_TOKEN", "GH_HOST", "GH_CONFIG_DIR", "XDG_CONFIG_HOME")
_PROXIES: Final = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "ALL_PROXY")
_USERS_WAY: Final = ("credential", "core", "url", "http", "ssh")  # sections of the user's settings that name that way
_USERS_WAY_KEYS: Final = ("core.sshCommand", "credential.helper")
_TURN_POLL_S: Final = 0.02
_TURN_TRIES: Final = 3_000
_LOCK_MARK: Final = b"lyra "
_OUTPUT_BYTES_MAX: Final = 4 << 20


class GitRefs(NamedTuple):
    """What is checked out (a branch, or else a commit), and every branch, tag and stash with its object."""

    head: str
    refs: dict[str, str]


class GitRepository:
    """Git in one repository."""

    def __init__(self, head: GitHead, roots: Sequence[str] = ()) -> None:
        """`roots` are the folders that commands of a session may write."""
        self.head = head
        self._roots = (*roots, head.root, head.common_folder)

    @property
    def index(self) -> str:
        """The file of the index."""
        return os.path.join(self.head.git_folder, "index")

    async def act(
        self,
        words: Sequence[str],
        *,
        timeout_s: float,
        network: bool = False,
        is_local: bool = False,
        hooks: bool = False,
        start: str = "",
        inner: Sequence[str] = (),
    ) -> Result:
        """Run git, or `gh`, in the repository; `start` is the folder in it where that happens. `inner` are the `.git`
        of its submodules, in which git may run, too. With `is_local` a remote may be a folder of this machine."""
        from lyra.sandbox.job import Job, LaunchPlan
        from lyra.sandbox.profile import Limits

        users = [path for path in os.environ.get("PATH", "").split(":") if self._is_outside(path)]
        program = shutil.which(words[0], path=":".join([PATH, *users]))
        if program is None:
            places = f"{PATH} or in your PATH"
            raise ToolError(f"there is no {words[0]} in {places}", hint=f"install {words[0]}", reason="not_found")
        options = ["--no-pager"] if words[0] == "git" else []
        argv = [program, *options, *words[1:]]
        env = self._environment(network=network, hooks=hooks, inner=inner)
        if is_local:
            env["GIT_ALLOW_PROTOCOL"] += ":file"
        plan = LaunchPlan(argv, env, start or self.head.root, "none")
        limits = Limits(wall_s=timeout_s, output_bytes=_OUTPUT_BYTES_MAX, output_kept_bytes=_OUTPUT_BYTES_MAX)
        async with hold_turn(self.head.common_folder):
            with _hold_settings((self.head.common_folder, self.head.git_folder)):
                job = Job(plan, limits, stdin=None, timeout_s=timeout_s, apart=False, spill=None)
                try:
                    return await job.wait()
                except asyncio.CancelledError:
                    await job.end()
                    raise

    def _is_outside(self, path: str) -> bool:
        """Return whether a folder of PATH lies where no command of a session can put a program."""
        real = os.path.realpath(path)
        return os.path.isabs(path) and not any(real == root or real.startswith(f"{root}/") for root in self._roots)

    async def ask(self, *words: str) -> str:
        """Return the output of a question; nothing where git says no."""
        result = await self.act(["git", *words], timeout_s=60.0)
        return result.output.head.decode("utf-8", "surrogateescape") if result.ok else ""

    def _environment(self, *, network: bool, hooks: bool, inner: Sequence[str]) -> dict[str, str]:
        """Return the variables of a run, with settings that come after all those of files."""
        names = (*_USERS, *_PROXIES) if network else ()
        home = os.path.expanduser("~")
        env = {name: os.environ[name] for name in ("GIT_CONFIG_GLOBAL", *names) if name in os.environ}
        env |= {**_ACT_ENVIRONMENT, **(_NETWORK if network else _NO_NETWORK), "PATH": PATH, "HOME": home}
        env |= {"GIT_DIR": self.head.git_folder, "GIT_WORK_TREE": self.head.root}
        silent = silence_programs(self.head, network=network, inner=inner)
        settings = [*silent, *_ACT_SETTINGS.items()]
        if network:
            settings = [*silent, *(pair for pair in _ACT_SETTINGS.items() if pair[0] not in _USERS_WAY_KEYS)]
        if hooks:
            settings = [(key, value) for key, value in settings if key != "core.hooksPath" and key[:5] != "hook."]
        env["GIT_CONFIG_COUNT"] = str(len(settings))
        for number, (key, value) in enumerate(settings):
            env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return env

    async def refs(self) -> GitRefs:
        """Return what is checked out and where every branch, tag and stash is."""
        listed = await self.ask("for-each-ref", "--format=%(refname) %(objectname)")
        pairs = (line.partition(" ") for line in listed.splitlines())
        now = read_head(self.head.root) or self.head
        return GitRefs(f"refs/heads/{now.branch}" if now.branch else now.commit, {name: oid for name, _, oid in pairs})

    async def list_tracked(self) -> list[str]:
        """Return the paths of the index, relative to the root."""
        listed = await self.ask("ls-files", "-z")
        return [path for path in listed.split("\0") if path]

    async def list_submodules(self) -> list[str]:
        """Return the `.git` of each submodule, existing or not."""
        listed = await self.ask("ls-files", "--stage", "-z")
        paths = [entry.partition("\t")[2] for entry in listed.split("\0") if entry.startswith("160000 ")]
        return [os.path.join(self.head.root, path, ".git") for path in paths]

    async def restore_refs(self, before: GitRefs, after: GitRefs, index: bytes | None) -> str:
        """Put branches, tags, stash, what is checked out and the index back to `before`; a sentence where that is not
        possible, because another hand has moved something since `after`."""
        now = await self.refs()
        moved = {name for name in {*before.refs, *after.refs} if before.refs.get(name) != after.refs.get(name)}
        if now.head != after.head or any(now.refs.get(name) != after.refs.get(name) for name in moved):
            return "the repository has changed since: its branches and the index stay as they are"
        if before.head != after.head:
            is_branch = before.head.startswith("refs/")
            words = (
                ["symbolic-ref", "HEAD", before.head]
                if is_branch
                else ["update-ref", "--no-deref", "HEAD", before.head]
            )
            await self.act(["git", *words], timeout_s=60.0)
        for name in sorted(moved):
            words = ["update-ref", name, before.refs[name]] if name in before.refs else ["update-ref", "-d", name]
            await self.act(["git", *words], timeout_s=60.0)
        if index is not None:
            _replace(self.index, index)
        return ""


def silence_programs(head: GitHead, *, network: bool, inner: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return settings that replace each one that names a program, of the repository and of the user. With a network
    those of the user that lead there count again."""
    submodules = [folder for dot_git in inner for folder in find_folders(dot_git)]
    own = read_settings(list_settings_files((head.git_folder, head.common_folder, *submodules)))
    users = read_settings(list_user_files())
    silent = [(key, "ssh" if key == "core.sshcommand" else "") for key in _program_keys(own)]
    hooks = {setting.subsection for _, setting in own.settings if setting.section == "hook"}
    silent += [(f"hook.{name}.enabled", "false") for name in hooks]
    if not network:
        return [*silent, *((key, "") for key in _program_keys(users))]
    for _, setting in users.settings:
        if names_program(setting):
            silent.append((setting.full_name, setting.value if setting.section in _USERS_WAY else ""))
    return silent


def _program_keys(settings: GitSettings) -> dict[str, None]:
    return {setting.full_name: None for _, setting in settings.settings if names_program(setting)}


def _replace(path: str, data: bytes) -> None:
    temporary = f"{path}.lyra"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with open(fd, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


@asynccontextmanager
async def hold_turn(folder: str) -> AsyncIterator[None]:
    """Wait until no other act holds git's own folder, and hold it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(_TURN_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await asyncio.sleep(_TURN_POLL_S)
        else:
            raise ToolError(f"another act on {folder} does not end", reason="timeout")
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def _hold_settings(folders: Sequence[str]) -> Iterator[None]:
    """Hold git's own lock of its settings, so that no git writes them."""
    held: list[str] = []
    try:
        for folder in dict.fromkeys(folders):
            for name in ("config.lock", "config.worktree.lock"):
                path = os.path.join(folder, name)
                # Remove a lock that a killed process of Lyra has left. Only the holder of the turn comes here.
                text = _small(path)
                if text.startswith(_LOCK_MARK.decode()):
                    with suppress(OSError):
                        os.unlink(path)
                try:
                    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                except FileExistsError:
                    raise ToolError(f"another git is changing the settings: {path} exists", reason="io_error") from None
                held.append(path)
                os.write(fd, _LOCK_MARK + str(os.getpid()).encode())
                os.close(fd)
        yield
    finally:
        for path in held:
            with suppress(OSError):
                os.unlink(path)


# ---------------------------------------------------------------- git head

_SMALL_BYTES_MAX: Final = 4_096
_FOLDERS_UP_MAX: Final = 64
_BRANCH: Final = re.compile(r"ref: refs/heads/([^\s\x00-\x20\x7f~^:?*\[\\]{1,200})")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class GitHead(NamedTuple):
    """The folder of a repository's files, where git keeps its own (`git_folder`, and `common_folder` for all worktrees
    together), and what is checked out: a branch, or else a commit."""

    root: str
    git_folder: str
    common_folder: str
    branch: str = ""
    commit: str = ""

    @property
    def shown(self) -> str:
        return self.branch or f"commit {self.commit[:10]}"


def read_head(folder: str) -> GitHead | None:
    """Return the repository that a folder is in; None where it is in none that can be read."""
    root = os.path.realpath(folder)
    for _ in range(_FOLDERS_UP_MAX):
        entry = os.path.join(root, ".git")
        if os.path.lexists(entry):
            return _head_of(root, entry)
        above = os.path.dirname(root)
        if above == root:
            return None
        root = above
    return None


def _head_of(root: str, entry: str) -> GitHead | None:
    if os.path.isdir(entry) and not os.path.islink(entry):
        return _read(GitHead(root, entry, entry))
    text = _small(entry)
    if not text.startswith("gitdir: "):
        return None
    git_folder = os.path.realpath(os.path.join(root, text.removeprefix("gitdir: ").strip()))
    common = os.path.realpath(os.path.join(git_folder, _small(os.path.join(git_folder, "commondir")).strip() or "."))
    back = _small(os.path.join(git_folder, "gitdir")).strip()
    is_worktree = bool(back) and os.path.dirname(git_folder) == os.path.join(common, "worktrees")
    if is_worktree and os.path.realpath(os.path.join(git_folder, back)) == entry:
        return _read(GitHead(root, git_folder, common))
    above, separator, _ = git_folder.partition("/.git/modules/")
    return _read(GitHead(root, git_folder, git_folder)) if bool(separator) and root.startswith(f"{above}/") else None


def _read(head: GitHead) -> GitHead | None:
    text = _small(os.path.join(head.git_folder, "HEAD")).strip()
    branch = _BRANCH.fullmatch(text)
    if branch is not None and branch[1].isprintable():
        return head._replace(branch=branch[1])
    return head._replace(commit=text) if _COMMIT.fullmatch(text) else None


def _small(path: str) -> str:
    """Return the text of a small plain file; "" for anything else. A pipe is not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _SMALL_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
