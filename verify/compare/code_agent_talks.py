"""The agents as they talk with a program that shows their questions to a person: how often would they ask?

claude asks on its JSON lines (`--permission-prompt-tool stdio`), codex by its app server, Sage by the Agent Client
Protocol, each in the mode that it starts in. Every question is answered with a yes for this once.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from verify.compare.code_agent_runs import (
    CLAUDE_MODEL,
    OPENAI_MODEL,
    RUN_S,
    SAGE,
    CodeAgent,
    ScriptedModel,
    StartedAgent,
    kill_all,
    start,
)
from verify.compare.code_agent_tasks import CodeTask, lay_out

__all__ = ["count_questions"]


async def count_questions(agent: CodeAgent, task: CodeTask, mode: str = "") -> int:
    """Do a task as in a terminal, in the mode that the agent starts in, or Sage in another; every question is answered
    with a yes for this once. Return how many there were."""
    with tempfile.TemporaryDirectory(prefix="compared-") as name:
        folder, home = lay_out(task, Path(name)), Path(name, "home")
        async with ScriptedModel(agent, task.turns, folder) as model:
            talk = {"claude": _ClaudeTalk, "codex": _CodexTalk}.get(agent.name, _AcpTalk)(agent, folder, model.url)
            talk.mode = mode
            started = await start(agent, talk.words, folder, home, model.url, speaks=True)
            try:
                async with asyncio.timeout(RUN_S):
                    return await talk.run(task.prompt, started)
            finally:
                os.close(started.stdin)
                kill_all(started.pid)


class _Talk:
    """A conversation in JSON lines with an agent that asks."""

    words: list[str]

    def __init__(self, agent: CodeAgent, folder: Path, url: str) -> None:
        self.agent = agent
        self.folder = folder
        self.url = url
        self.prompt = ""
        self.mode = ""
        self.questions = 0
        self._stdin = -1

    async def run(self, prompt: str, started: StartedAgent) -> int:
        self._stdin = started.stdin
        self.prompt = prompt
        self.begin()
        async for raw in started.stdout:
            with suppress(ValueError):
                if self.read(json.loads(raw)):
                    return self.questions
        raise RuntimeError(f"{self.agent.name} ended before its answer")

    def say(self, message: dict[str, Any]) -> None:
        os.write(self._stdin, json.dumps(message).encode() + b"\n")

    def begin(self) -> None:
        raise NotImplementedError

    def read(self, line: dict[str, Any]) -> bool:
        """Answer a line of the agent; True at the end of the turn."""
        raise NotImplementedError


class _ClaudeTalk(_Talk):
    @property
    def words(self) -> list[str]:  # type: ignore[override]
        program = self.agent.words("", self.url)[0]
        return [
            *(
                program,
                "-p",
                "--model",
                CLAUDE_MODEL,
                "--input-format",
                "stream-json",
                "--output-format",
                "stream-json",
            ),
            *("--verbose", "--permission-prompt-tool", "stdio"),
        ]

    def begin(self) -> None:
        self.say({"type": "user", "message": {"role": "user", "content": self.prompt}})

    def read(self, line: dict[str, Any]) -> bool:
        request = line.get("request") or {}
        if line.get("type") == "control_request" and request.get("subtype") == "can_use_tool":
            self.questions += 1
            answer = {"behavior": "allow", "updatedInput": request["input"]}
            response = {"subtype": "success", "request_id": line["request_id"], "response": answer}
            self.say({"type": "control_response", "response": response})
        return line.get("type") == "result"


class _CodexTalk(_Talk):
    @property
    def words(self) -> list[str]:  # type: ignore[override]
        provider = f'{{name="mock", base_url="{self.url}/v1", env_key="OPENAI_API_KEY", wire_api="responses"}}'
        settings = [
            "-c",
            'model_provider="mock"',
            "-c",
            f"model_providers.mock={provider}",
            "-c",
            f'model="{OPENAI_MODEL}"',
        ]
        return [self.agent.words("", self.url)[0], "app-server", *settings]

    def begin(self) -> None:
        client = {"name": "compare", "title": "compare", "version": "1"}
        self.say({"id": 1, "method": "initialize", "params": {"clientInfo": client}})

    def read(self, line: dict[str, Any]) -> bool:
        if line.get("id") == 1 and "result" in line:
            self.say({"method": "initialized"})
            start = {"cwd": str(self.folder), "approvalPolicy": "on-request", "sandbox": "workspace-write"}
            self.say({"id": 2, "method": "thread/start", "params": start})
        elif line.get("id") == 2 and "result" in line:
            asked = [{"type": "text", "text": self.prompt}]
            self.say(
                {
                    "id": 3,
                    "method": "turn/start",
                    "params": {"threadId": line["result"]["thread"]["id"], "input": asked},
                }
            )
        elif str(line.get("method", "")).endswith("/requestApproval"):
            self.questions += 1
            self.say({"id": line["id"], "result": {"decision": "accept"}})
        return line.get("method") == "turn/completed"


class _AcpTalk(_Talk):
    _session = ""

    @property
    def words(self) -> list[str]:  # type: ignore[override]
        model = self.agent.words("", self.url)
        return [*SAGE, "acp", "--model", model[model.index("--model") + 1]]

    def begin(self) -> None:
        self._send(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})

    def read(self, line: dict[str, Any]) -> bool:
        if line.get("id") == 1 and "result" in line:
            self._send(2, "session/new", {"cwd": str(self.folder), "mcpServers": []})
        elif line.get("id") == 2 and "result" in line:
            self._session = line["result"]["sessionId"]
            self._send(4, "session/set_mode", {"sessionId": self._session, "modeId": self.mode or "default"})
        elif line.get("id") == 4 and "result" in line:
            asked = [{"type": "text", "text": self.prompt}]
            self._send(3, "session/prompt", {"sessionId": self._session, "prompt": asked})
        elif line.get("method") == "session/request_permission":
            self.questions += 1
            option = next(option for option in line["params"]["options"] if option["kind"] == "allow_once")
            chosen = {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
            self.say({"jsonrpc": "2.0", "id": line["id"], "result": chosen})
        return line.get("id") == 3

    def _send(self, number: int, method: str, params: dict[str, Any]) -> None:
        self.say({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
