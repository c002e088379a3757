"""Ctrl-C that is heard in the middle of a long step.

In a loop the first Ctrl-C only cancels the main task, which needs a turn of the loop for that; the second one ends
whatever is going on. Where the loop has had no turn for a while after the first, nothing that could be tidied up is
running, and the second comes by itself.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, Final

PATIENCE_S: Final = 1.0


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """`asyncio.run` with such a Ctrl-C."""
    heard = _heard(work)
    try:
        return asyncio.run(heard)
    finally:  # a Ctrl-C before the loop started leaves both unstarted
        heard.close()
        work.close()


async def _heard(work: Coroutine[Any, Any, Any]) -> Any:
    usual = signal.getsignal(signal.SIGINT)
    main, loop = threading.main_thread(), asyncio.get_running_loop()
    if threading.current_thread() is not main or not callable(usual):
        return await work

    def again_unless(heard: threading.Event, number: int) -> None:
        if not heard.wait(PATIENCE_S) and main.ident is not None:
            signal.pthread_kill(main.ident, number)

    def came(number: int, frame: Any) -> None:
        heard = threading.Event()
        loop.call_soon_threadsafe(heard.set)
        threading.Thread(target=again_unless, args=(heard, number), daemon=True).start()
        usual(number, frame)

    signal.signal(signal.SIGINT, came)
    try:
        return await work
    finally:
        signal.signal(signal.SIGINT, usual)
