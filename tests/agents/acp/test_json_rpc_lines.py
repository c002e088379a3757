"""Lines on stdin that are no messages: each is answered as JSON-RPC says, and the conversation goes on."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lyra.agents.acp import json_rpc_lines
from lyra.agents.acp.json_rpc_lines import JsonRpcLines, read_message
from tests import warm

pytestmark = pytest.mark.anyio
INITIALIZE = b'{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":1}}'


class Output:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    async def put(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        self.lines.append(json.loads(line))

    async def drain(self) -> None:
        pass


async def _lines(*lines: bytes) -> AsyncIterator[bytes]:
    for line in lines:
        yield line


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"{broken", -32700, None),
        (b'{"id": 1, "method": "x", "params": NaN}', -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b'{"n": ' + b"9" * 10_000 + b"}", -32700, None),
        (b"[]", -32600, None),
        (b'"text"', -32600, None),
        (b"null", -32600, None),
        (b"{}", -32600, None),
        (b'{"jsonrpc": "1.0", "id": 3, "method": "x"}', -32600, 3),
        (b'{"jsonrpc": "2.0", "id": "a"}', -32600, "a"),
        (b'{"jsonrpc": "2.0", "id": "a", "method": 5}', -32600, "a"),
        (b'{"jsonrpc": "2.0", "id": 4, "method": "x", "params": "p"}', -32600, 4),
        (b'{"jsonrpc": "2.0", "id": [1], "method": "x"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": true, "method": "x"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": {}, "result": 1}', -32600, None),
    ],
)
async def test_a_line_that_is_no_message_is_answered(line: bytes, code: int, request_id: Any) -> None:
    """With the code of JSON-RPC and the id as far as there is one; the next line is read."""
    output = Output()
    messages = JsonRpcLines(_lines(line, b"  ", INITIALIZE), output)
    message = await messages.receive()
    assert message is not None
    assert message["id"] == 7
    assert await messages.receive() is None
    (answer,) = output.lines
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] == request_id
    assert answer["error"]["code"] == code
    assert answer["error"]["data"]["reason"] in answer["error"]["message"]


async def test_a_line_that_is_too_long_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rpc_lines, "LINE_BYTES_MAX", 100)
    output = Output()
    message = await JsonRpcLines(_lines(b"x" * 101, INITIALIZE), output).receive()
    assert message is not None
    assert output.lines[0]["error"]["code"] == -32700
    assert "longer than 100 bytes" in output.lines[0]["error"]["message"]


def test_a_broken_error_of_the_other_side_can_still_be_read() -> None:
    """A request of ours that gets it must end, whatever the form."""
    for error in ('"no"', "17", "[]", '{"code": "x"}', '{"code": true, "message": 4}'):
        line = f'{{"jsonrpc": "2.0", "id": 1, "error": {error}}}'.encode()
        shaped = read_message(line)["error"]
        assert shaped["code"] == -32603
        assert isinstance(shaped["message"], str)
    kept = read_message(b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "m", "data": 2}}')["error"]
    assert kept == {"code": -1, "message": "m", "data": 2}


async def test_an_answer_that_json_has_no_form_for_is_sent() -> None:
    output = Output()
    await JsonRpcLines(_lines(), output).send({"id": 1, "error": {"data": {"ctx": ValueError("bad")}}})
    assert output.lines == [{"id": 1, "error": {"data": {"ctx": "bad"}}}]


def _answers(folder: Path, data: bytes, *words: str) -> list[dict[str, Any]]:
    """What `sage acp` writes for this input, both of them files."""
    (folder / "home").mkdir(exist_ok=True)
    given, told = folder / "given", folder / "told"
    given.write_bytes(data)
    env = {**os.environ, "HOME": str(folder / "home"), "XDG_DATA_HOME": str(folder / "data")}
    env.pop("LYRA_AGENT_MODEL", None)
    with given.open("rb") as source, told.open("wb") as sink:
        done = subprocess.run(
            [*warm.command("lyra.cli.main:sage"), "acp", *words],
            env=env,
            cwd=folder,
            stdin=source,
            stdout=sink,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    return [json.loads(line) for line in told.read_text().splitlines()]


@pytest.mark.slow
def test_sage_acp_answers_broken_lines_and_goes_on(tmp_path: Path) -> None:
    """Also where stdin and stdout are files; nothing but messages is written to stdout."""
    answers = _answers(tmp_path, b"{broken\n[1]\n" + INITIALIZE + b"\n")
    codes = {answer["id"]: answer.get("error", {}).get("code") for answer in answers[2:]}
    assert [(answer["id"], answer["error"]["code"]) for answer in answers[:2]] == [(None, -32700), (None, -32600)]
    assert codes == {7: None}
    assert answers[2]["result"]["agentInfo"]["name"] == "sage"


@pytest.mark.slow
def test_without_a_model_the_editor_is_told_what_to_do(tmp_path: Path) -> None:
    """In the message of the error, which is what editors show."""
    new = {"jsonrpc": "2.0", "id": 8, "method": "session/new", "params": {"cwd": str(tmp_path), "mcpServers": []}}
    answers = _answers(tmp_path, INITIALIZE + b"\n" + json.dumps(new).encode() + b"\n")
    (error,) = [answer["error"] for answer in answers if answer["id"] == 8]
    assert error["code"] == -32602
    for words in ("no model is named", "--model", "settings of the editor", "lyra.toml"):
        assert words in error["message"]
    assert error["data"]["reason"] == error["message"]
