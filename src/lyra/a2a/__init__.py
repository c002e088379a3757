"""A2A: agents of other people, on other machines, as tools and as supervised processes of Lyra.

    from lyra import a2a

    writer = await a2a.connect("https://agents.example.org/a2a/writer", token=token)
    lead = Agent("lead", model=…, tools=[writer])          # a tool of an agent
    kernel.supervise([Child("writer", writer)])            # its own process

Start with `remote_agent`, which has the effects of one call. `connection` reaches the other side, `content` turns parts
into content, `sdk` imports the SDK, which comes with the `a2a` extra. The other direction, Lyra's agents for the
programs of others, is in `lyra.server.protocols.a2a`.
"""

from __future__ import annotations

from lyra._imports import on_first_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lyra.a2a.remote_agent import RemoteAgent, connect

__all__ = ["RemoteAgent", "connect"]


if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "remote_agent": "RemoteAgent connect",
        },
    )
