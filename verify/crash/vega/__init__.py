"""`vega run` killed with SIGKILL again and again and gone on with by `vega resume`, on a provider that keeps count.

`scenes` are the programs, `provider` is the HTTP server that answers them, `kills` is the harness. `edits` kills and
edits: random programs that are changed at random places before they go on.
"""

from __future__ import annotations

from verify.crash.vega.kills import Result, calm, run
from verify.crash.vega.scenes import SCENES

__all__ = ["SCENES", "Result", "calm", "run"]
