"""What is computed once for an agent and used by all of its processes: model effects, a hash, default permissions.

An agent is a declaration and holds none of this. The table is weak: an agent's entry goes with the agent. It is shared
by all kernels of this Python process, because a model effect carries the agent's rate limit and circuit breaker, which
count the calls of every kernel. Effects of tools are not here: a tool may refer to its agent and would keep it alive
for ever; `Runtime` has those, for as long as its kernel lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.core.effect import Effect
    from lyra.tools.permissions.decision import Permissions


class AgentCache:
    """The entry of one agent."""

    __slots__ = ("_default_permissions", "model_effects", "settings")

    def __init__(self) -> None:
        self.model_effects: dict[Any, Effect] = {}  # one for each model
        # The system prompt and the tool names of the last journaled model call, and the hash of the agent's settings.
        self.settings: tuple[str, list[str], bytes] | None = None
        self._default_permissions: Permissions | None = None

    def default_permissions(self, agent: AgentDeclaration) -> Permissions:
        """The permissions for guarded tools of an agent that names none: those of the files in its tools' folders."""
        if self._default_permissions is None:
            from lyra.tools.permissions.settings import permissions_from_files

            self._default_permissions = permissions_from_files(agent.folders)
        return self._default_permissions


_caches: Final[WeakKeyDictionary[AgentDeclaration, AgentCache]] = WeakKeyDictionary()


def cache_of(agent: AgentDeclaration) -> AgentCache:
    cache = _caches.get(agent)
    if cache is None:
        cache = _caches[agent] = AgentCache()
    return cache
