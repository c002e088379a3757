"""What all MCP servers of one program share: where they run, what was agreed to, and whom they may ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lyra.core.clock import Clock, SystemClock
from lyra.core.ids import Entropy
from lyra.core.policies.policy import Backoff, Supervision
from lyra.core.rights.capability import Capability
from lyra.kernel.base.tasks import Tasks
from lyra.mcp.client.approvals import Approvals
from lyra.mcp.client.tool import Offered
from lyra.mcp.settings import ServerSettings
from lyra.sandbox import Sandbox

__all__ = ["START_S", "SharedContext"]

START_S: Final = 30.0  # to start or reach a server and read what it offers
_BACKOFF: Final = Backoff(initial_s=0.25, max_s=10.0, jitter=0.2)


@dataclass(kw_only=True)
class SharedContext:
    """Each callback may be left out, and then the answer is no.

    `consent(settings)` is asked about a project's server, `reapprove(server, tool)` about a tool that says something
    else than it did. `elicit(server, message, schema)` fills in a form, `sample(server, request)` gives text of a
    model; without them the process whose call it is answers (`askers`), and outside of one the answer is no.
    `authorize(server, url)` shows a page to log in at.
    """

    workspace: str
    approvals: Approvals
    folder: str | None = None  # of tokens
    sandbox: Sandbox = field(default_factory=Sandbox)
    denied: tuple[Capability, ...] = ()  # what rules deny to be read or written: shut for every program
    consent: Callable[[ServerSettings], Awaitable[bool]] | None = None
    reapprove: Callable[[str, Offered], Awaitable[bool]] | None = None
    elicit: Callable[[str, str, dict[str, Any]], Awaitable[dict[str, Any] | None]] | None = None
    sample: Callable[[str, dict[str, Any]], Awaitable[str | None]] | None = None
    authorize: Callable[[str, str], Awaitable[None]] | None = None
    supervision: Supervision = Supervision(max_restarts=3, window_s=60.0, backoff=_BACKOFF)  # noqa: RUF009 - frozen
    start_s: float = START_S
    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=Entropy)
    tasks: Tasks = field(default_factory=Tasks)
