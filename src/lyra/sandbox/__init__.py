"""The sandbox for commands: profiles, tiers, limits, network access, and paths that stay inside a folder.

Start at `sandbox` (run a command, and how its limits are enforced), then `profile` (what it may touch): `bubblewrap` is
the best one, `landlock_tier` with `landlock` the second, and without either nothing runs. `seccomp` is the filter of
system calls of both, `pre_exec` what happens between fork and exec, `reaper` the process that kills the rest at the
end, `job` the running command, also one with streams for stdin and stdout (only this module starts subprocesses),
`cgroup` its limits. `addresses`, `relay` and `proxy` are the network; `paths`, `protected` and the folder `protection`
the file system. In the second tier `landlock_tier` and `creator` make files beside protected ones. Nothing here knows
tools, agents or the kernel.

Names are imported at their first use: a program that only reads the table of protected paths imports no event loop.
"""

from __future__ import annotations

from lyra._imports import on_first_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lyra.sandbox.job import Job, Output, Pipes, Result
    from lyra.sandbox.paths import Beneath
    from lyra.sandbox.profile import Limits, Profile
    from lyra.sandbox.sandbox import Sandbox, TierState, examine

__all__ = ["Beneath", "Job", "Limits", "Output", "Pipes", "Profile", "Result", "Sandbox", "TierState", "examine"]

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "paths": "Beneath",
            "job": "Job Output Pipes Result",
            "profile": "Limits Profile",
            "sandbox": "Sandbox TierState examine",
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
