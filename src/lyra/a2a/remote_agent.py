"""RemoteAgent: an agent of another program, reached by A2A, as a tool and as a process.

    writer = await connect("https://agents.example.org/a2a/writer", token="env:WRITER_TOKEN")
    lead = Agent("lead", model=…, tools=[writer])
    handle = await kernel.spawn(writer)
    print(await handle.send("Write a haiku about rain"))
    kernel.supervise([Child("writer", writer)], max_restarts=3, window_s=60)

`connect` reads the agent's card; a RemoteAgent that is made with its name needs no network before its first call, as a
program does that goes on after a restart. Nothing is kept open between two calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from lyra.a2a.calls import RemoteCalls, RemoteLimits
from lyra.a2a.connection import RemoteConnection
from lyra.a2a.program import remote_program
from lyra.a2a.remote_tool import plain_description, plain_name, remote_tool
from lyra.agents.session.agent_process import AgentProcess
from lyra.core.budgets.money import money
from lyra.core.checking.check import real, short_text
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.core.secrets.secret import Secret
from lyra.core.tool import Tool
from lyra.errors import ConfigError

TIMEOUT_S: Final = 600.0
CHECK_EVERY_S: Final = 30.0


class RemoteAgent:
    """`token` is the bearer token, or `env:NAME`. `inside` names addresses (`host:port`) of this network that may be
    reached. `timeout_s` is for one task, `max_cost` the most that one is charged with. A process that stands for the
    agent looks every `check_every_s` seconds whether it is there; None: only when it is asked."""

    __slots__ = ("__weakref__", "_calls", "_connection", "_program", "description", "name", "url")

    __lyra_handle__ = AgentProcess

    def __init__(
        self,
        url: str,
        *,
        name: str,
        description: str = "",
        token: str | Secret | None = None,
        inside: Collection[str] = (),
        timeout_s: float = TIMEOUT_S,
        max_cost: Any = None,
        check_every_s: float | None = CHECK_EVERY_S,
    ) -> None:
        self.name = short_text(name, "the name of a remote agent", most=NAME_LENGTH_MAX)
        if not self.name:
            raise ConfigError("a remote agent has a name", key="name")
        secret = Secret.parse(token) if isinstance(token, str) else token
        self.description = description
        self._connection = RemoteConnection(url, token=secret, inside=inside)
        self.url = self._connection.url
        limits = RemoteLimits(real(timeout_s, "timeout_s", above=0.0), None if max_cost is None else money(max_cost))
        every_s = None if check_every_s is None else real(check_every_s, "check_every_s", above=0.0)
        self._calls = RemoteCalls(self.name, self._connection, limits)
        self._program = remote_program(self.name, self._calls, every_s)
        vars(self._program)["__lyra_handle__"] = AgentProcess  # by which `kernel.agent` finds it

    def __repr__(self) -> str:
        return f"<RemoteAgent {self.name} at {self.url}>"

    @property
    def __lyra_program__(self) -> Callable[..., Any]:
        return self._program

    def __lyra_tool__(self) -> Tool:
        """The tool by which an agent asks this one."""
        return remote_tool(self.name, self.description, self._connection.place, self._calls)


async def connect(url: str, *, name: str | None = None, description: str | None = None, **settings: Any) -> RemoteAgent:
    """The remote agent at a URL, with the name and the description of its card; EffectFailed where it is not there."""
    first = RemoteAgent(url, name=name or "agent", **settings)
    card = await first._connection.card()
    return RemoteAgent(
        url,
        name=name or plain_name(card.name),
        description=plain_description(card.description) if description is None else description,
        **settings,
    )
