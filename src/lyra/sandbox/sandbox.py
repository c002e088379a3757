"""Commands in a sandbox: the best tier that works here, or a refusal.

`Sandbox.run` runs a command to its end, `Sandbox.start` gives a `Job` that runs on. Before a tier is first used it
is tried with a real command that must work and a real act that must be denied; the result is cached for the life of the
process. Without a working tier nothing runs: `SandboxUnavailable` says what is missing, and no option runs a command
outside. The argument `tiers` can only leave tiers out. A tier turns a command and its Profile into a `LaunchPlan`, and
says what it lacks on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from lyra.core.ids import Entropy
from lyra.core.limits import SANDBOX_SCAN_ENTRIES_MAX
from lyra.errors import ConfigError, LyraError, SandboxUnavailable
from lyra.sandbox import bubblewrap, cgroup, landlock, seccomp
from lyra.sandbox.addresses import Lookup
from lyra.sandbox.job import Job, LaunchPlan, Pipes, Result
from lyra.sandbox.landlock_tier import ClosedFolders, ruleset_of
from lyra.sandbox.pre_exec import Confinement, PreExec, in_shell, rlimits
from lyra.sandbox.profile import Limits, Profile
from lyra.sandbox.protected import News, ProtectedPaths, find, hold_links
from lyra.sandbox.protection.forbidden_names import FOLDERS, placeholders, remove_stale
from lyra.sandbox.protection.protected_places import Places, list_own_folders, places_in
from lyra.sandbox.proxy import Dial, Proxy, system_dial, system_lookup
from lyra.sandbox.running_commands import RunningCommand, finish_killed, has_killed

_RELAY_PORT: Final = 3128
_PROXY_NAMES: Final = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
# A shell becomes the command: in every tier a command that cannot be run ends with 127 or 126 and a message.
_COMMAND: Final = ("/bin/sh", "-c", 'exec "$0" "$@"')
_names: Final = Entropy()
_MOVABLE: Final = "this bubblewrap is old: a folder with protected paths in it can be moved"
_LINKED: Final = "a protected path is a symlink: what it leads to is protected, the link itself is put back afterwards"
_AT_HAND_MAX: Final = 500  # entries whose search is faster than starting a thread


class SandboxTier(Protocol):
    """One way to confine a command."""

    name: str

    def missing(self) -> str | None:
        """Return what this machine lacks for the tier, and how to install it; None when nothing is missing."""

    async def plan(self, argv: Sequence[str], profile: Profile, proxy: Proxy | None) -> LaunchPlan: ...


def _proxy_environment(url: str) -> dict[str, str]:
    return dict.fromkeys(_PROXY_NAMES, url) | {"no_proxy": "", "NO_PROXY": ""}


def _remove(folder: str) -> Callable[[], None]:
    def remove() -> None:
        with contextlib.suppress(RecursionError):  # folders nested too deeply by the command are left
            shutil.rmtree(folder, ignore_errors=True)

    return remove


def _closing(fds: Sequence[int]) -> Callable[[], None]:
    def close() -> None:
        for fd in fds:
            os.close(fd)

    return close


def _group(profile: Profile) -> cgroup.ControlGroup | None:
    return cgroup.make(f"lyra-{_names.text(12)}", profile.limits)


def _rlimits(profile: Profile, group: cgroup.ControlGroup | None) -> list[tuple[int, int]]:
    return rlimits(profile.limits, group.controllers if group is not None else frozenset())


@contextmanager
def _undone_on_failure() -> Iterator[list[Callable[[], None]]]:
    """Return a list of what has to be undone, the last first, where the plan of a command fails."""
    undo: list[Callable[[], None]] = []
    try:
        yield undo
    except BaseException:
        while undo:
            undo.pop()()
        raise


class Bubblewrap:
    name = "bubblewrap"

    def __init__(self) -> None:
        self._program = bubblewrap.find_program()
        self.by_descriptor = True  # until a probe shows that this bubblewrap cannot

    def missing(self) -> str | None:
        if sys.platform != "linux":
            return f"bubblewrap is for Linux, and this is {sys.platform}: run Lyra in a Linux container or machine"
        if not seccomp.SUPPORTED:
            return f"there is no filter of system calls for {os.uname().machine}"
        if self._program is None:
            return "bubblewrap is not installed: apt-get install bubblewrap (or dnf, pacman, apk)"
        return None

    async def plan(self, argv: Sequence[str], profile: Profile, proxy: Proxy | None) -> LaunchPlan:
        with _undone_on_failure() as undo:
            return await self._plan(argv, profile, proxy, undo)

    async def _plan(
        self, argv: Sequence[str], profile: Profile, proxy: Proxy | None, undo: list[Callable[[], None]]
    ) -> LaunchPlan:
        assert self._program is not None
        earlier = await _finish_killed(profile)
        places = _add_placeholders(profile, undo, usual=FOLDERS)
        protected = await _find_protected(profile, places)
        command = RunningCommand(profile, protected, earlier)
        undo += [command.end, *hold_links(profile, protected)]
        env = profile.environment(home=bubblewrap.HOME, temporary=bubblewrap.TEMPORARY)
        # The relay needs a unix socket: it starts under a filter that allows them, and installs the stricter one later.
        first = seccomp.program(seccomp.Rules(internet="any", unix=profile.unix_sockets or proxy is not None))
        words = [*_COMMAND, *argv]
        extra: list[str] = []
        info, told = os.pipe()
        fds = [bubblewrap.in_memory(first), told]
        if proxy is not None:
            program = seccomp.program(seccomp.Rules(internet="any", unix=profile.unix_sockets))
            folder = tempfile.mkdtemp(prefix="lyra-egress-")
            undo.append(_remove(folder))
            await proxy.listen_unix(f"{folder}/proxy")
            extra, words = _way_out(folder, program, words)
            env = _proxy_environment(f"http://127.0.0.1:{_RELAY_PORT}") | env
        line, bound = bubblewrap.arguments(
            self._program,
            profile,
            protected,
            by_descriptor=self.by_descriptor,
            filter_fd=fds[0],
            info_fd=told,
            extra=extra,
        )
        fds += bound
        group = _group(profile)
        return LaunchPlan(
            argv=[*in_shell(_rlimits(profile, group), group.files if group else ()), *line, *words],
            env=env,
            cwd="/",
            tier=self.name,
            holes=tuple(_find_holes(protected, movable=profile.writable and not self.by_descriptor)),
            pass_fds=tuple(fds),
            group=group,
            info_fd=info,
            started=[_closing(fds)],
            undo=undo,
            news=command.look,
            entries=protected.entries,
        )


def _add_placeholders(profile: Profile, undo: list[Callable[[], None]], *, usual: tuple[str, ...]) -> Places | None:
    """Make the folders that a command must not make: the usual ones in the workspace, and those of Lyra in each folder
    that it may write. Gives the places of the workspace where that has changed none of them."""
    first = None
    for root in (profile.workspace, *profile.writable_also):
        places = places_in(root) if root != profile.workspace or profile.writable else None
        if places is None:
            continue
        if places.folders or places.hidden:  # what a killed process has left would look like the user's
            remove_stale(root, list_own_folders(root))
            places = places_in(root)
        names = (*usual, *places.folders) if root == profile.workspace else places.folders
        if names:
            undo.append(placeholders(root, names))
        if root == profile.workspace and not places.folders:
            first = places
    return first


async def _finish_killed(profile: Profile) -> News:
    """Finish what commands of killed processes have left in the workspace; a process looks for it at its first command
    there, and where a mark says so."""
    return await asyncio.to_thread(finish_killed, profile) if has_killed(profile) else News()


async def _find_protected(profile: Profile, places: Places | None = None) -> ProtectedPaths:
    """Return the protected paths for a command; SandboxUnavailable where the search was not complete."""
    protected = find(profile, most=_AT_HAND_MAX, places=places)
    if not protected.complete:
        protected = await asyncio.to_thread(find, profile)
    if not protected.complete:
        raise SandboxUnavailable(
            f"the workspace has more than {SANDBOX_SCAN_ENTRIES_MAX} files to look through for protected paths, "
            "so the command does not run",
            hint="work in a smaller folder; node_modules, .venv and their like do not count",
        )
    for root, inside in ((profile.workspace, protected), *protected.also):
        if "" in inside.unread:
            raise SandboxUnavailable(
                f"{root} cannot be looked through for protected paths, so the command does not run",
                hint=f"chmod u+rwx {root}",
            )
    return protected


def _find_holes(protected: ProtectedPaths, *, movable: bool = False) -> list[str]:
    nested = movable and any("/" in path for path in protected.all())
    told = ((bool(protected.all_links()), _LINKED), (nested, _MOVABLE))
    return [hole for is_there, hole in told if is_there]


def _way_out(folder: str, program: bytes, command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Put the filter and the relay beside the proxy's socket; gives the mounts, and the command started by the
    relay."""
    Path(folder, "filter").write_bytes(program)
    shutil.copyfile(Path(__file__).with_name("relay.py"), f"{folder}/relay.py")
    inside = bubblewrap.INSIDE
    python = os.path.realpath(sys.executable)
    extra = ["--ro-bind", sys.base_prefix, sys.base_prefix] if not sys.base_prefix.startswith("/usr") else []
    extra += ["--ro-bind", folder, inside]
    relay = [python, "-IS", f"{inside}/relay.py", str(_RELAY_PORT), f"{inside}/proxy", f"{inside}/filter", "--"]
    return extra, [*relay, *command]


