"""The agent of a run: the model, the prompt and the bounds that the options and the configuration ask for."""

from __future__ import annotations

from typing import Final

from lyra.agents.agent import Agent
from lyra.agents.headless.default_prompt import default_prompt
from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.headless.setup import HeadlessSetup
from lyra.agents.session.models import check_model_name, known_to
from lyra.config import Config
from lyra.core.checking.check import whole
from lyra.errors import ConfigError

ANSWER_TOKENS_MAX: Final = 8_192  # of one answer: a file written whole should fit, and most models allow it


def model_of(options: HeadlessOptions, config: Config, *, how: str = "say --model PROVIDER/MODEL") -> str:
    """The model that the options name, else the configuration; ConfigError where none is named or it is not known.
    `how` tells the first way to name one, which is that of the command."""
    model = options.model or config.agent.model
    if not model:
        raise ConfigError(
            "no model is named",
            hint=f'{how}, set LYRA_AGENT_MODEL, or write model = "…" under [agent] in lyra.toml',
            key="model",
        )
    check_model_name(model, known_to(config))
    return model


def agent_of(name: str, options: HeadlessOptions, config: Config, setup: HeadlessSetup) -> Agent:
    """The agent; ConfigError where no model is named."""
    model = model_of(options, config)
    system = options.system
    if system is None:
        system = default_prompt(setup.folder, setup.also, attended=options.attended)
    return Agent(
        name,
        model=model,
        system=system,
        tools=setup.tools,
        permissions=setup.permissions,
        memory=setup.memory,
        hooks=options.hooks,
        max_iterations=whole(options.max_turns, "max_turns", least=1, most=10**6),
        max_tokens=ANSWER_TOKENS_MAX,
        output=options.output,
    )
