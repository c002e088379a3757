"""A hostile MCP server over stdio: `python -IS hostile_server.py TABLE.json`.

The file has `raw` (name of a tool → the parts of the line that it answers with) and `hidden` (characters that no screen
shows, which it puts wherever a server may say something). Imports nothing but the standard library, so that it starts
at once in the sandbox.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_OBJECT = {"type": "object"}


def _expanded(parts: list[Any]) -> str:
    """The text of a result: parts that are texts, and pairs of a text and how often it is repeated."""
    return "".join(part if isinstance(part, str) else part[0] * part[1] for part in parts)


def _tools(table: dict[str, Any]) -> list[dict[str, Any]]:
    hidden = table["hidden"]
    kinds = ("text", "structured", "error", "protocol", "progress", "link")
    names = [*table["raw"], *(f"say_{kind}" for kind in kinds)]
    tools = [{"name": name, "description": "Say something.", "inputSchema": _OBJECT} for name in names]
    tools.append({"name": "described", "description": f"Look{hidden} at this.", "inputSchema": _OBJECT})
    words = {"title": f"T{hidden}", "description": f"D{hidden}", "default": f"d{hidden}", "examples": [f"e{hidden}"]}
    tools.append({"name": "schema", "inputSchema": {"type": "object", "properties": {"a": words}}})
    for number, inner in enumerate(({f"p{hidden}": {}}, {"a": {"enum": [f"v{hidden}"]}}, {"a": {"const": hidden}})):
        tools.append({"name": f"repeated_{number}", "inputSchema": {"type": "object", "properties": inner}})
    return tools


def _result(method: str, params: dict[str, Any], table: dict[str, Any]) -> Any:
    hidden = table["hidden"]
    said = f"before{hidden}after"
    text = {"type": "text", "text": said}
    if method == "initialize":
        info = {"name": "hostile", "version": "1"}
        offers: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
        return {"protocolVersion": "2025-06-18", "capabilities": offers, "serverInfo": info}
    if method == "tools/list":
        return {"tools": _tools(table)}
    if method == "resources/list":
        return {"resources": [{"uri": "note://one", "name": said, "description": said}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": f"note://{{x}}{hidden}", "name": said, "description": said}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": said}]}
    if method == "prompts/list":
        return {"prompts": [{"name": said, "description": said, "arguments": [{"name": said}]}]}
    if method == "prompts/get":
        return {"description": said, "messages": [{"role": "user", "content": text}]}
    if method == "tools/call":
        name = params["name"]
        if name == "say_structured":
            return {"content": [], "structuredContent": {f"k{hidden}": [said, {"inner": said}]}}
        if name == "say_link":
            return {"content": [{"type": "resource_link", "uri": "note://one", "name": said}]}
        return {"content": [text], "isError": name == "say_error"}
    return None


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    table = json.loads(Path(sys.argv[1]).read_text())
    for line in sys.stdin:
        message = json.loads(line)
        number, params = message.get("id"), message.get("params") or {}
        name = params.get("name") if message.get("method") == "tools/call" else None
        if number is None:
            continue
        if name in table["raw"]:
            _write(_expanded(table["raw"][name]).replace("$ID", str(number)))
            continue
        if name == "say_progress":
            token = (params.get("_meta") or {}).get("progressToken")
            told = {"progressToken": token, "progress": 1, "message": f"step{table['hidden']}one"}
            _write(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": told}))
        if name == "say_protocol":
            error = {"code": -32602, "message": f"no{table['hidden']}such"}
            _write(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}))
            continue
        result = _result(message.get("method", ""), params, table)
        outcome = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        _write(json.dumps({"jsonrpc": "2.0", "id": number, **outcome}))


if __name__ == "__main__":
    main()
