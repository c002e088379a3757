"""A tool layer that keeps files as they were before a call changes them, so that a turn can be undone.

A file tool names the file it changes. Any other tool that acts on the world (a command, a tool from a server or a file)
may change any file of the workspace, so all of them are looked at before and after it. The copies are made in a
thread, before the tool runs. Tools that only read or talk are passed through.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from lyra.core.tool import Tool, ToolCall
from lyra.sage.session.snapshots import Snapshots
from lyra.tools.permissions.subjects import facts_of
from lyra.tools.wrapped import Middleware, Next


def keeping_files(snapshots: Snapshots, folder: str) -> Middleware:
    """The layer for the tools of an agent that works in `folder`."""

    async def mw(call: ToolCall, inner: Next) -> Any:
        facts = facts_of(call.name) if inner.tool.builtin else None
        if inner.tool.harmless or (facts is not None and facts.act in ("read", "talk", "fetch")):
            return await inner(call)
        path = call.arguments.get(facts.argument) if facts is not None and facts.kind == "path" else None
        if isinstance(path, str) and "\0" not in path:
            token = await asyncio.to_thread(snapshots.before, _whole(path, inner.tool, folder))
        else:
            token = await asyncio.to_thread(snapshots.before_command)
        try:
            return await inner(call)
        finally:
            await asyncio.to_thread(snapshots.after, token)

    return mw


def _whole(path: str, tool: Tool, folder: str) -> str:
    return os.path.join(tool.folders[0] if tool.folders else folder, os.path.expanduser(path))
