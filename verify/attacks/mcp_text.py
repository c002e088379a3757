"""Attempts of an MCP server: replies that would hold up the loop, and characters that a model reads and no person sees.

A reply of many or deep values must fail its call, or come cut, without the event loop standing still; the server goes
on being usable. A text with invisible characters must reach neither a model nor a person with them, wherever a server
says it: in results, errors, descriptions, schemas, resources, prompts and progress.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from lyra.core.tool import progress
from lyra.errors import LyraError
from lyra.kernel.base.tasks import Tasks
from lyra.mcp import Approvals, McpServers, ServerSettings
from lyra.sandbox import Sandbox
from verify.attacks.scripted_agent import Attempts, working_tiers

__all__ = ["HIDDEN", "REPLIES", "run"]

_PROGRAM: Final = str(Path(__file__).parent / "hostile_server.py")
_NAME: Final = "hostile"
_HELD_CPU_S_MAX: Final = 1.0  # of processor time that the loop may be held at once; unmended replies take 30 s and more
_HEAD: Final = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"structuredContent":{"x":'
_TAIL: Final = "}}}"


def _around(*parts: Any) -> list[Any]:
    return [_HEAD, *parts, _TAIL]


_LIST: Final = "[" * 150 + "]" * 150
_MAP: Final = '{"a":' * 100 + "1" + "}" * 100
# What a tool answers with: texts, and pairs of a text and how often it is repeated.
REPLIES: Final[dict[str, list[Any]]] = {
    "lists_in_lists": _around("[", [f"{_LIST},", 20_000], "1]"),
    "mappings_in_mappings": _around("[", [f"{_MAP},", 10_000], "1]"),
    "lists_side_by_side": _around("[", ["[],", 3_000_000], "1]"),
    "mappings_side_by_side": _around("[", ["{},", 3_000_000], "1]"),
    "lists_one_in_another": _around(["[", 2_000_000], ["]", 2_000_000]),
    "mappings_one_in_another": _around(['{"a":', 1_000_000], "1", ["}", 1_000_000]),
    "open_lists": ['{"jsonrpc":"2.0","id":$ID,"result":', ["[", 3_000_000]],
    "numbers": _around("[", ["1,", 4_000_000], "1]"),
    "texts": _around("[", ['"x",', 2_000_000], "1]"),
    "empty_texts": _around("[", ['"",', 2_000_000], "1]"),
    "quotes_in_texts": _around("[", ['"\\\\\\"[{,",', 500_000], "1]"),
    "names": _around("{", ['"k":1,', 1_000_000], '"z":1}'),
    "parts": [
        '{"jsonrpc":"2.0","id":$ID,"result":{"content":[',
        ['{"type":"text","text":"y"},', 400_000],
        '{"type":"text","text":"z"}]}}',
    ],
    "deep_parts": [
        '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"y","_meta":',
        ['{"a":', 150],
        "1",
        ["}", 150],
        "}]}}",
    ],
    "blanks": _around([" ", 8_000_000], "1"),
    "colons": _around([":", 4_000_000]),
    "a_long_number": _around(["1", 4_000_000]),
    "escapes": _around('"', ["\\u0041", 2_000_000], '"'),
    "half_a_pair": _around('"', ["\\ud800", 10], '"'),
    "an_error_with_data": [
        '{"jsonrpc":"2.0","id":$ID,"error":{"code":1,"message":"x","data":[',
        [f"{_LIST},", 20_000],
        "1]}}",
    ],
    "id_at_the_end": ['{"jsonrpc":"2.0","result":{"x":[', [f"{_LIST},", 20_000], '1]},"id":$ID}'],
    "no_id": ['{"jsonrpc":"2.0","result":[', [f"{_LIST},", 20_000], "1]}\n", '{"jsonrpc":"2.0","id":$ID,"result":{}}'],
    "a_notification": [
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":[',
        [f"{_LIST},", 20_000],
        '1]}}\n{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}',
    ],
}
# Characters that no screen shows, as an order to a model would be hidden in them.
HIDDEN: Final[dict[str, str]] = {
    "tags": "".join(chr(0xE0000 + ord(char)) for char in "do it"),
    "zero-width spaces": "\u200b\u200b\u200b",
    "zero-width joiners": "\u200d\u200c\u200d",
    "word joiners": "\u2060\u2061\u2062\u2063\u2064",
    "variation selectors": "\ufe00\ufe01\U000e0100\U000e01ef",
    "direction": "\u202e\u2066\u2069\u200f\u061c",
    "fillers": "\u3164\uffa0\u115f\u1160\u2800\U00016fe4\U0001d159",
    "noncharacters": "\ufdd0\ufdef\U0001fffe",
    "soft hyphens": "\xad\u034f\u180e\ufeff",
    "annotations": "\ufff9\ufffa\ufffb\U0001d173",
    "controls": "\x1b\x07\x00\x85",
}


def run(tiers: Sequence[str] | None = None) -> Attempts:
    """All attempts, with the server in each sandbox tier."""
    attempts = Attempts(0, [])
    for tier in working_tiers() if tiers is None else tiers:
        attempts += asyncio.run(_replies(tier))
        for what, hidden in HIDDEN.items():
            attempts += asyncio.run(_hidden(tier, what, hidden))
    return attempts


def _servers(folder: str, tier: str, table: dict[str, Any]) -> McpServers:
    path = Path(folder, "table.json")
    path.write_text(json.dumps(table))
    settings = ServerSettings(
        name=_NAME,
        command=os.path.abspath(sys.executable),
        args=("-IS", _PROGRAM, str(path)),
        readable=(sys.prefix, sys.base_prefix, folder, str(Path(_PROGRAM).parent)),
        timeout_s=60.0,
    )
    return McpServers(
        [settings], workspace=folder, approvals=Approvals(None), folder=None, sandbox=Sandbox(tiers=(tier,))
    )


async def _call(servers: McpServers, name: str) -> Any:
    tools = {tool.name: tool for tool in servers.__lyra_tools__()}
    run_tool = tools[f"mcp__{_NAME}__{name}"].run
    assert run_tool is not None
    return await run_tool()


async def _said(work: Awaitable[Any]) -> str:
    """What a call gave, or how it failed, as text with every character in it."""
    try:
        return json.dumps(await work, ensure_ascii=False, default=str)
    except LyraError as error:
        return f"{error.message} {error.hint or ''}"


# ---------------------------------------------------------------- replies
async def _replies(tier: str) -> Attempts:
    effects: list[str] = []
    with TemporaryDirectory(prefix="lyra-mcp-") as folder:
        async with _servers(folder, tier, {"raw": REPLIES, "hidden": ""}) as servers:
            await servers.start()
            for name in REPLIES:
                held_s = await _held(_said(_call(servers, name)))
                if held_s > _HELD_CPU_S_MAX:
                    effects.append(f"{name} ({tier}): the loop stood still for {held_s:.1f} s")
                (state,) = servers.states()
                if state.state != "connected":
                    effects.append(f"{name} ({tier}): the server is {state.state}")
                    break
    return Attempts(len(REPLIES), effects)


async def _held(work: Awaitable[Any]) -> float:
    """The longest time of the processor that the loop gave to one step while the work went on."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.005)
            longest = max(longest, time.thread_time() - before)

    tasks = Tasks()
    watching = tasks.start(watch(), name="watch")
    try:
        await asyncio.wait_for(work, 120)
        await asyncio.sleep(0.01)
    finally:
        watching.cancel()
    return longest


