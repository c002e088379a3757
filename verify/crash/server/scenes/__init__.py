"""The clients of the crash harness: each does one kind of work and knows what was acknowledged to it.

`SCENES` names them all; start with `processes`, the simplest.
"""

from __future__ import annotations

from typing import Final

from verify.crash.server.callers import Scene
from verify.crash.server.scenes.chats import Chats, StreamedChats, Tasks
from verify.crash.server.scenes.envelopes import Envelopes
from verify.crash.server.scenes.pipelines import HttpPipelines, RpcPipelines
from verify.crash.server.scenes.processes import Processes
from verify.crash.server.scenes.questions import Questions
from verify.crash.server.scenes.sessions import Sessions

__all__ = ["SCENES"]

SCENES: Final[tuple[type[Scene], ...]] = (
    Processes,
    Sessions,
    Questions,
    Envelopes,
    RpcPipelines,
    HttpPipelines,
    Chats,
    StreamedChats,
    Tasks,
)
