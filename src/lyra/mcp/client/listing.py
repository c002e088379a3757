"""Reads the tools, resources and prompts of a server, page by page and up to a limit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.core.secrets.visible import without_invisible
from lyra.mcp.client.schema import problem
from lyra.mcp.client.tool import Offered

if TYPE_CHECKING:
    from mcp import Client


_PAGES_MAX: Final = 100
_TOOLS_MAX: Final = 500
_ENTRIES_MAX: Final = 1_000
_NAME_CHARS_MAX: Final = 200
_LINE_CHARS_MAX: Final = 300


class ToolListing(NamedTuple):
    """The tools that can be used, and why others cannot."""

    offered: dict[str, Offered]
    skipped: tuple[str, ...] = ()


async def list_tools(client: Client) -> ToolListing:
    if client.server_capabilities.tools is None:
        return ToolListing({})
    offered: dict[str, Offered] = {}
    skipped: list[str] = []
    async for tool in _entries(client.list_tools, "tools"):
        wrong = _wrong(tool, offered)
        if wrong is None:
            offered[tool.name] = Offered(tool.name, tool.description or "", tool.input_schema, tool.output_schema)
        elif len(skipped) < _TOOLS_MAX:
            skipped.append(f"{without_invisible(tool.name[:_NAME_CHARS_MAX])}: {wrong}")
    return ToolListing(offered, tuple(skipped))


def _wrong(tool: Any, offered: dict[str, Offered]) -> str | None:
    if not tool.name or len(tool.name) > _NAME_CHARS_MAX:
        return "it has no usable name"
    if tool.name in offered:
        return "there is another of this name"
    if len(offered) >= _TOOLS_MAX:
        return f"a server may have {_TOOLS_MAX} tools"
    return problem(tool.input_schema)


async def list_resources(client: Client) -> list[dict[str, str]]:
    if client.server_capabilities.resources is None:
        return []
    resources = [
        {"uri": without_invisible(str(entry.uri)), "name": _short(entry.name), "description": _short(entry.description)}
        async for entry in _entries(client.list_resources, "resources")
    ]
    templates = [
        {
            "uri_template": without_invisible(entry.uri_template),
            "name": _short(entry.name),
            "description": _short(entry.description),
        }
        async for entry in _entries(client.list_resource_templates, "resource_templates")
    ]
    return [*resources, *templates]


async def list_prompts(client: Client) -> list[dict[str, Any]]:
    if client.server_capabilities.prompts is None:
        return []
    return [
        {
            "name": _short(entry.name),
            "description": _short(entry.description),
            "arguments": [
                {"name": _short(argument.name), "required": bool(argument.required)}
                for argument in entry.arguments or ()
            ],
        }
        async for entry in _entries(client.list_prompts, "prompts")
    ]


async def _entries(ask: Any, field: str) -> AsyncIterator[Any]:
    """The entries of all pages, up to a limit on pages and entries."""
    cursor: str | None = None
    given = 0
    for _ in range(_PAGES_MAX):
        page = await ask(cursor=cursor, cache_mode="refresh")
        for entry in getattr(page, field):
            given += 1
            if given > _ENTRIES_MAX:
                return
            yield entry
        cursor = page.next_cursor
        if cursor is None:
            return


def _short(text: str | None) -> str:
    return without_invisible((text or "")[:_LINE_CHARS_MAX])
