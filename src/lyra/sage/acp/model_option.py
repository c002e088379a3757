"""The model of a session as a setting that the editor shows, and what it is told where no model is named."""

from __future__ import annotations

from typing import Any, Final

from acp import RequestError, schema

from lyra.agents.acp.refusals import refusal
from lyra.errors import ConfigError
from lyra.sage.agent.live import LiveSession

_NO_MODEL: Final = (
    'add "--model", "PROVIDER/MODEL" to the arguments of `sage acp` in the settings of the editor, or write '
    'model = "PROVIDER/MODEL" under [agent] in your lyra.toml; `sage doctor` shows which providers have a key'
)


def no_model() -> RequestError:
    return refusal(ConfigError("no model is named", hint=_NO_MODEL, key="model"))


def config_options(live: LiveSession) -> list[Any]:
    """The model, as a setting that the editor shows: the one in use and the configured one."""
    known = dict.fromkeys(name for name in (live.model, live.config.agent.model) if name)
    return [
        schema.SessionConfigOptionSelect(
            type="select",
            id="model",
            name="Model",
            category="model",
            current_value=live.model,
            options=[schema.SessionConfigSelectOption(value=name, name=name) for name in known],
        )
    ]
