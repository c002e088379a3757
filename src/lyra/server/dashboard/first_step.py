"""What to do on a server on which nothing has happened yet, in the empty places of its pages.

Where agents are known, one is talked to on the page Chat; otherwise the server is started with a file that registers
them. Either makes processes, runs, traces and costs of this server, not of another one.
"""

from __future__ import annotations

from typing import Final

from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.layout import link
from lyra.server.dashboard.words import empty
from lyra.server.http.endpoint import HttpCall

_COMMAND: Final = "lyra serve --load FILE.py"
_FILE: Final = "def setup(kernel):\n    kernel.register_agent('helper', Agent('helper', model='…'))"


def nothing_yet(call: HttpCall, what: str) -> Html:
    """An empty place: what would be here, and the first step to it."""
    agents = call.parts.chats.directory.agents().values()
    if any(agent.declaration is not None for agent in agents):
        talk = tag("a", "Talk to an agent", href=link(call, "chat"), class_="button")
        return empty(what, more=tag("p", talk))
    note = tag("p", "where the file has the agents:", class_="note")
    look = tag("p", "To look around first, ", tag("code", "lyra demo --web"), " serves a team at work.", class_="note")
    return empty(what, _COMMAND, more=[note, tag("pre", tag("code", _FILE)), look])
