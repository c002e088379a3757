"""Tools of a plugin: YAML files as those of `lyra.tools.yaml`, held to what the plugin declares.

`read_plugin_tools` checks each tool of a file: the commands, hosts, variables and files that its declaration names are
declared by the plugin, and its name is no built-in tool's. `plugin_tools` makes the source for a session. Each call
runs with the rights of the process, narrowed to those of the plugin: a tool whose file was changed after the check gets
no more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lyra.core.checking.check import Mistake
from lyra.core.checking.document import form_of, parse, text_of
from lyra.core.rights.capability import Grant
from lyra.core.tool import Tool, ToolCall, rights
from lyra.sage.extensions.front_matter import one_line
from lyra.sage.extensions.plugins.permissions import PluginPermissions
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.permissions.subjects import TOOLS
from lyra.tools.source import ToolSource, part_of
from lyra.tools.wrapped import Middleware, Next
from lyra.tools.yaml.folder import DynamicTools
from lyra.tools.yaml.reader import read_tools
from lyra.tools.yaml.template import ToolEnvironment

_FILES_OF_KIND: Final = {"exec": "read", "file_read": "read", "file_write": "write"}


def is_reserved(name: str) -> bool:
    """Whether a tool's name is one that permission rules read as a tool of Lyra's own, or of an MCP server."""
    return name.lower() in TOOLS or name.lower().startswith("mcp__")


def read_plugin_tools(data: bytes, path: str, permissions: PluginPermissions) -> tuple[tuple[str, ...], list[Mistake]]:
    """The names of the tools in a file, and its mistakes."""
    environment = ToolEnvironment(Workspace(os.path.dirname(path)), secrets=permissions.variables)
    tools, mistakes = read_tools(data, path, environment)
    if mistakes:
        return (), mistakes
    document, _ = parse(text_of(data, path), form_of(path, what="tool"), path)
    wrong = [problem for tool in tools for problem in _undeclared(tool, permissions)]
    wrong += [problem for declared in _declarations(document) for problem in _undeclared_files(declared, permissions)]
    return tuple(tool.name for tool in tools), [Mistake(path, 1, 1, one_line(problem)) for problem in wrong]


def _undeclared(tool: Tool, permissions: PluginPermissions) -> Iterator[str]:
    if is_reserved(tool.name):
        yield f"{tool.name} is a name of Lyra's own tools, and no plugin can take it"
    for right in (*getattr(tool.run, "rights", ()), *getattr(tool.run, "commands", ())):
        if not permissions.allows(right):
            yield f"the tool {tool.name} needs {right}, which the plugin does not declare"


def _declarations(document: Any) -> list[Any]:
    """The declarations of a file that was read without a mistake."""
    if isinstance(document, Mapping) and "tools" in document:
        document = document["tools"]
    return document if isinstance(document, list) else [document]


def _undeclared_files(declared: Mapping[str, Any], permissions: PluginPermissions) -> Iterator[str]:
    implementation = declared["implementation"]
    level = _FILES_OF_KIND.get(implementation["type"], "none")
    if implementation.get("writes") is True:
        level = "write"
    if not permissions.allows_files(level):
        yield f"the tool {declared['name']} needs files = {level!r}, which the plugin does not declare"


def plugin_tools(path: str, workspace: Workspace, permissions: PluginPermissions) -> ToolSource:
    """The tools of a file for a session in `workspace`, each held to the permissions."""
    source = DynamicTools(path, workspace=workspace, secrets=permissions.variables)
    return part_of(source, lambda tool: not is_reserved(tool.name), [held_to(permissions.grant(workspace.root))])


def held_to(grant: Grant) -> Middleware:
    """A layer in which a tool has no more rights than the grant."""

    async def held(call: ToolCall, next: Next) -> Any:  # noqa: A002 - the name that layers have
        needs_of = next.tool.needs_of
        for need in needs_of(dict(call.arguments)) if needs_of is not None else ():
            grant.check(need)
        outer = rights.get()
        token = rights.set(grant if outer is None else outer.narrow(grant))
        try:
            return await next(call)
        finally:
            rights.reset(token)

    return held
