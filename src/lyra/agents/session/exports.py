"""Connects a kernel that has agents with the exports that its user has asked for: OpenTelemetry, and the log.

Imports nothing where nothing is asked for: most runs export nothing, and start-up is short.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lyra.core.event import Event
    from lyra.kernel.kernel import Kernel

__all__ = ["export_as_configured"]


def export_as_configured(kernel: Kernel) -> None:
    """Attach what the `OTEL_*` variables, a provider of the application, or `configure_logs` ask for."""
    if "opentelemetry.trace" in sys.modules or any(name.startswith("OTEL_") for name in os.environ):
        from lyra.observe.otel.attach import attach_from_environment

        attach_from_environment(_ForUser(kernel))
    if "lyra.observe.logs" in sys.modules:
        from lyra.observe.attach import secrets_of
        from lyra.observe.logs import attach_log

        attach_log(_ForUser(kernel), lambda: secrets_of(kernel))


class _ForUser:
    """A kernel whose listeners act for its user: the process that happens to run here has asked for nothing."""

    def __init__(self, kernel: Kernel) -> None:
        self.parts = kernel.parts
        self._listeners = kernel.listeners

    def on_event(self, listener: Callable[[Event], Any], kinds: Iterable[str] | None = None) -> Callable[[], None]:
        return self._listeners.add(listener, kinds)
