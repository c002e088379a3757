"""The command-line tools codex and claude, as npm has them, work through the gateway: a base URL and a key are all.

The provider is scripted: it asks the tool for one command, and after its result says a sentence. `.ci/tools` installs
the tools; the tests are skipped where npm cannot.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cases import first
from tests.server.gateway.support import (
    ANTHROPIC_KEY,
    OPENAI_KEY,
    SSE,
    Received,
    Reply,
    ServedGateway,
    serving_gateway,
)
from tests.server.http.support import in_loop

pytestmark = pytest.mark.slow

FOLDER = Path(os.environ.get("LYRA_TEST_TOOLS") or Path.home() / ".cache" / "lyra-tests" / "tools")
COMMAND = "echo from-the-tool > made.txt"
SENTENCE = "The file is written."
TIMEOUT_S = 240


class Ran(NamedTuple):
    """What a tool did: its exit code, the JSON lines that it printed, and the file that it was asked for."""

    code: int
    lines: list[dict[str, Any]]
    made: str


def program(name: str) -> str:
    path = FOLDER / "node_modules" / ".bin" / name
    if shutil.which("node") is None or not path.exists() or not (FOLDER / "installed").exists():
        pytest.skip(f"{name} is not installed: .ci/tools installs it from npm")
    return str(path)


def events(*items: dict[str, Any]) -> tuple[bytes, ...]:
    return tuple(f"event: {item['type']}\ndata: {json.dumps(item)}\n\n".encode() for item in items)


async def run_tool(words: list[str], folder: Path, **env: str) -> Ran:
    """Run a tool in an empty folder, without a home of its own."""
    (folder / "work").mkdir()
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=folder / "work",
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, (out + errors).decode(errors="replace")[-3000:]
    lines = [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]
    made = folder / "work" / "made.txt"
    return Ran(process.returncode, lines, made.read_text() if made.exists() else "")


# ---------------------------------------------------------------- codex
def codex_reply(received: Received) -> Reply:
    """One call of codex's shell tool; after its result, a sentence."""
    if not received.path.endswith("/responses"):
        return Reply((b'{"error":{"message":"no such path"}}',), status=404)
    data = received.data
    is_second = any(item["type"] == "function_call_output" for item in data["input"])
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "exec_command"}
    part = {"type": "output_text", "text": SENTENCE, "annotations": []}
    item = (
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        if is_second
        else {**call, "arguments": json.dumps({"cmd": COMMAND})}
    )
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": data["model"], "output": []}
    usage = {"input_tokens": 1_000, "output_tokens": 20, "total_tokens": 1_020}
    place = {"output_index": 0, "item": item}
    return Reply(
        events(
            {"type": "response.created", "response": {**response, "status": "in_progress"}},
            {"type": "response.output_item.added", **place},
            {"type": "response.output_item.done", **place},
            {
                "type": "response.completed",
                "response": {**response, "status": "completed", "output": [item], "usage": usage},
            },
        ),
        headers=SSE,
    )


def codex_words(served: ServedGateway, *more: str) -> list[str]:
    provider = f'{{name="lyra", base_url="{served.url}/v1", env_key="LYRA_KEY", wire_api="responses"}}'
    settings = ["-c", 'model_provider="lyra"', "-c", f"model_providers.lyra={provider}", *more]
    headless = ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return [program("codex"), *headless, "-m", "openai/gpt-5", *settings, "Write made.txt"]


async def codex(folder: Path, words: tuple[str, ...] = (), **key: Any) -> None:
    async with serving_gateway(codex_reply) as served:
        secret = await served.key(models=["openai/*"], **key)
        home = folder / "codex"
        home.mkdir()
        ran = await run_tool(codex_words(served, *words), folder, LYRA_KEY=secret, CODEX_HOME=str(home))
        assert ran.made == "from-the-tool\n"
        messages = [line["item"]["text"] for line in ran.lines if line.get("item", {}).get("type") == "agent_message"]
        assert messages == [SENTENCE]
        calls = [received for received in served.provider.received if received.path == "/v1/responses"]
        assert [received.data["model"] for received in calls] == ["gpt-5", "gpt-5"]
        assert all(received.headers["authorization"] == f"Bearer {OPENAI_KEY}" for received in calls)
        view = await served.view()
        assert (view["calls"], view["input_tokens"], view["output_tokens"]) == (2, 2_000, 40)
        assert view["spent_micro_usd"] == 2 * 1_450  # 1000 · 1.25 + 20 · 10


