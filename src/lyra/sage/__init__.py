"""Sage, the code agent: sessions that last, undo, slash commands, extensions; faces: terminal, print, ACP, SDK.

An agent of `lyra.agents` with the built-in tools does the work; this part keeps its sessions and shows them.

    terminal | print | acp | sdk  >  commands  >  agent  >  session | project | extensions

Start with `agent.live`: one session that is open.
"""

from typing import Any

__all__ = [
    "ExecutionResult",
    "PermissionAnswer",
    "PermissionRequest",
    "RunOptions",
    "SageAgentSDK",
    "SageNotice",
    "UnifiedRunOptions",
    "query",
    "query_sync",
]


def __getattr__(name: str) -> Any:
    """Return a name of the SDK, which is loaded when one is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("lyra.sage.sdk.sdk"), name)