class Landlock:
    name = "landlock"

    def __init__(self) -> None:
        self.creates = True  # until a probe shows that this kernel passes no calls on

    def missing(self) -> str | None:
        if sys.platform != "linux":
            return f"landlock is for Linux, and this is {sys.platform}"
        if not seccomp.SUPPORTED:
            return f"there is no filter of system calls for {os.uname().machine}"
        version = landlock.abi()
        if version < landlock.LEAST:
            return f"the kernel's landlock is version {version}, not {landlock.LEAST} or newer: use Linux 6.2 or newer"
        return None

    async def plan(self, argv: Sequence[str], profile: Profile, proxy: Proxy | None) -> LaunchPlan:
        if proxy is not None and landlock.abi() < 4:
            raise SandboxUnavailable(
                "this kernel's landlock cannot limit the network, so no command gets one",
                hint="install bubblewrap, or use Linux 6.7 or newer",
            )
        with _undone_on_failure() as undo:
            return await self._plan(argv, profile, proxy, undo)

    async def _plan(
        self, argv: Sequence[str], profile: Profile, proxy: Proxy | None, undo: list[Callable[[], None]]
    ) -> LaunchPlan:
        earlier = await _finish_killed(profile)
        places = _add_placeholders(profile, undo, usual=())
        protected = await _find_protected(profile, places)
        command = RunningCommand(profile, protected, earlier)
        undo += [command.end, *hold_links(profile, protected)]
        private = tempfile.mkdtemp(prefix="lyra-sandbox-")
        undo.append(_remove(private))
        home = f"{private}/home"
        os.mkdir(home, 0o700)
        for name, path in profile.find_home_links():
            os.symlink(path, f"{home}/{name}")
        env: Mapping[str, str] = profile.environment(home=home, temporary=private)
        if proxy is not None:
            env = {**_proxy_environment(await proxy.listen_tcp()), **env}
        closed = ClosedFolders()
        undo.append(closed.close)
        port = proxy.port if proxy else None
        rules = ruleset_of(profile, protected, private=private, port=port, closed=closed if self.creates else None)
        creation = closed.creation() if closed.folders else None
        kind = seccomp.Rules(internet="tcp" if proxy else "none", unix=profile.unix_sockets, shared=True)
        group = _group(profile)
        confinement = Confinement(rules.fd, seccomp.program(kind), creation)
        joining = [os.open(file, os.O_WRONLY | os.O_CLOEXEC) for file in group.files] if group else []
        holes = landlock.holes(landlock.abi(), egress=proxy is not None, creates=self.creates)
        verdict, report = os.pipe()
        return LaunchPlan(
            argv=[*_COMMAND, *argv],
            env=env,
            cwd=profile.start,
            entry=PreExec(_rlimits(profile, group), tuple(joining), confinement, report=report, creation=creation),
            tier=self.name,
            holes=(*holes, *_find_holes(protected)),
            group=group,
            verdict_fd=verdict,
            started=[rules.close, _closing([*joining, report]), *([creation.close] if creation is not None else [])],
            undo=undo,
            news=lambda most: _without_stock(closed, command, most),
            entries=protected.entries,
        )