@pytest.mark.parametrize("budget", first(["$5", None], 1))
def test_codex_works_through_the_gateway(tmp_path: Path, budget: str | None) -> None:
    """codex, with a model provider in its configuration, runs a command and reads the answer; both calls are charged to
    its key, which may have a budget."""
    in_loop(codex(tmp_path, budget=budget))


# ---------------------------------------------------------------- claude
def claude_reply(received: Received) -> Reply:
    """One call of claude's Bash tool; after its result, a sentence."""
    if not received.path.startswith("/v1/messages"):
        return Reply((b'{"type":"error","error":{"type":"not_found_error","message":"no"}}',), status=404)
    data = received.data
    parts = [
        part for message in data["messages"] if isinstance(message["content"], list) for part in message["content"]
    ]
    has_text = any(part["type"] == "tool_result" for part in parts) or not data.get("tools")
    tool = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
    command = json.dumps({"command": COMMAND, "description": "Write a file"})
    block, delta = (
        ({"type": "text", "text": ""}, {"type": "text_delta", "text": SENTENCE})
        if has_text
        else (tool, {"type": "input_json_delta", "partial_json": command})
    )
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": data["model"], "content": []}
    usage = {"input_tokens": 1_000, "output_tokens": 1}
    reason = "end_turn" if has_text else "tool_use"
    return Reply(
        events(
            {
                "type": "message_start",
                "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage},
            },
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": None},
                "usage": {"output_tokens": 20},
            },
            {"type": "message_stop"},
        ),
        headers=SSE,
    )


async def claude(folder: Path, variable: str, **key: Any) -> None:
    async with serving_gateway(claude_reply) as served:
        secret = await served.key(models=["anthropic/*"], **key)
        words = [program("claude"), "-p", "Write made.txt", "--output-format", "json", "--allowedTools", "Bash"]
        words += ["--model", "anthropic/claude-sonnet-4-5"]
        # Calls of its own beside the task (a title, news) are switched off where there is a switch.
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        ran = await run_tool(words, folder, ANTHROPIC_BASE_URL=served.url, **{variable: secret}, **quiet)
        assert ran.made == "from-the-tool\n"
        assert [(line["is_error"], line["result"]) for line in ran.lines] == [(False, SENTENCE)]
        calls = [received for received in served.provider.received if received.path.startswith("/v1/messages")]
        with_tools = [received for received in calls if received.data.get("tools")]
        assert len(with_tools) == 2
        assert {received.data["model"] for received in calls} == {"claude-sonnet-4-5"}
        assert all(received.headers["x-api-key"] == ANTHROPIC_KEY for received in calls)
        assert all("authorization" not in received.headers for received in calls)
        assert all("claude-code" in received.headers["anthropic-beta"] for received in calls)
        view = await served.view()
        assert (view["calls"], view["spent_micro_usd"]) == (len(calls), len(calls) * 3_300)  # 1000 · 3 + 20 · 15


@pytest.mark.parametrize(
    ("variable", "budget"),
    first([("ANTHROPIC_AUTH_TOKEN", "$5"), ("ANTHROPIC_AUTH_TOKEN", None), ("ANTHROPIC_API_KEY", None)], 1),
)
def test_claude_works_through_the_gateway(tmp_path: Path, variable: str, budget: str | None) -> None:
    """claude, with a base URL and a key in its environment, runs a command and reads the answer; each call is charged
    to its key, which may have a budget."""
    in_loop(claude(tmp_path, variable, budget=budget))
