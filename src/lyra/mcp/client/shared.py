"""The context that all MCP servers of one program share: workspace, sandbox, approvals and callbacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lyra.core.clock import Clock, loop_clock
from lyra.core.ids import Entropy
from lyra.core.policies.policy import Backoff, Supervision
from lyra.core.rights.capability import Capability
from lyra.kernel.base.tasks import Tasks
from lyra.mcp.client.approvals import Approvals
from lyra.mcp.client.tool import Offered
from lyra.mcp.settings import ServerSettings
from lyra.sandbox import Sandbox

START_S: Final = 30.0  # to start or reach a server and read what it offers
_BACKOFF: Final = Backoff(initial_s=0.25, max_s=10.0, jitter=0.2)


@dataclass(kw_only=True)
class SharedContext:
    """Every callback is optional; without it the answer is no.

    `consent(settings)` decides on a project's server, `reapprove(server, tool)` on a tool whose description changed.
    `elicit(server, message, schema)` fills in a form, `sample(server, request)` returns text of a model; without them
    the process that made the call answers (`callback_routes`). `authorize(server, url)` shows a login page.
    """

    workspace: str
    approvals: Approvals
    folder: str | None = None  # for tokens
    sandbox: Sandbox = field(default_factory=Sandbox)
    denied: tuple[Capability, ...] = ()  # paths that rules deny, for every program
    consent: Callable[[ServerSettings], Awaitable[bool]] | None = None
    reapprove: Callable[[str, Offered], Awaitable[bool]] | None = None
    elicit: Callable[[str, str, dict[str, Any]], Awaitable[dict[str, Any] | None]] | None = None
    sample: Callable[[str, dict[str, Any]], Awaitable[str | None]] | None = None
    authorize: Callable[[str, str], Awaitable[None]] | None = None
    supervision: Supervision = Supervision(max_restarts=3, window_s=60.0, backoff=_BACKOFF)  # noqa: RUF009 - frozen
    start_s: float = START_S
    clock: Clock = field(default_factory=loop_clock)
    entropy: Entropy = field(default_factory=Entropy)
    tasks: Tasks = field(default_factory=Tasks)