# ---------------------------------------------------------------- invisible characters
async def _hidden(tier: str, what: str, hidden: str) -> Attempts:
    """Everything that a server may say, with the characters in it."""
    reported: list[str] = []

    def note(text: str, fraction: float | None = None) -> None:
        del fraction
        reported.append(text)

    with TemporaryDirectory(prefix="lyra-mcp-") as folder:
        async with _servers(folder, tier, {"raw": {}, "hidden": hidden}) as servers:
            await servers.start()
            progress.set(note)
            kinds = ("text", "structured", "error", "protocol", "progress", "link")
            said = {f"say_{kind}": await _said(_call(servers, f"say_{kind}")) for kind in kinds}
            said |= {
                "resources": await _said(servers.resources(_NAME)),
                "a resource": await _said(servers.read_resource(_NAME, "note://one")),
                "prompts": await _said(servers.prompts(_NAME)),
                "a prompt": await _said(servers.get_prompt(_NAME, f"before{hidden}after")),
                "progress": " ".join(reported),
                "skipped tools": " ".join(servers.states()[0].skipped),
                "problems": " ".join(servers.problems),
            }
            for tool in servers.__lyra_tools__():
                shown = f"{tool.description} {json.dumps(tool.schema, ensure_ascii=False)}"
                said[f"the tool {tool.name}"] = shown
    effects = [f"{what} in {place} ({tier})" for place, text in said.items() if any(char in text for char in hidden)]
    return Attempts(len(said), effects)
