"""Commands that cannot do more than they may: profiles, tiers, limits, the way out, and paths that stay inside.

Start at `sandbox` (run a command), then `profile` (what it may touch) and `tiers` (how that is held): `bubblewrap`
is the best one, `fence` with `landlock` the second, and without either nothing runs. `seccomp` is the filter of
system calls of both, `child` what happens before the command starts, `job` the running command (the one home of
subprocesses), `pipes` one that is talked to, `cgroup` and `output` its limits. `proxy`, `relay` and `addresses` are
the network, `paths` and `protected` the file system. Nothing here knows tools, agents or the kernel.

Names are looked up when they are first used: who only reads the table of protected paths pays for no event loop.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lyra.sandbox.job import Job, Result
    from lyra.sandbox.output import Output
    from lyra.sandbox.paths import Beneath
    from lyra.sandbox.pipes import Pipes
    from lyra.sandbox.profile import Limits, Profile
    from lyra.sandbox.sandbox import Sandbox, TierState, examine

__all__ = ["Beneath", "Job", "Limits", "Output", "Pipes", "Profile", "Result", "Sandbox", "TierState", "examine"]

_HOMES = {
    "Beneath": "paths",
    "Job": "job",
    "Limits": "profile",
    "Output": "output",
    "Pipes": "pipes",
    "Profile": "profile",
    "Result": "job",
    "Sandbox": "sandbox",
    "TierState": "sandbox",
    "examine": "sandbox",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lyra.sandbox' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"lyra.sandbox.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
