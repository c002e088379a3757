"""A small MCP server that says what others wrote: `python -IS notes_server.py TEXTS.json`, over stdio.

`note` gives the text of a key, `broken` fails with it, and each key of `described` is a tool that has it for its
description. Imports nothing but the standard library, so that it starts at once in the sandbox.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


def _tools(described: dict[str, str]) -> list[dict[str, Any]]:
    tools = [{"name": name, "description": "Look up a note.", "inputSchema": _KEY} for name in ("note", "broken")]
    for key, text in described.items():
        tools.append({"name": f"about_{key}", "description": text, "inputSchema": {"type": "object"}})
    return tools


def _answer(message: dict[str, Any], texts: dict[str, dict[str, str]]) -> dict[str, Any] | None:
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        info = {"name": "notes", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": _tools(texts["described"])}
    if method == "tools/call":
        name, key = params["name"], (params.get("arguments") or {}).get("key", "")
        text = texts["said"].get(key, "there is no such note")
        return {"content": [{"type": "text", "text": text}], "isError": name == "broken"}
    return None


def main() -> None:
    texts = json.loads(Path(sys.argv[1]).read_text())
    for line in sys.stdin:
        message = json.loads(line)
        number = message.get("id")
        result = _answer(message, texts)
        if number is None:
            continue
        outcome = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, **outcome}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
