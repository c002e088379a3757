"""The tools of an attacked agent: the built-in ones, in its place, on a network that only looks like one."""

from __future__ import annotations

from lyra.agents.helpers.task import task_tool
from lyra.core.tool import Tool
from lyra.sandbox import Sandbox
from lyra.tools.builtin import Workspace, builtin_tools
from lyra.tools.builtin.web_fetch import web_tools
from verify.attacks.injection.place import Place
from verify.attacks.injection.sink import Sink

__all__ = ["tools_for"]


def tools_for(place: Place, sink: Sink, *, attended: bool = False) -> list[Tool]:
    workspace = Workspace(str(place.workspace))
    sandbox = Sandbox(lookup=sink.lookup, dial=sink.connect)
    known = builtin_tools(workspace, sandbox=sandbox, attended=attended)
    fetching = web_tools(lookup=sink.lookup, dial=sink.dial)
    return [*(tool for tool in known if tool.name != "WebFetch"), *fetching, task_tool()]