def _without_stock(closed: ClosedFolders, command: RunningCommand, most: int | None) -> News:
    closed.close()
    return command.look(most)


TIERS: Final[Mapping[str, type[Bubblewrap] | type[Landlock]]] = {"bubblewrap": Bubblewrap, "landlock": Landlock}


_PROBE_S = 20.0


@dataclass(frozen=True, slots=True)
class TierState:
    """Whether a tier works on this machine, and if not, why and what would help."""

    name: str
    problem: str | None
    holes: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        return self.problem is None


class Sandbox:
    """Runs commands in the first of `tiers` that works."""

    def __init__(
        self,
        *,
        tiers: Sequence[str] = tuple(TIERS),
        spill_folder: str | None = None,
        lookup: Lookup = system_lookup,
        dial: Dial = system_dial,
    ) -> None:
        unknown = [name for name in tiers if name not in TIERS]
        if unknown:
            raise ConfigError(f"there is no sandbox tier {unknown[0]!r}", hint=f"there are {', '.join(TIERS)}")
        self._names = tuple(tiers)
        self._spill = spill_folder
        self._lookup = lookup
        self._dial = dial
        self._tier: SandboxTier | None = None

    async def tier(self) -> str:
        """Return the name of the tier that is used; SandboxUnavailable when none works."""
        return (await self._choose()).name

    async def run(
        self,
        argv: Sequence[str],
        profile: Profile,
        *,
        stdin: bytes | None = None,
        timeout_s: float | None = None,
        apart: bool = False,
        spill_folder: str | None = None,
    ) -> Result:
        """Run to the end. When cancelled, everything the command started is killed before the cancellation
        continues."""
        job = await self.start(argv, profile, stdin=stdin, timeout_s=timeout_s, apart=apart, spill_folder=spill_folder)
        try:
            return await job.wait()
        except asyncio.CancelledError:
            await job.end()
            raise

    async def start(
        self,
        argv: Sequence[str],
        profile: Profile,
        *,
        stdin: bytes | None = None,
        timeout_s: float | None = None,
        apart: bool = False,
        spill_folder: str | None = None,
        copy: str | None = None,
    ) -> Job:
        """Start a command and give a handle. With `apart` stderr goes to `Result.errors` instead of the output; long
        output goes to a file in `spill_folder`, by default that of the sandbox. `copy` is a new file that gets all
        output as it comes."""
        limit_s = profile.limits.wall_s if timeout_s is None else min(timeout_s, profile.limits.wall_s)
        plan = await self._plan(argv, profile)
        plan.copy = copy
        spill = spill_folder or self._spill
        return Job(plan, profile.limits, stdin=stdin, timeout_s=limit_s, apart=apart, spill=spill)

    async def pipes(self, argv: Sequence[str], profile: Profile, *, line_bytes_max: int = 2**20) -> Pipes:
        """Start a command whose stdin and stdout the caller uses as streams."""
        return await Pipes.open(await self._plan(argv, profile), profile.limits, line_bytes_max=line_bytes_max)

    async def _plan(self, argv: Sequence[str], profile: Profile) -> LaunchPlan:
        if not argv or not argv[0] or any("\0" in word for word in argv):
            raise ConfigError("a command is a list of words, and none of them holds a NUL")
        tier = await self._choose()
        proxy = Proxy(profile.egress, lookup=self._lookup, dial=self._dial) if profile.egress is not None else None
        plan = await tier.plan(argv, profile, proxy)
        if proxy is not None:
            plan.undo.append(proxy.close)
            plan.egress = lambda: tuple(proxy.log)
        return plan

    async def _choose(self) -> SandboxTier:
        if self._tier is None:
            states = []
            for name in self._names:
                state, tier = await _try_tier(name)
                states.append(state)
                if state.works:
                    self._tier = tier
                    return tier
            raise SandboxUnavailable(
                "no sandbox works here, so the command does not run",
                hint="; ".join(state.problem or "" for state in states) or "every tier was left out",
                tiers=[state.name for state in states],
            )
        return self._tier


