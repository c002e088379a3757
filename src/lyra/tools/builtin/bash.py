"""Bash: a command line in the sandbox, and nowhere else.

The command finds what `lyra.sandbox` shows it: the workspace, writable where the Grant says so, with protected paths
shut; an environment of a few names; no network but for hosts that `net.http` rules of the Grant name, through a proxy.
Each call starts a new shell in the workspace: no state of an earlier call is left. stdout and stderr come together, and
with them how it ended, which limits it hit and what held it. Long output is shown head and tail, all of it is in a file
that Read and Grep can open. Time-out, cancellation and the end of the caller's process end everything it started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from lyra.core.limits import CAPABILITY_LENGTH_MAX
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import Tool, progress, rights
from lyra.errors import CapabilityDenied, ConfigError, ToolError
from lyra.sandbox.protection.forbidden_names import clean_up
from lyra.tools.builtin.jobs import Jobs, ended
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.function import tool
from lyra.tools.shell.text_glob import TextGlob

if TYPE_CHECKING:
    from lyra.sandbox import Job, Profile, Result, Sandbox


BASH_S_DEFAULT: Final = 120.0
BASH_S_MAX: Final = 600.0
OUTPUT_CHARS_MAX: Final = 30_000  # shown; the rest of a longer output is in a file
_GLOBS: Final = frozenset("*?")
_JOB_S_MAX: Final = 24 * 3600.0  # of a job in the background
_NETWORK: Final = frozenset({"net.http", "net.*"})
_EXEC: Final = frozenset({"process.exec", "process.*", "*"})


def bash_tools(
    workspace: Workspace, *, sandbox: Sandbox | None = None, readable: Sequence[str] = (), most: Grant | None = None
) -> list[Tool]:
    """Bash and its jobs; `readable` are folders outside the workspace that commands may read, besides the system's.
    `most` narrows what commands may do, beyond the Grant of the process."""
    for root in workspace.roots:
        clean_up(root)
    jobs = Jobs()
    family = _Bash(workspace, sandbox, tuple(readable), jobs, most)
    bash = tool(
        family.bash,
        name="Bash",
        needs_of=_needs,
        untrusted=True,
        guarded=True,
        concurrency="sequential",
        folders=workspace.roots,
    )
    return [bash, *jobs.tools()]


def _needs(arguments: dict[str, Any]) -> list[Capability]:
    """The right to run the whole line: a rule with a wildcard covers one simple command, a chain needs an exact
    rule."""
    command = arguments.get("command")
    if not isinstance(command, str) or not command.strip() or len(command) > CAPABILITY_LENGTH_MAX:
        return []  # the call itself is refused
    from lyra.tools.shell.command_line import read_line

    if _GLOBS.intersection(command) and read_line(command).single is None:
        command = f"{command.rstrip()} ;"  # its stars are file globs: a rule with a wildcard must not match it
    return [Capability("process.exec", command)]


def _check_denied(grant: Grant, command: str) -> None:
    """Refuse the line if a deny of the Grant matches any command that it may run, wrapped ones included."""
    denies = _denies(grant)
    if denies is None:
        return
    from lyra.tools.shell.command_line import read_line

    line = read_line(command)
    if line.unsure is not None:
        raise CapabilityDenied(
            f"the command is denied: the grant denies commands, and this line cannot be read for certain, because "
            f"{line.unsure}",
            hint="write it as plain commands",
        )
    for text in line.commands:
        denies.check(Capability("process.exec", text))
    for cap in denies.deny if line.loose else ():
        if any(line.may_run(glob) for glob in _globs(cap.scope)):
            raise CapabilityDenied(
                f"the command is denied: a program that is not known may run what {cap} denies", rule=str(cap)
            )


@lru_cache(maxsize=256)
def _globs(scope: str) -> tuple[TextGlob, ...]:
    """The patterns of a denied command: one program is meant with any arguments."""
    return (TextGlob(scope),) if " " in scope else (TextGlob(scope), TextGlob(f"{scope} *"))


@lru_cache(maxsize=64)
def _denies(grant: Grant) -> Grant | None:
    denied = [cap for cap in grant.deny if cap.name in _EXEC]
    return Grant(allow=["*"], deny=denied) if denied else None


# A model may write files of the workspace without a question, so they must not make git use a folder as a bare
# repository, run a program that watches files, or serve another folder as a remote.
_GIT_SETTINGS: Final = {
    "safe.bareRepository": "explicit",
    "core.fsmonitor": "false",
    "protocol.file.allow": "never",
}
_GIT: Final = {
    "GIT_CONFIG_COUNT": str(len(_GIT_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_GIT_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_GIT_SETTINGS.values())},
}


class _Bash:
    __slots__ = ("_jobs", "_most", "_readable", "_sandbox", "_workspace")

    def __init__(
        self,
        workspace: Workspace,
        sandbox: Sandbox | None,
        readable: tuple[str, ...],
        jobs: Jobs,
        most: Grant | None = None,
    ) -> None:
        self._most = most
        self._workspace = workspace
        self._sandbox = sandbox
        self._readable = readable
        self._jobs = jobs

    async def bash(
        self,
        command: str,
        timeout: float = BASH_S_DEFAULT,
        description: str = "",  # noqa: ARG002 - shown to people who follow the run
        run_in_background: bool = False,
    ) -> str:
        """Run a command line with bash, in the workspace, held by a sandbox. Each call starts in the workspace anew.

        Args:
            command: the command line
            timeout: how many seconds it may take, at most 600
            description: what it does, in a few words
            run_in_background: return at once; BashOutput tells how it goes, KillShell ends it
        """
        if not command.strip() or "\0" in command or len(command) > CAPABILITY_LENGTH_MAX:
            raise ToolError(
                f"a command has between 1 and {CAPABILITY_LENGTH_MAX} characters", reason="invalid_arguments"
            )
        if not 0 < timeout <= BASH_S_MAX:
            raise ToolError(f"timeout is in seconds, above 0 and at most {BASH_S_MAX:g}", reason="invalid_arguments")
        grant = rights.get()
        if grant is not None:
            _check_denied(grant, command)
        sandbox, argv = self._box(), ["/bin/bash", "-c", command]
        spill = self._workspace.spill.folder()
        if run_in_background:
            self._jobs.check()
            number, copy = self._jobs.reserve()
            job = await sandbox.start(argv, self._profile(_JOB_S_MAX), spill_folder=spill, copy=copy)
            return self._jobs.add(number, job, command)
        job = await sandbox.start(argv, self._profile(BASH_S_MAX), timeout_s=timeout, spill_folder=spill)
        return ended(await wait_reporting(job))

    def _box(self) -> Sandbox:
        if self._sandbox is None:
            from lyra.sandbox import Sandbox

            self._sandbox = Sandbox()
        return self._sandbox

    def _profile(self, seconds_max: float) -> Profile:
        from lyra.sandbox import Limits, Profile

        grant = rights.get()
        if grant is None:
            root = self._workspace.root
            grant = Grant(allow=[f"fs.read:{root}/**", f"fs.write:{root}/**"])
        if self._most is not None:
            grant = grant.narrow(self._most)
        try:
            profile = Profile.of(
                grant,
                self._workspace.root,
                readable=[folder for folder in self._readable if grant.allows(Capability("fs.read", f"{folder}/**"))],
                limits=Limits(wall_s=seconds_max, output_kept_bytes=OUTPUT_CHARS_MAX),
                env=_GIT,
            )
        except ConfigError as error:
            raise ToolError(error.message, hint=error.hint, reason="permission_denied") from None
        extra_roots = [root for root in self._workspace.roots[1:] if _may_work_in(grant, root)]
        profile = replace(profile, writable_also=(*profile.writable_also, *extra_roots))
        # A Grant of everything names no host; in a narrowed Grant each layer has to name one.
        named = [any(cap.name in _NETWORK for cap in layer) for layer in grant.layers]
        return profile if named and all(named) else replace(profile, egress=None)


def _may_work_in(grant: Grant, root: str) -> bool:
    """Whether the Grant opens the folder as a whole; denied paths inside it are protected by the sandbox."""
    opened = Grant.from_data({"layers": [[str(cap) for cap in layer] for layer in grant.layers] or [["*"]]})
    return all(
        opened.allows(Capability(verb, f"{root}/**")) and grant.allows(Capability(verb, root))
        for verb in ("fs.read", "fs.write")
    )


# The output of a command while it runs: its last lines as progress reports of the tool, a few times a second.
_EVERY_S: Final = 0.25
_BYTES: Final = 2_000  # of the end of the output


async def wait_reporting(job: Job) -> Result:
    """Wait for the end of a command, and report its output on the way. When cancelled, everything the command started
    is killed before the cancellation goes on."""
    listener = progress.get()
    try:
        if listener is not None:
            await _report_until_end(job, listener)
        return await job.wait()
    except asyncio.CancelledError:
        await job.end()
        raise


async def _report_until_end(job: Job, listener: Callable[[str, float | None], None]) -> None:
    reported = 0
    while job.running:
        await asyncio.wait({job.done}, timeout=_EVERY_S)
        total = job.output.total_bytes
        if total != reported and not job.done.done():
            reported = total
            tail = job.since(max(0, total - _BYTES), most_bytes=_BYTES)
            listener(tail.decode("utf-8", "replace"), None)
