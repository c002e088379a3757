"""The agent card: what a stranger is told of an agent before it has a token, and what a user is told besides.

The open card has the agent's name, its description and how it is reached. The instructions, the models and the tools of
an agent are in neither; the extended card, for callers with a token, names the tools as skills.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from lyra.a2a.content import IMAGE_TYPES
from lyra.a2a.sdk import IDEMPOTENT_MESSAGES, PROTOCOL, PROTOCOL_BEFORE, compat, messages, to_json
from lyra.server.http.problems import HttpRefusal

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.server.http.directory import AgentDirectory


_VERSION: Final = "1"
# How an agent is reached, the first where the client has no preference.
_INTERFACES: Final = (("JSONRPC", PROTOCOL), ("HTTP+JSON", PROTOCOL), ("JSONRPC", PROTOCOL_BEFORE))
_SCHEME: Final = "bearer"
_IDEMPOTENT: Final = "A message that comes twice under one id is one task."
_INPUT: Final = ("text/plain", "application/json", *IMAGE_TYPES)


def default_agent(directory: AgentDirectory) -> str:
    """The agent whose card stands at the root: the only one, or the first by name."""
    for name, agent in directory.agents().items():
        if agent.declaration is not None:
            return name
    raise HttpRefusal(404, "the server has no agent")


def agent_card(agent: AgentDeclaration, base_url: str, *, is_extended: bool = False) -> Any:
    """The card of an agent that is reached below that address."""
    module = messages()
    about = agent.description or f"The agent {agent.name}."
    output = ("text/plain",) if agent.output is None else ("application/json",)
    url = f"{base_url}/a2a/{quote(agent.name, safe='')}"
    card = module.AgentCard(
        name=agent.name,
        description=about,
        version=_VERSION,
        supported_interfaces=[
            module.AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
            for binding, version in _INTERFACES
        ],
        capabilities=module.AgentCapabilities(
            streaming=True,
            push_notifications=True,
            extended_agent_card=True,
            extensions=[module.AgentExtension(uri=IDEMPOTENT_MESSAGES, description=_IDEMPOTENT)],
        ),
        default_input_modes=_INPUT,
        default_output_modes=output,
        skills=[module.AgentSkill(id=agent.name, name=agent.name, description=about, tags=["agent"])],
    )
    card.security_schemes[_SCHEME].http_auth_security_scheme.scheme = "Bearer"
    card.security_requirements.add().schemes[_SCHEME].SetInParent()
    if is_extended:
        card.skills.extend(
            module.AgentSkill(id=f"tool.{tool.name}", name=tool.name, description=tool.description, tags=["tool"])
            for tool in agent.toolbox
        )
    return card


def card_data(card: Any) -> dict[str, Any]:
    """A card as JSON that clients of both versions of the protocol read."""
    before = compat().to_compat_agent_card(card).model_dump(mode="json", by_alias=True, exclude_none=True)
    data: dict[str, Any] = _merged(to_json(card), before)
    return data


def _merged(new: Any, before: Any) -> Any:
    """The new form with the keys that only the earlier one has."""
    if isinstance(new, dict) and isinstance(before, dict):
        return {**before, **{key: _merged(value, before.get(key)) for key, value in new.items()}}
    return new
