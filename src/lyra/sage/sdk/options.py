"""RunOptions and UnifiedRunOptions: what may differ from run to run."""

from __future__ import annotations

from typing import Any

import msgspec

from lyra.errors import ConfigError


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ from run to run; what is left out is as the SDK was told."""

    working_directory: str | None = None
    max_steps: int | None = None
    budget: Any = None
    output: Any = None  # the wanted type of the answer
    session: str | None = None  # the id of a session to go on with

    @property
    def is_interactive(self) -> bool:
        return True

    def require_none(self) -> None:
        """Refuse options for a session that is open: it was opened without them."""
        given = [name for name in RunOptions.__struct_fields__ if getattr(self, name) is not None]
        if given:
            raise ConfigError(
                f"{given[0]} cannot change in a session that is open",
                hint="tell the SDK before `async with`, or run outside of it",
                key=given[0],
            )


class UnifiedRunOptions(RunOptions, frozen=True, kw_only=True):
    """`interactive`: the permission callback is asked; False denies what no rule allows."""

    interactive: bool = True

    @property
    def is_interactive(self) -> bool:
        return self.interactive
