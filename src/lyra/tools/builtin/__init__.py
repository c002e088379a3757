"""The tools every agent can have: `builtin_tools(workspace)`. One module a family.

`workspace` opens files below the folders an agent works in, and holds long output; `files` keeps encodings and line
endings, and records which process has read what. On them stand `files` (Read, Write, Edit, MultiEdit, NotebookEdit),
`search` (Glob, Grep), `bash` (Bash, BashOutput, KillShell), `git` (Git), `web_fetch` (WebFetch) and
`ask_user` (AskUser, TodoWrite). Whether a call is allowed is decided before it comes here: by the Grant, which is asked
for the resolved path, the command or the host, and by the permission rules. What needs an agent around it is elsewhere:
Task in `lyra.agents.helpers.task`, Remember and Recall in `lyra.agents.turn.memory`; ToolSearch is in
`lyra.tools.tool_search`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lyra.tools.builtin.workspace import Workspace

if TYPE_CHECKING:
    from lyra.core.rights.capability import Grant
    from lyra.core.tool import Tool
    from lyra.sandbox import Sandbox
    from lyra.tools.permissions.decision import Permissions

__all__ = ["Workspace", "builtin_tools"]


def builtin_tools(
    workspace: Workspace | str,
    *,
    sandbox: Sandbox | None = None,
    readable: Sequence[str] = (),
    programs: Sequence[str] = (),
    permissions: Permissions | None = None,
    attended: bool | None = None,
    commands: Callable[[], Grant] | None = None,
) -> list[Tool]:
    """All built-in tools, working in one workspace.

    `sandbox` holds what Bash runs (one is made where none is given), and its commands may read the folders `readable`
    besides, where the process has the right to, and those of `programs`, unless its Grant denies them. With the agent's
    `permissions`, searches pass over what may not be read, and WebFetch follows a redirect to another host where a rule
    needs no question; without any, searches pass over what may hold secrets. Without a person who can answer
    (`attended`, or that of the permissions), AskUser says so. What `commands` returns narrows what Bash may do besides.
    """
    from lyra.tools.builtin.ask_user import ask_tools, todo_tools
    from lyra.tools.builtin.bash import bash_tools
    from lyra.tools.builtin.files import ReadLog, file_tools, notebook_tools
    from lyra.tools.builtin.git import git_tools
    from lyra.tools.builtin.search import search_tools
    from lyra.tools.builtin.web_fetch import follows, web_tools
    from lyra.tools.permissions.decision import may_hold_secrets
    from lyra.tools.tool_search import tool_search

    hidden = permissions.is_hidden if permissions is not None else may_hold_secrets
    place = workspace if isinstance(workspace, Workspace) else Workspace(workspace, hidden=hidden)
    if attended is None:
        attended = permissions.attended if permissions is not None else True
    log = ReadLog()
    tools = [
        *file_tools(place, log),
        *search_tools(place),
        *notebook_tools(place, log),
        *bash_tools(place, sandbox=sandbox, readable=readable, programs=programs, most=commands),
        *git_tools(place),
        *web_tools(follow=follows(permissions) if permissions is not None else None),
        *todo_tools(),
        *ask_tools(attended=attended),
        tool_search,
    ]
    return [tool.mark_builtin() for tool in tools]
