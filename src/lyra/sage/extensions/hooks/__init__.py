"""Hooks: programs and functions of the user that run at moments of a session, and may deny, ask, change or add.

    hooks = Hooks.from_config(config, folder)
    Headless(HeadlessOptions(…, hooks=hooks))

Start with `hooks` (all of a session, what they come to, and the status line that one draws), then `hook` (one of them,
`hook_from` a mapping, and how a program is run). When hooks run is not said here: `lyra.config.hook_settings` is the
table, `lyra.agents.turn.hook_points` and `lyra.agents.headless.headless` are the moments.
"""

from lyra.agents.declaration.hooks import HookOutcome
from lyra.sage.extensions.hooks.hook import Hook, hook_from
from lyra.sage.extensions.hooks.hooks import Hooks, StatusLine

__all__ = ["Hook", "HookOutcome", "Hooks", "StatusLine", "hook_from"]
