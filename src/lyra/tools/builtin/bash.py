"""Bash: a command line in the sandbox; where no sandbox works, only what a person has allowed knowing that.

The command finds what `lyra.sandbox` shows it: the workspace, writable where the Grant says so, with protected paths
shut; an environment of a few names; no network but for hosts that `net.http` rules of the Grant name, through a proxy.
Each call starts a new shell in the workspace: no state of an earlier call is left. stdout and stderr come together, and
with them how it ended, which limits it hit and what held it. Long output is shown head and tail, all of it is in a file
that Read and Grep can open. Time-out, cancellation and the end of the caller's process end everything it started.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.clock import SystemClock
from lyra.core.limits import CAPABILITY_LENGTH_MAX
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import Holding, Tool, caller, ending, job_log, progress, rights, unheld
from lyra.errors import CapabilityDenied, ConfigError, SandboxUnavailable, ToolError
from lyra.sandbox.protection.forbidden_names import clean_up
from lyra.sandbox.protection.git_repositories import find_program_setting
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.function import tool
from lyra.tools.shell.text_glob import TextGlob

if TYPE_CHECKING:
    from lyra.sandbox import Job, Output, Profile, Result, Sandbox


BASH_S_DEFAULT: Final = 120.0
BASH_S_MAX: Final = 600.0
OUTPUT_CHARS_MAX: Final = 30_000  # shown; the rest of a longer output is in a file
_GLOBS: Final = frozenset("*?")
_JOB_S_MAX: Final = 24 * 3600.0  # of a job in the background
_NETWORK: Final = frozenset({"net.http", "net.*"})
_GIT_SHUT: Final = re.compile(
    r"\.git/[^\n]*: Read-only file system|unable to (?:create|write|append)[^\n]*\.git/|cannot open '?[^\n]*\.git/"
    r"|insufficient permission for adding an object|could not lock config file|unable to write new.index file"
)
_ELSEWHERE: Final = re.compile(r"\bgit\s+(?:init|clone)\b|--git-dir|--work-tree|GIT_DIR|\s-C\b")
_NO_HOST: Final = re.compile(
    r"(?i)could not resolve|name resolution|name or service not known|getaddrinfo E|network is unreachable|dns error"
    r"|no such host|failed to establish a new connection"
)
_HOST: Final = re.compile(r"(?:https?://|host(?:='|: )|getaddrinfo \w+ |lookup )'?((?:[\w-]+\.)+[a-z]{2,})")
# Without a network installers end soon; npm tries for over a minute by itself, and pip gives no reason without a retry.
_OFFLINE: Final = {"npm_config_fetch_retries": "0", "PIP_RETRIES": "1", "CARGO_NET_RETRY": "0", "UV_HTTP_RETRIES": "0"}
_USE_GIT: Final = " · the sandbox never opens .git: use the tool Git for that"
_UNHELD: Final = "no sandbox works here, so the command had all your rights"
_EXEC: Final = frozenset({"process.exec", "process.*", "*"})


def bash_tools(
    workspace: Workspace,
    *,
    sandbox: Sandbox | None = None,
    readable: Sequence[str] = (),
    programs: Sequence[str] = (),
    most: Callable[[], Grant] | None = None,
) -> list[Tool]:
    """Bash and its jobs; `readable` are folders outside the workspace that commands may read, besides the system's.
    `programs` are such folders that need no right, as those of the system, unless the Grant denies them. What
    `most` returns narrows what commands may do, beyond the Grant of the process."""
    for root in workspace.roots:
        clean_up(root)
    jobs = Jobs()
    family = _Bash(workspace, sandbox, tuple(readable), jobs, most, tuple(programs))
    bash = tool(
        family.bash,
        name="Bash",
        needs_of=_needs,
        untrusted=True,
        guarded=True,
        concurrency="sequential",
        folders=workspace.roots,
        check=family.check,
    )
    return [msgspec.structs.replace(bash, holds=family.hold), *jobs.tools()]


def _needs(arguments: dict[str, Any]) -> list[Capability]:
    """Return the right to run the whole line: a rule with a wildcard covers one simple command, a chain needs an exact
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
    """Return the patterns of a denied command: one program is meant with any arguments."""
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
    "diff.ignoreSubmodules": "dirty",  # git would run in each of them, by their settings
}
_GIT: Final = {
    "GIT_CONFIG_COUNT": str(len(_GIT_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_GIT_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_GIT_SETTINGS.values())},
}


