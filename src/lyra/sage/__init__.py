"""Sage, the code agent: sessions that last, undo, slash commands, extensions; faces: terminal, print, ACP, SDK.

An agent of `lyra.agents` with the built-in tools does the work; this part keeps its sessions and shows them.

    terminal | print | acp | sdk  >  commands  >  agent  >  session | project | extensions

Start with `agent.live`: one session that is open.
"""

from lyra._imports import on_first_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lyra.sage.sdk import (
        ExecutionResult,
        PermissionAnswer,
        PermissionRequest,
        RunOptions,
        SageAgentSDK,
        SageNotice,
        UnifiedRunOptions,
        query,
        query_sync,
    )

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

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "sdk": "ExecutionResult PermissionAnswer PermissionRequest RunOptions "
            "SageAgentSDK SageNotice UnifiedRunOptions query query_sync"
        },
    )
