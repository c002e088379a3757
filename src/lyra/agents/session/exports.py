"""Connects a kernel that has agents with the exports that its user has asked for: OpenTelemetry, and the log.

Imports nothing where nothing is asked for: most runs export nothing, and start-up is short.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

__all__ = ["export_as_configured"]


def export_as_configured(kernel: Kernel) -> None:
    """Attach what the `OTEL_*` variables, a provider of the application, or `configure_logs` ask for."""
    if "opentelemetry.trace" in sys.modules or any(name.startswith("OTEL_") for name in os.environ):
        from lyra.observe.otel.attach import attach_from_environment

        attach_from_environment(kernel)
    if "lyra.observe.logs" in sys.modules:
        from lyra.observe.attach import secrets_of
        from lyra.observe.logs import attach_log

        attach_log(kernel, lambda: secrets_of(kernel))