class _Bash:
    __slots__ = ("_has_own_sandbox", "_jobs", "_most", "_programs", "_readable", "_sandbox", "_workspace")

    def __init__(
        self,
        workspace: Workspace,
        sandbox: Sandbox | None,
        readable: tuple[str, ...],
        jobs: Jobs,
        most: Callable[[], Grant] | None = None,
        programs: tuple[str, ...] = (),
    ) -> None:
        self._most = most
        self._programs = programs
        self._workspace = workspace
        self._sandbox = sandbox
        self._has_own_sandbox = sandbox is not None
        self._readable = readable
        self._jobs = jobs

    def hold(self, grant: Grant, command: str) -> Holding:
        """Return how the sandbox would hold a command line with these rights."""
        from lyra.sandbox.sandbox import may_work
        from lyra.tools.shell.command_line import read_line

        if self._most is not None:
            grant = grant.narrow(self._most())
        folders = _find_folders_of(self._workspace.root, command) if "git" in command else []
        is_plain = folders is not None and find_program_setting(folders) is None
        works = self._has_own_sandbox or may_work()
        return Holding(works, _has_network(grant), reads=works and is_plain and read_line(command).reads_only)

    def check(self, command: str, **_: Any) -> None:
        """Refuse a git command that writes to the repository of the workspace: no sandbox lets it."""
        from lyra.core.commands.reading import reads_only
        from lyra.sandbox.sandbox import may_work
        from lyra.tools.git.calls import COMMANDS
        from lyra.tools.git.repository import read_head
        from lyra.tools.shell.command_line import read_line

        lines = [text.split() for text in read_line(command).commands if re.match(r"git\s+\S", text)]
        writes = next((words[1] for words in lines if words[1] in COMMANDS and not reads_only(words)), None)
        if writes is None or _ELSEWHERE.search(command) or not (self._has_own_sandbox or may_work()):
            return
        folders = _find_folders_of(self._workspace.root, command) or [os.sep]
        is_inside = all(f"{os.path.realpath(folder)}/".startswith(f"{self._workspace.root}/") for folder in folders)
        if is_inside and read_head(folders[-1]) is not None:
            message = f"git {writes} writes to .git, and the sandbox of commands never opens it"
            raise ToolError(message, hint="use the tool Git, one call for each command", reason="read_only")

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
        argv = ["/bin/bash", "-c", command]
        if run_in_background:
            self._jobs.check()
            number, copy = self._jobs.reserve()
            job = await self._start(argv, self._profile(_JOB_S_MAX), copy=copy)
            return self._jobs.add(number, job, command)
        profile = self._profile(BASH_S_MAX)
        job = await self._start(argv, profile, timeout_s=timeout)
        return _render_result(await wait_reporting(job), is_offline=profile.egress is None)

    async def _start(
        self, argv: list[str], profile: Profile, *, timeout_s: float | None = None, copy: str | None = None
    ) -> Job:
        """Start a command in the sandbox; where none works, as the user would, if a person has allowed exactly that."""
        if self._sandbox is None:
            from lyra.sandbox import Sandbox

            self._sandbox = Sandbox()
        sandbox, spill = self._sandbox, self._workspace.spill.folder()
        try:
            return await sandbox.start(argv, profile, timeout_s=timeout_s, spill_folder=spill, copy=copy)
        except SandboxUnavailable:
            if not unheld.get() or await _works(sandbox):
                raise
        from lyra.sandbox.job import Job, LaunchPlan

        plan = LaunchPlan(argv, _users_environment(profile), profile.start, "none", holes=(_UNHELD,), copy=copy)
        limit_s = profile.limits.wall_s if timeout_s is None else timeout_s
        return Job(plan, profile.limits, stdin=None, timeout_s=limit_s, apart=False, spill=spill)

    def _profile(self, seconds_max: float) -> Profile:
        from lyra.sandbox import Limits, Profile
        from lyra.sandbox.developer_tools import find_variables

        grant = rights.get()
        if grant is None:
            root = self._workspace.root
            grant = Grant(allow=[f"fs.read:{root}/**", f"fs.write:{root}/**"])
        if self._most is not None:
            grant = grant.narrow(self._most())
        undenied = Grant(["*"], grant.deny)
        readable = [folder for folder in self._readable if grant.allows(Capability("fs.read", f"{folder}/**"))]
        readable += [folder for folder in self._programs if undenied.allows(Capability("fs.read", f"{folder}/**"))]
        try:
            profile = Profile.of(
                grant,
                self._workspace.root,
                readable=readable,
                limits=Limits(wall_s=seconds_max, output_kept_bytes=OUTPUT_CHARS_MAX),
                env={**find_variables(), **_GIT} if self._programs else _GIT,
            )
        except ConfigError as error:
            raise ToolError(error.message, hint=error.hint, reason="permission_denied") from None
        extra_roots = [root for root in self._workspace.roots[1:] if _may_work_in(grant, root)]
        profile = replace(profile, writable_also=(*profile.writable_also, *extra_roots))
        return profile if _has_network(grant) else replace(profile, egress=None, env={**profile.env, **_OFFLINE})


