"""Agents of all shards: each shard knows by name which agents the others have registered for stages of pipelines.

A stage whose agent this shard has not is run where it is registered, as a pipeline of one stage in a process there
(`pipelines.runner.run_stage_abroad`): both shards journal it, so that it is run once whichever dies. Agents that
workers serve are not told: workers serve every shard. A shard that opens says that it has none, until its program
registers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from lyra.errors import NoSuchAgent
from lyra.kernel.remote.part import RemotePart, drop_item, read_tables

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote


class SharedAgents(RemotePart):
    """See the module."""

    NAME: ClassVar[str] = "agents"
    SENDS: ClassVar[frozenset[str]] = frozenset({"agent"})
    KEEPS: ClassVar[frozenset[str]] = SENDS

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._agents = parts.orchestrator.agents
        self._remote = remote
        self.known: dict[str, dict[str, Any]] = {}  # agent → shards that have it
        self.posted: dict[str, Any] = {}  # agents of this shard that the others know
        self._sent: dict[str, int] = {}  # shard → runs that it was given

    def apply_posted(self, pid: str, shard: str, what: str, data: dict[str, Any]) -> None:  # noqa: ARG002
        if data["on"]:
            self.posted[data["name"]] = True
        else:
            self.posted.pop(data["name"], None)

    def apply_taken(self, shard: str, what: str, data: dict[str, Any]) -> None:  # noqa: ARG002
        if data["on"]:
            self.known.setdefault(data["name"], {})[shard] = True
        else:
            drop_item(self.known, data["name"], shard)

    def dump(self) -> Any:
        return {"known": self.known, "posted": self.posted}

    def load(self, data: Any) -> None:
        tables = read_tables(data, ("known", "posted"))
        self.known, self.posted = tables["known"], tables["posted"]

    def tell(self, name: str) -> None:
        """Post whether this shard has an agent, where the others know otherwise."""
        journal, agent = self._core.journal, self._agents.find(name)
        if journal is None or journal.frozen or self._core.stopping:
            return
        has_agent = agent is not None and agent.outside is None
        if has_agent is not (name in self.posted):
            for shard in sorted(self._remote.shards):
                if shard != self._remote.shard:
                    self._remote.post(shard, "agent", {"name": name, "on": has_agent}, refusable=False)

    def on_restored(self) -> None:
        for name in list(self.posted):
            self.tell(name)

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002
        self._agents.wake(data["name"])

    def list_places(self, name: str) -> list[str]:
        """Return the shards that have an agent: those that are open first, and of them those with the fewest runs."""
        places = self.known.get(name, {})
        return sorted(
            places, key=lambda shard: (not self._remote.services.is_open(shard), self._sent.get(shard, 0), shard)
        )

    def choose(self, name: str) -> str:
        """Return the shard that the next run of an agent is given to."""
        places = self.list_places(name)
        if not places:
            raise NoSuchAgent(f"no shard has the agent {name!r} any more", name=name)
        self._sent[places[0]] = self._sent.get(places[0], 0) + 1
        return places[0]
