"""Injection: what happens when the model does as any text tells it.

Read in this order: `model` (one that obeys whatever it reads), `place` and `sink` (a project and a network that show
what was done to them), `channels` (ways in), `goals` (what is wanted), `disguises` (how it is said), `suite` (all of
them together). `benign` are tasks that must go through all the same. `servers` and `notes_server` are the MCP side.
"""

from verify.attacks.injection.suite import Attack, attacks, run

__all__ = ["Attack", "attacks", "run"]