def _users_environment(profile: Profile) -> dict[str, str]:
    """Return the variables of a command that no sandbox holds: a few of the user's, and no key."""
    env = profile.environment(home=os.path.expanduser("~"), temporary=tempfile.gettempdir())
    env.pop("LYRA_SANDBOX", None)
    return {**env, "PATH": os.environ.get("PATH", os.defpath)}


async def _works(sandbox: Sandbox) -> bool:
    try:
        await sandbox.tier()
    except SandboxUnavailable:
        return False
    return True


def _has_network(grant: Grant) -> bool:
    """Return whether commands reach hosts. A Grant of everything names no host; in a narrowed Grant each layer has to
    name one."""
    named = [any(cap.name in _NETWORK for cap in layer) for layer in grant.layers]
    return bool(named) and all(named)


def _find_folders_of(root: str, command: str) -> list[str] | None:
    """Return the workspace and the folder that a list of commands enters by `cd`; None where that is not known."""
    from lyra.tools.shell.command_line import read_line

    moves = [part.line for part in read_line(command).parts if part.line.enters]
    if not moves:
        return [root]
    words = moves[0].text.split()
    return [root, os.path.join(root, words[1])] if len(moves) == 1 and len(words) == 2 and moves[0].plain else None


def _may_work_in(grant: Grant, root: str) -> bool:
    """Return whether the Grant opens the folder as a whole; denied paths inside it are protected by the sandbox."""
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
    is killed before the cancellation continues."""
    listener = progress.get()
    try:
        if listener is not None:
            reported = 0
            while job.running:
                await asyncio.wait({job.done}, timeout=_EVERY_S)
                total = job.output.total_bytes
                if total != reported and not job.done.done():
                    reported = total
                    tail = job.since(max(0, total - _BYTES), most_bytes=_BYTES)
                    listener(tail.decode("utf-8", "replace"), None)
        return await job.wait()
    except asyncio.CancelledError:
        await job.end()
        raise


# Commands in the background: BashOutput and KillShell.

JOBS_MAX: Final = 16  # running, for one process
_KEPT_MAX: Final = 64  # jobs of one process that BashOutput still knows
_SHOWN_BYTES_MAX: Final = 30_000
_COMMAND_CHARS_MAX: Final = 200
_DIGITS_MAX: Final = 9
_PREFIX: Final = "bash_"  # of a job's name, before its number


class _Background:
    """One job, and how much of its output has been shown."""

    __slots__ = ("began_s", "command", "is_stopped", "job", "told")

    def __init__(self, job: Job, command: str) -> None:
        self.job = job
        self.command = command
        self.told = 0
        self.is_stopped = False  # a caller has ended it
        self.began_s = SystemClock().monotonic()

    def stop(self) -> None:
        self.is_stopped = self.is_stopped or self.job.running
        self.job.kill()

    @property
    def status(self) -> str:
        """Of a job that has ended."""
        return "stopped" if self.is_stopped else "done" if self.job.done.result().ok else "failed"


class Jobs:
    """The jobs of every process that uses one set of tools."""

    __slots__ = ("_of", "_started")

    def __init__(self) -> None:
        self._of: dict[str, dict[str, _Background]] = {}
        self._started: dict[str, int] = {}

    def tools(self) -> list[Tool]:
        """Return the two tools. They are not idempotent: output that was shown is not shown again."""
        return [
            tool(self.output, name="BashOutput", untrusted=True, harmless=True, polling=True),
            tool(self.kill, name="KillShell", untrusted=True, harmless=True),
        ]

    # ------------------------------------------------------------ starting
    def check(self) -> None:
        """Refuse a job that no process would own, or one too many."""
        if ending.get() is None:
            raise ToolError(
                "a job in the background belongs to an agent's process, and there is none", reason="exec_failed"
            )
        running = [background for background in self._mine().values() if background.job.running]
        if len(running) >= JOBS_MAX:
            raise ToolError(f"{JOBS_MAX} jobs are running already", hint="end one with KillShell", reason="exec_failed")

    def reserve(self) -> tuple[int, str | None]:
        """Return the number of the next job, and the file that gets a copy of its output, if one does."""
        pid, log = caller.get(), job_log.get()
        self._started[pid] = number = max(self._started.get(pid, 0), log.last(pid) if log is not None else 0) + 1
        return number, log.copy_for(pid, number) if log is not None else None

    def add(self, number: int, job: Job, command: str) -> str:
        pid, end_with, log = caller.get(), ending.get(), job_log.get()
        assert end_with is not None
        mine = self._of.get(pid)
        if mine is None:
            mine = self._of[pid] = {}
            end_with(lambda: self._end(pid))
        name = f"{_PREFIX}{number}"
        background = mine[name] = _Background(job, command)
        if log is not None:
            log.on_started(pid, number, command, background.stop)
            job.done.add_done_callback(lambda done: log.on_ended(pid, number, background.status, _how(done.result())))
        for old in [known_name for known_name, known in mine.items() if not known.job.running][
            : max(0, len(mine) - _KEPT_MAX)
        ]:
            del mine[old]
        return f"started in the background as {name}; BashOutput tells how it goes, KillShell ends it"

    def _mine(self) -> dict[str, _Background]:
        return self._of.get(caller.get(), {})

    def _end(self, pid: str) -> list[asyncio.Future[Result]]:
        """End the jobs of a process that has ended. Returns futures that are done when the jobs are."""
        self._started.pop(pid, None)
        running = [background.job for background in self._of.pop(pid, {}).values() if background.job.running]
        for job in running:
            job.kill()
        return [job.done for job in running]

    # ------------------------------------------------------------ the tools
    async def output(self, bash_id: str) -> str:
        """Return what a job in the background has printed since it was last looked at, and whether it still runs.

        Args:
            bash_id: its name, as Bash gave it
        """
        earlier = self._earlier(bash_id)
        if earlier is not None:
            return earlier
        known = self._find(bash_id)
        new = _new(known)
        job = known.job
        if job.running:
            seconds = SystemClock().monotonic() - known.began_s
            return _with_note(new or "(nothing new)", f"{bash_id} is running, for {seconds:.1f} s")
        result = await job.wait()
        return _with_note(new or "(nothing new)", f"{bash_id} has ended: {_how(result)}")

    async def kill(self, bash_id: str) -> str:
        """End a job in the background, and everything that it started.

        Args:
            bash_id: its name, as Bash gave it
        """
        earlier = self._earlier(bash_id)
        if earlier is not None:
            return earlier
        known = self._find(bash_id)
        was_running = known.job.running
        known.stop()
        result = await known.job.wait()
        new = _new(known)
        note = f"{bash_id} was ended" if was_running else f"{bash_id} had ended before: {_how(result)}"
        return _with_note(new, note) if new else note

    def _earlier(self, bash_id: str) -> str | None:
        """Return what is known of a job that ended with an earlier life of the process."""
        log, number = job_log.get(), bash_id.removeprefix(_PREFIX)
        if log is None or bash_id in self._mine() or number == bash_id or not (number.isascii() and number.isdecimal()):
            return None
        return log.earlier(caller.get(), int(number[:_DIGITS_MAX]))

    def _find(self, bash_id: str) -> _Background:
        mine = self._mine()
        background = mine.get(bash_id)
        if background is None:
            there = "; ".join(f"{name}: {known.command[:_COMMAND_CHARS_MAX]}" for name, known in mine.items())
            raise ToolError(
                f"there is no job {bash_id[:80]!r}", hint=f"there are {there or 'none'}", reason="not_found"
            )
        return background


def _new(known: _Background) -> str:
    """Return the output since the last call: all of it, or head and tail where it is long."""
    output = known.job.output
    start, known.told = known.told, output.total_bytes
    length = output.total_bytes - start
    if length <= _SHOWN_BYTES_MAX:
        return known.job.since(start, most_bytes=length).decode("utf-8", "replace")
    half = _SHOWN_BYTES_MAX // 2
    head = known.job.since(start, most_bytes=half)
    tail = known.job.since(output.total_bytes - half, most_bytes=half)
    note = _describe_cut(length - 2 * half, output)
    return f"{head.decode('utf-8', 'replace')}\n{note}\n{tail.decode('utf-8', 'replace')}"


def _render_result(result: Result, *, is_offline: bool) -> str:
    """Return the text of a command that has ended; a ToolError with the same text where it failed. One that looks for a
    host without a network is told what opens one."""
    output = result.output
    text = output.head.decode("utf-8", "replace")
    if output.left_out_bytes:
        text += f"\n{_describe_cut(output.left_out_bytes, output)}\n"
    text += output.tail.decode("utf-8", "replace")
    hint = _USE_GIT if not result.ok and _GIT_SHUT.search(text) else ""
    if is_offline and result.tier != "none" and _NO_HOST.search(text):
        host = _HOST.search(text)  # pip names a path of the index only
        hosts = [host[1]] if host else ["pypi.org", "files.pythonhosted.org"] if " /simple/" in text else ["HOST"]
        words = " and ".join(f'/permissions allow "WebFetch({host})"' for host in hosts)
        hint += f" · commands have no network: a rule opens a host (the user says {words})"
    text = _with_note(text, f"{_how(result)}{hint}")
    if result.ok:
        return text
    reason = "timeout" if "wall" in result.limits_hit else "exec_failed"
    raise ToolError(text, reason=reason, exit_code=result.exit_code, limits_hit=list(result.limits_hit))


def _describe_cut(count: int, output: Output) -> str:
    where = f"all of it is in {output.file}" if output.file else "no file could be written for them"
    return f"… {count} bytes left out; {where} …"


def _with_note(text: str, note: str) -> str:
    return f"{text.rstrip()}\n[{note}]" if text.strip() else f"[{note}]"


_LIMITS: Final = {
    "wall": "it took too long and was ended",
    "cpu": "processor time",
    "memory": "memory",
    "file_size": "size of a file",
    "processes": "number of processes",
    "output": "amount of output",
    "search": "the workspace could not be searched to its end, so protected paths in it may be new",
}


def _how(result: Result) -> str:
    """Exit code, limits, time, sandbox, and what the sandbox could not prevent or had to repair."""
    notes = [f"exit code {result.exit_code}"]
    if result.limits_hit:
        notes.append("limit hit: " + ", ".join(_LIMITS.get(name, name) for name in result.limits_hit))
    notes.append(f"{result.duration_s:.1f} s")
    holes = f", which does not hold everything: {'; '.join(result.holes)}" if result.holes else ""
    notes.append(f"sandbox {result.tier}{holes}")
    if result.appeared:
        notes.append(f"protected paths that are new: {', '.join(result.appeared[:10])}")
    if result.put_back:
        notes.append(f"protected links that were put back as they were: {', '.join(result.put_back[:10])}")
    if result.reopened:
        notes.append(f"folders that were shut, and are open to their owner again: {', '.join(result.reopened[:10])}")
    if result.unread:
        notes.append(f"folders that cannot be looked through, and were shown empty: {', '.join(result.unread[:10])}")
    if result.set_aside:
        notes.append(f"nothing may make those: they were renamed to {', '.join(result.set_aside[:10])}")
    refused = [line for line in result.egress if line.startswith("refused")]
    if refused:
        notes.append(f"network: {'; '.join(refused[:5])}")
    return " · ".join(notes)
