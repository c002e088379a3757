"""`sage` in a terminal: opens the session and hands it to the terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.cli.app import Invocation
from lyra.cli.commands.agent import options_of, with_servers
from lyra.cli.render import note
from lyra.cli.trust_question import ask_for_trust
from lyra.sage.terminal.first_run import choose_model
from lyra.sage.terminal.log_file import logs_to_file

if TYPE_CHECKING:
    from lyra.agents.headless.headless import Headless
    from lyra.sage.agent.live import SessionStart


_NOT_SET_UP: Final = 2  # no model, and the person left


def run_interactive(
    invocation: Invocation,
    given: dict[str, Any],
    start: SessionStart,
    task: str,
    opened: Callable[[Headless], object],
    *,
    verbose: bool = False,
) -> int:
    """Open a session in this terminal until the user leaves it; the exit code. `opened` is called once it is open,
    and `verbose` is `/output verbose`."""
    options = msgspec.structs.replace(options_of(given), attended=True)
    ask_for_trust(invocation, os.curdir, rules=True)
    model = choose_model(options.model or invocation.config.agent.model or "", invocation.config.providers)
    if model is None:
        return _NOT_SET_UP
    options = msgspec.structs.replace(options, model=model)

    async def run() -> int:
        from lyra.sage.agent.live import LiveSession
        from lyra.sage.extensions.plugins.store import plugin_servers
        from lyra.sage.terminal.loop import run_terminal

        async with (
            with_servers(invocation, options, plugin_servers(options.folder)) as equipped,
            LiveSession(equipped, invocation.config, start=start) as session,
        ):
            opened(session.headless)
            for sentence in logs.about_stores:
                note(f"note: {sentence}")
            if verbose:
                session.keep(output="verbose")
            return await run_terminal(session, task or None)

    with logs_to_file() as logs:
        return asyncio.run(run())