# ---------------------------------------------------------------- trying a tier
_known: dict[str, tuple[TierState, SandboxTier]] = {}


def may_work() -> bool:
    """Return whether a tier works here, as far as is known without trying: one that was tried has worked, or one that
    was not lacks nothing."""
    return any(_known[name][0].works if name in _known else TIERS[name]().missing() is None for name in TIERS)


async def examine() -> list[TierState]:
    """Try every tier, best first."""
    return [(await _try_tier(name))[0] for name in TIERS]


async def _try_tier(name: str) -> tuple[TierState, SandboxTier]:
    known = _known.get(name)
    if known is None:
        tier: SandboxTier = TIERS[name]()
        problem = tier.missing() or await _probe(tier)
        if problem and isinstance(tier, Bubblewrap) and tier.missing() is None and tier.by_descriptor:
            tier.by_descriptor = False  # an older bubblewrap: it hides what a newer one shows read-only
            problem = await _probe(tier)
        holes: tuple[str, ...] = ()
        if isinstance(tier, Landlock) and not problem:
            holes = landlock.holes(landlock.abi(), egress=False, creates=tier.creates)
        known = _known[name] = (TierState(name, problem, holes), tier)
    return known


async def _probe(tier: SandboxTier) -> str | None:
    """Run a command that must work and acts that must be denied; a sentence when one of them does not."""
    folder = tempfile.mkdtemp(prefix="lyra-probe-")
    job: Job | None = None
    try:
        secret = Entropy().token()
        plan = await tier.plan(["/bin/sh", "-c", _prepare(folder, secret)], Profile(f"{folder}/workspace"), None)
        job = Job(plan, Limits(), stdin=None, timeout_s=_PROBE_S, apart=False, spill=None)
        problem = _judge(tier.name, folder, secret, (await job.wait()).output.text)
        if isinstance(tier, Landlock):
            tier.creates = "beside" in os.listdir(f"{folder}/workspace")
        return problem
    except (OSError, LyraError) as error:
        return f"{tier.name} does not work here: {error}"
    except asyncio.CancelledError:
        if job is not None:  # the folder is removed after the job, which looks through it at its end
            job.kill()
            await asyncio.wait([job.done])
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(folder: str, secret: str) -> str:
    """Make a workspace and a file outside it; gives a script that writes in the first and tries to read the second."""
    for name in ("workspace/.git", "workspace/src", "outside"):
        os.makedirs(f"{folder}/{name}")
    Path(folder, "outside/secret").write_text(secret)
    Path(folder, "workspace/.git/config").write_text("ours")
    outside = f"{folder}/outside"
    tried = f"cat {outside}/secret; echo x > {outside}/made; echo x > .git/config"
    return f"echo works > src/made; echo works > beside; {tried}; echo end"


def _judge(name: str, folder: str, secret: str, text: str) -> str | None:
    if not text.rstrip().endswith("end") or not os.path.exists(f"{folder}/workspace/src/made"):
        return f"{name} does not work here: {text.strip()[:200] or 'it printed nothing'}"
    unchanged = Path(folder, "workspace/.git/config").read_text() == "ours"
    if secret in text or os.path.exists(f"{folder}/outside/made") or not unchanged:
        return f"{name} does not hold here: a command reached what it must not reach"
    return None
