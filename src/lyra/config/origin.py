"""Where a setting's value comes from."""

from __future__ import annotations

from typing import NamedTuple

from lyra.config.values import Kind


class SettingOrigin(NamedTuple):
    """Which source a value comes from, and where in it (None for a default)."""

    kind: Kind
    place: str | None = None
