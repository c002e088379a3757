"""Remote agents for tests: a server of the SDK in a process of its own, which can be killed and started again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Self

from lyra.a2a import RemoteAgent
from lyra.agents.agent import Agent
from lyra.models.sim import SimProvider
from tests import warm
from tests.server.http.support import in_loop

SERVER = Path(__file__).parent / "sdk_server.py"

__all__ = ["SdkServer", "asking", "in_loop"]


class SdkServer:
    """The server; a context manager. `place` stays the same when it is started again."""

    def __init__(self, folder: Path, version: str = "1.0") -> None:
        self.log = folder / "remote.log"
        self.log.touch()
        self._version = version
        self._port = 0
        self._process: Any = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        words = [str(self._port), str(self.log), self._version]
        self._process = warm.start(str(SERVER), words, cwd=self.log.parent, env=os.environ, stdout=subprocess.PIPE)
        self._port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            warm.close(self._process)
            self._process = None

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        return f"http://{self.place}"

    @property
    def messages(self) -> list[str]:
        """What its agent got, one text a message."""
        return self.log.read_text().splitlines()

    def remote(self, name: str = "worker", **settings: Any) -> RemoteAgent:
        return RemoteAgent(self.url, name=name, **{"inside": [self.place], **settings})


def asking(remote: RemoteAgent, *texts: str, **settings: Any) -> Agent[Any]:
    """An agent that puts these texts to the remote one, one after the other, and says what came back."""
    name = f"a2a__{remote.name}"
    replies: list[Any] = [
        {"user": "go", "tool_calls": [{"name": name, "arguments": {"message": text}} for text in texts]},
        {"tool": name, "text": "{result}"},
    ]
    permissions = settings.pop("permissions", {"allow": [name]})
    model = SimProvider(script={"replies": replies})
    return Agent("lead", model=model, tools=[remote], permissions=permissions, **settings)
