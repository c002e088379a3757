"""The agents that a kernel knows, by the name under which clients ask for them.

An agent is known when it is registered (`kernel.register_agent`), given to the kernel (`Kernel(programs=[agent])`) or
spawned. An Agent can be talked to; a function of the envelope can only run stages of pipelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lyra.agents.declaration.agent import AgentDeclaration
from lyra.core.checking.check import did_you_mean
from lyra.core.providers import USUAL
from lyra.errors import ConfigError, Overloaded
from lyra.server.http.problems import HttpRefusal

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


class KnownAgent(NamedTuple):
    """An agent under its name; without a `declaration` it is a function that runs stages."""

    name: str
    declaration: AgentDeclaration | None

    @property
    def models(self) -> list[str]:
        models = () if self.declaration is None else self.declaration.models
        return [model if isinstance(model, str) else model.name or type(model).__name__ for model in models]


class AgentDirectory:
    """See the module."""

    __slots__ = ("_kernel",)

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def agents(self, caller: Caller | None = None) -> dict[str, KnownAgent]:
        """All of them, by name; those that a worker of a user runs are there for that user and for the operator."""
        known: dict[str, KnownAgent] = {}
        for program in self._kernel.programs.list_known().values():
            declaration = getattr(program, "__lyra_agent__", None)
            if isinstance(declaration, AgentDeclaration):
                known[declaration.name] = KnownAgent(declaration.name, declaration)
        registered = self._kernel.orchestrator.agents
        sees_all = caller is not None and caller.is_operator
        user_id = "" if caller is None else caller.user_id
        for name in registered.names():
            if not (sees_all or registered.is_offered(name, user_id)):
                continue
            declaration = _find_declaration(registered.find(name))
            if declaration is not None or name not in known:
                known[name] = KnownAgent(name, declaration)
        return dict(sorted(known.items()))

    def get(self, name: str, caller: Caller | None = None) -> KnownAgent:
        """Return an agent; `agent/NAME` is another way to write NAME."""
        agents = self.agents(caller)
        plain = name if name in agents else name.removeprefix("agent/")
        if plain not in agents:
            near = did_you_mean(plain, agents)
            hint = f"did you mean {near!r}?" if near else None
            if name.partition("/")[0] in USUAL:
                hint = "models of providers are open where the server is started with `lyra serve --gateway`"
            raise HttpRefusal(404, f"no agent {plain[:100]!r}", hint=hint)
        return agents[plain]

    def declaration(self, name: str) -> Any:
        """Return the Agent to talk to; ConfigError for a function."""
        agent = self.get(name)
        if agent.declaration is None:
            raise ConfigError(
                f"{agent.name} is a function that runs stages of pipelines", hint="an Agent can be talked to"
            )
        return agent.declaration

    def register_programs(self) -> None:
        """Have the conversations of all agents continue that an earlier kernel of the store left."""
        for agent in self.agents().values():
            if agent.declaration is not None:
                self._kernel.register(agent.declaration)


def _find_declaration(registered: Any) -> AgentDeclaration | None:
    declaration = getattr(registered, "declaration", None)
    return declaration if isinstance(declaration, AgentDeclaration) else None


def refuse_if_draining(is_draining: bool) -> None:
    if is_draining:
        raise Overloaded("the server is stopping", hint="ask again when it is back")
