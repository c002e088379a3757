"""Commands that cannot do more than they may: profiles, tiers, limits, the way out, and paths that stay inside.

Start at `sandbox` (run a command), then `profile` (what it may touch) and `tiers` (how that is held): `bubblewrap`
is the best one, `fence` with `landlock` the second, and without either nothing runs. `seccomp` is the filter of
system calls of both, `child` what happens before the command starts, `job` the running command (the one home of
subprocesses), `cgroup` and `output` its limits. `proxy`, `relay` and `addresses` are the network, `paths` and
`protected` the file system. Nothing here knows tools, agents or the kernel.
"""

from __future__ import annotations

from lyra.sandbox.job import Job, Result
from lyra.sandbox.output import Output
from lyra.sandbox.paths import Beneath
from lyra.sandbox.profile import Limits, Profile
from lyra.sandbox.sandbox import Sandbox, TierState, examine

__all__ = ["Beneath", "Job", "Limits", "Output", "Profile", "Result", "Sandbox", "TierState", "examine"]
