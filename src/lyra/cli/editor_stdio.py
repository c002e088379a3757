"""stdin and stdout as the connection to an editor, for the commands that speak the Agent Client Protocol.

From the moment it is opened, stdout carries the protocol's lines and nothing else: what any other code or a program
that it starts writes there goes to stderr.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from lyra.cli.render import note
from lyra.errors import ConfigError


def check_editor(command: str) -> None:
    """Refuse where the protocol cannot be spoken, and tell a person who started the command by hand."""
    try:
        import acp as _protocol  # noqa: F401
    except ModuleNotFoundError as missing:
        raise ConfigError(
            "the Agent Client Protocol needs a package that is not installed",
            hint="pip install 'lyra-agents[acp]'",
            key="acp",
        ) from missing
    if sys.stdin is None or sys.stdout is None:
        raise ConfigError("stdin or stdout is closed: an editor speaks on them", key="acp")
    if sys.stdin.isatty():
        note(f"{command} is started by an editor, and waits for its JSON lines; Ctrl-D ends it")


async def serve_editor(agent: Any) -> None:
    """Speak with the editor until it closes stdin; the agent is closed at the end."""
    from acp import run_agent

    from lyra.agents.acp.json_rpc_lines import LINE_BYTES_MAX, JsonRpcLines
    from lyra.cli.stdin_lines import stdin_lines
    from lyra.cli.stdout_thread import StdoutThread

    lines = stdin_lines(sys.stdin.fileno(), cut_to_bytes=LINE_BYTES_MAX)
    try:
        await run_agent(agent, JsonRpcLines(lines, StdoutThread(_own_stdout())), use_unstable_protocol=True)
    finally:
        await agent.close()


def _own_stdout() -> int:
    """The descriptor of stdout for the protocol alone; what others write to stdout goes to stderr."""
    sys.stdout.flush()
    descriptor = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return descriptor
