"""What a server with planted secrets runs: an agent whose tool prints a key, one whose provider refuses with the key in
its words, and stages that return, raise and log it. Given to `lyra serve --load`."""

from __future__ import annotations

import logging
import os
from typing import Any, Final

__all__ = ["KEY_VARIABLES", "setup"]

KEY_VARIABLES: Final = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")  # with a key's usual form, and without
_log: Final = logging.getLogger("lyra.planted")


def _keys() -> str:
    return " ".join(os.environ[name] for name in KEY_VARIABLES)


def _speak(request: Any) -> Any:
    from lyra.models.script import Reply, ScriptedCall

    if request.messages[-1].role == "user":
        return Reply(tool_calls=(ScriptedCall(name="environment", arguments={}),))
    return f"I saw: {_keys()}"


def setup(kernel: Any) -> None:
    from lyra import Agent, tool
    from lyra.errors import ToolError
    from lyra.models.sim import SimProvider

    @tool
    async def environment() -> str:
        """Show the environment."""
        return f"ANTHROPIC_API_KEY={_keys()}"

    @tool
    async def broken() -> str:
        """Fail with a key in the words."""
        raise ToolError(f"refused: {_keys()}")

    def ask_broken(request: Any) -> Any:
        from lyra.models.script import Reply, ScriptedCall

        if request.messages[-1].role == "user":
            return Reply(tool_calls=(ScriptedCall(name="broken", arguments={}),))
        return "it failed"

    async def raising(_envelope: Any) -> dict[str, Any]:
        _log.error("about to fail with %s", _keys())
        raise RuntimeError(f"login failed with {_keys()}")

    async def refusing(_envelope: Any) -> dict[str, Any]:
        raise ToolError(f"the service refused {_keys()}")

    kernel.register(Agent("teller", model=SimProvider(_speak), tools=[environment]))
    kernel.register(Agent("failer", model=SimProvider(ask_broken), tools=[broken]))
    kernel.register(Agent("refused", model="anthropic/claude-sonnet-4-5"))
    kernel.register(Agent("refused_too", model="openai/gpt-5"))
    kernel.register_agent("raising", raising)
    kernel.register_agent("refusing", refusing)
    kernel.register_service({"name": "vault", "service_type": "worker"})
    kernel.register_handler("vault", raising)
