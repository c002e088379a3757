"""Connects a kernel with the exports that its user has asked for: OpenTelemetry, and the log.

Agents, nodes and servers call `export_as_configured` for their kernel. It imports nothing where nothing is asked for:
most runs export nothing, and start-up is short.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from lyra.core.clock import Clock
    from lyra.core.event import Event


class ListenerTable(Protocol):
    """The listeners of a kernel."""

    def add(self, listener: Callable[[Event], Any], kinds: Iterable[str] | None = None) -> Callable[[], None]: ...


class ExportingKernel(Protocol):
    """The part of a kernel that `export_as_configured` uses."""

    parts: dict[str, Any]
    clock: Clock

    @property
    def listeners(self) -> Any: ...
    def on_event(self, listener: Callable[[Event], Any], kinds: Iterable[str] | None = None) -> Callable[[], None]: ...


def export_as_configured(kernel: ExportingKernel) -> None:
    """Attach what the `OTEL_*` variables, a provider of the application, or `configure_logs` ask for. A second call
    changes nothing."""
    if "opentelemetry.trace" in sys.modules or [name for name in os.environ if name.startswith("OTEL_")]:
        from lyra.observe.otel.attach import attach_from_environment

        attach_from_environment(_ForUser(kernel))
    if "lyra.observe.logs" in sys.modules:
        from lyra.observe.logs import attach_log
        from lyra.observe.writers import secrets_of

        attach_log(_ForUser(kernel), lambda: secrets_of(kernel))


class _ForUser:
    """A kernel whose listeners act for its user: the process that happens to run here has asked for nothing."""

    def __init__(self, kernel: ExportingKernel) -> None:
        self.parts = kernel.parts
        self._listeners: ListenerTable = kernel.listeners

    def on_event(self, listener: Callable[[Event], Any], kinds: Iterable[str] | None = None) -> Callable[[], None]:
        return self._listeners.add(listener, kinds)
