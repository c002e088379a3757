"""Events of mounted nodes in the server's own feed: changes of mode, divergences, counted executions.

A runtime of nodes has a kernel of its own, on a thread of its own. Once a page of nodes is opened, what happens there
is told to the served kernel, without inputs, so that pages follow it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from lyra.server.http.mounted_nodes import mounted_nodes

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.http.parts import HttpParts


_KINDS: Final = ("vesper.mode", "vesper.diverged", "vesper.compared")
_TOLD: Final = ("node", "mode", "to", "why", "compared")  # fields of a row that hold no input


class NodeNews:
    """See the module. One for each server: `call.parts.shared(NodeNews)`."""

    def __init__(self, parts: HttpParts) -> None:
        self._kernel: Kernel = parts.kernel
        self._is_open = False

    async def open(self) -> None:
        """Begin to pass events on; a second call changes nothing."""
        mounted = mounted_nodes(self._kernel)
        if self._is_open or mounted is None:
            return
        self._is_open = True
        loop = asyncio.get_running_loop()

        def heard(event: Any) -> None:
            data = {name: event.data[name] for name in _TOLD if name in event.data}
            try:
                loop.call_soon_threadsafe(self._publish, event.kind, data)
            except RuntimeError:
                return  # the served kernel's loop is closed; the runtime is the application's and lives on

        await asyncio.to_thread(mounted.runtime.on_event, heard, _KINDS)

    def _publish(self, kind: str, data: dict[str, Any]) -> None:
        if not self._kernel.stopping:
            self._kernel.publish("", kind, data)
