"""Commands in a sandbox: the best tier that works here, or a refusal.

`Sandbox.run` runs a command to its end, `Sandbox.start` gives a `Job` that runs on. Before a tier is first used it
is tried with a real command that must work and a real act that must be denied; the result is cached for the life of the
process. Without a working tier nothing runs: `SandboxUnavailable` says what is missing, and no option runs a command
outside. The argument `tiers` can only leave tiers out.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lyra.core.ids import Entropy
from lyra.errors import ConfigError, LyraError, SandboxUnavailable
from lyra.sandbox import landlock
from lyra.sandbox.addresses import Lookup
from lyra.sandbox.job import Job, LaunchPlan, Pipes, Result
from lyra.sandbox.profile import Limits, Profile
from lyra.sandbox.proxy import Dial, Proxy, system_dial, system_lookup
from lyra.sandbox.tiers import TIERS, Bubblewrap, Landlock, SandboxTier

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
