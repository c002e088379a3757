"""The tool `Git`: commit, branch, switch, stash, tag, merge, rebase, and by a network push, pull and pull requests.

A sandbox never opens git's own files, so these acts run outside it, and what they may do is bounded here: `calls` takes
only known command lines, `repository` lets no setting start a program, and the settings are locked. Hooks run only
where the call says `hooks`. Files that other programs obey (`.vscode`, `.envrc`, a folder of hooks in the working tree)
are not changed by what a commit holds, unless the call says `obeyed`; should git have changed one all the same, it is
put back. No rule with a pattern covers a call with one of the two: a person is asked. What attributes send through a
filter is refused, because the filter does not run.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.limits import CAPABILITY_LENGTH_MAX
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import Holding, Tool
from lyra.errors import ToolError
from lyra.sandbox.protection.git_repositories import list_settings_files, names_program, read_settings
from lyra.sandbox.protection.obeyed import find_obeyed_part
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.function import tool
from lyra.tools.git.repository import GitHead, GitRepository, read_head
from lyra.tools.permissions.subjects import to_git_line

if TYPE_CHECKING:
    from lyra.tools.git.calls import GitCall

GIT_S_MAX: Final = 120.0
_NETWORK_S_MAX: Final = 300.0
_OUTPUT_CHARS_MAX: Final = 30_000
_SHOWN_MAX: Final = 20
_FILTER: Final = re.compile(r"(?:^|\s)filter=(\S+)", re.MULTILINE)
_ATTRIBUTES_BYTES_MAX: Final = 1 << 20
_RANGE: Final = re.compile(r"\.{2,3}")


def git_tools(workspace: Workspace) -> list[Tool]:
    """Return the tool, for the repository that the workspace lies in."""
    family = _Git(workspace)
    git = tool(
        family.git,
        name="Git",
        needs_of=_needs,
        untrusted=True,
        guarded=True,
        concurrency="exclusive",
        folders=workspace.roots,
        check=family.check,
    )
    return [msgspec.structs.replace(git, holds=family.hold)]


def _needs(arguments: dict[str, Any]) -> list[Capability]:
    command = arguments.get("command")
    if not isinstance(command, str) or not command.strip() or len(command) > CAPABILITY_LENGTH_MAX:
        return []  # the call itself is refused
    return [Capability("process.exec", to_git_line(command))]


class _Git:
    __slots__ = ("_workspace",)

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def hold(self, _grant: Grant, command: str) -> Holding:
        """Return what is known of a call before it is decided on: no sandbox holds it, and where it reaches to."""
        from lyra.tools.git.calls import read_call  # imported when there is a line to read

        try:
            call = read_call(command)
        except ToolError:
            return Holding(None, network=True)
        where = self._find_addresses(call)[0] if call.network else []
        return Holding(None, network=call.network, reads=call.reads, reaches=", ".join(where))

    def check(self, command: str, **_: bool) -> None:
        from lyra.tools.git.calls import read_call

        read_call(command)

    def _find_addresses(self, call: GitCall) -> tuple[list[str], bool]:
        """Return the addresses of the remotes that a call may reach, as the settings have them, and whether each of
        them may be a folder: outside the workspace, and without hooks, which git would run there."""
        head = read_head(self._workspace.root)
        if head is None:
            return [], False
        own = read_settings(list_settings_files((head.git_folder, head.common_folder)))
        remotes = [setting for _, setting in own.settings if setting.key in ("remote.url", "remote.pushurl")]
        named = [setting for setting in remotes if setting.subsection in call.arguments[:1]] or remotes
        addresses = list(dict.fromkeys(setting.value for setting in named))
        is_plain = bool(addresses) and not any(setting.section == "url" for _, setting in own.settings)
        return addresses, is_plain and all(map(self._may_be_folder, addresses))

    def _may_be_folder(self, address: str) -> bool:
        path = os.path.realpath(address.removeprefix("file://"))
        folder = os.path.join(path, ".git") if os.path.isdir(os.path.join(path, ".git")) else path
        names_programs = any(names_program(setting) for _, setting in read_settings([f"{folder}/config"]).settings)
        try:
            hooks = [name for name in os.listdir(f"{folder}/hooks") if not name.endswith(".sample")]
        except FileNotFoundError:
            hooks = []
        is_local = address.startswith(("/", "file:///"))
        return is_local and not self._workspace.covers(path) and not hooks and not names_programs

    async def git(self, command: str, hooks: bool = False, obeyed: bool = False) -> str:
        """Run one git command that changes the repository (add, commit, branch, switch, checkout, restore, reset,
        stash, tag, merge, rebase, cherry-pick, revert, rm, mv, push, fetch, pull), or `gh pr …`. To read (log, diff,
        show), run git with Bash. Editors and hooks do not run, so give messages with -m.

        Args:
            command: the command line, such as: commit -am "Fix the total"
            hooks: run the hooks of the repository, outside the sandbox; the user is asked
            obeyed: let it change files that other programs obey, such as .vscode; the user is asked
        """
        from lyra.tools.git.calls import read_call

        call = read_call(command)
        head = read_head(self._workspace.root)
        if head is None:
            hint = "ask the user to run: git init"
            raise ToolError(f"{self._workspace.root} is in no git repository", hint=hint, reason="not_found")
        repository = GitRepository(head, self._workspace.roots)
        if call.filters:
            self._check_filters(head, await repository.list_tracked())
        if call.checks_out:
            self._check_root(head)
            if not obeyed:
                self._refuse_obeyed(call, self._list_obeyed(head, await _list_changes(repository, call)))
        kept = {} if obeyed or not call.checks_out else _keep(self._list_obeyed(head, await repository.list_tracked()))
        result = await repository.act(
            call.words,
            network=call.network,
            is_local=call.network and self._find_addresses(call)[1],
            hooks=hooks,
            timeout_s=_NETWORK_S_MAX if call.network else GIT_S_MAX,
            start=self._workspace.root,
            inner=await repository.list_submodules(),
        )
        put_back: list[str] = []
        if call.checks_out and not obeyed:
            now = self._list_obeyed(head, await repository.list_tracked())
            put_back = await asyncio.to_thread(_put_back, kept, now)
        return _render(result.output.text, result.exit_code, put_back, timed_out="wall" in result.limits_hit)

    def _check_root(self, head: GitHead) -> None:
        """Refuse to change files of a repository that is larger than the workspace."""
        if not self._workspace.covers(head.root):
            raise ToolError(
                f"this would change files outside of {self._workspace.root}",
                hint=f"start in {head.root}, or ask the user to do it in their terminal",
                reason="permission_denied",
            )

    def _check_filters(self, head: GitHead, tracked: Sequence[str]) -> None:
        """Refuse where attributes send files through a program: without it other bytes would be committed."""
        places = [path for path in tracked if path.rpartition("/")[2] == ".gitattributes"]
        files = [os.path.join(head.root, path) for path in dict.fromkeys((".gitattributes", *places))]
        for file in (*files, os.path.join(head.common_folder, "info", "attributes")):
            match = _FILTER.search(_read_text(file))
            if match is not None:
                raise ToolError(
                    f"{self._workspace.display_path(file)} sends files through the filter {match[1][:40]}, which is a "
                    "program and does not run here",
                    hint="ask the user to do this in their terminal",
                    reason="permission_denied",
                )

    def _list_obeyed(self, head: GitHead, paths: Iterable[str]) -> dict[str, str]:
        """Return those of the paths of a repository that programs of the user obey, each with the reason."""
        roots = (head.root,)
        parts = ((path, find_obeyed_part(os.path.join(head.root, path), roots, exact=False)) for path in paths)
        return {os.path.join(head.root, path): part for path, part in parts if part is not None}

    def _refuse_obeyed(self, call: GitCall, obeyed: Mapping[str, str]) -> None:
        if not obeyed:
            return
        names = [self._workspace.display_path(path) for path in obeyed][:_SHOWN_MAX]
        raise ToolError(
            f"git {call.name} would change files that other programs obey: {', '.join(names)}",
            hint="where that is wanted, call it with obeyed=true: the user is asked",
            reason="permission_denied",
        )


async def _list_changes(repository: GitRepository, call: GitCall) -> list[str]:
    """Return the paths that a call may bring in: all that differ between what is checked out and the commits that it
    names, or that these commits change."""
    words = [word for argument in call.revisions for word in _RANGE.split(argument) if word]
    words += ["stash@{0}"] if call.name == "stash" and call.arguments[:1] in (["pop"], ["apply"], ["branch"]) else []
    words += ["@{upstream}", "FETCH_HEAD"] if call.name == "pull" else []
    words += [f"{word}^" for word in words] if call.name == "revert" else []
    paths: dict[str, None] = {}
    for word in dict.fromkeys(words):
        commit = await repository.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{word}^{{commit}}")
        if commit.strip():
            listed = await repository.ask("diff", "--name-only", "--no-renames", "-z", "HEAD", commit.strip(), "--")
            paths.update(dict.fromkeys(path for path in listed.split("\0") if path))
    return list(paths)


# ---------------------------------------------------------------- files that are put back


def _keep(paths: Iterable[str]) -> dict[str, bytes | str | None]:
    """Return what each path holds: bytes, the target of a link, or None where there is nothing."""
    return {path: _look(path) for path in paths}


def _look(path: str) -> bytes | str | None:
    try:
        state = os.lstat(path)
        if stat.S_ISLNK(state.st_mode):
            return os.readlink(path)
        if not stat.S_ISREG(state.st_mode):
            return None
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _put_back(kept: Mapping[str, bytes | str | None], now: Iterable[str]) -> list[str]:
    """Put back what git has changed of these files, and remove those that it has made."""
    changed = [path for path in {**kept, **dict.fromkeys(now)} if _look(path) != kept.get(path)]
    for path in changed:
        before = kept.get(path)
        if os.path.lexists(path) and not os.path.isdir(path):
            os.unlink(path)
        elif os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        if before is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if isinstance(before, str):
                os.symlink(before, path)
            else:
                with open(path, "xb") as file:
                    file.write(before)
    return changed


def _read_text(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, encoding="utf-8", errors="replace") as file:
            return file.read(_ATTRIBUTES_BYTES_MAX)
    except OSError:
        return ""


def _render(text: str, exit_code: int, put_back: Sequence[str], *, timed_out: bool) -> str:
    """Return the text of a call that has ended; a ToolError with the same text where it failed."""
    if len(text) > _OUTPUT_CHARS_MAX:
        half = _OUTPUT_CHARS_MAX // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    notes = [f"exit code {exit_code}", "outside the sandbox, without programs of the settings"]
    if put_back:
        notes.append(f"put back, because other programs obey them: {', '.join(put_back[:_SHOWN_MAX])}")
    text = f"{text.rstrip()}\n[{' · '.join(notes)}]".lstrip("\n")
    if exit_code == 0:
        return text
    raise ToolError(text, reason="timeout" if timed_out else "exec_failed", exit_code=exit_code)
