"""What the declaration of an agent becomes: the lyra Agent made from its settings, and what Vega adds.

Vega adds memory, concurrency, a time-out and a budget for each call. A World makes one AgentPlan for equal settings, so
that all processes of the agent share concurrency, rate limits and circuit breaker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lyra.agents.agent import Agent
from lyra.core.policies.policy import CircuitBreaker, RateLimit, Retry
from lyra.errors import ConfigError
from lyra.kernel.programs.registry import program_of
from lyra.models.timeouts import Timeouts
from lyra.vega.runtime.agents.tools import tools_of
from lyra.vega.runtime.agents.undeclared_tools import is_undeclared
from lyra.vega.runtime.durations import backoff, seconds
from lyra.vega.runtime.output import parsed_type, schema_of_type
from lyra.vega.values.values import Duration, Money

if TYPE_CHECKING:
    from lyra.vega.runtime.agents.environment import AgentEnvironment


class AgentPlan:
    __slots__ = (
        "agent",
        "budget",
        "concurrency",
        "keeps",
        "name",
        "older",
        "output",
        "priority",
        "program",
        "timeout_s",
        "try_timeout_s",
        "turns",
    )

    def __init__(self, world: AgentEnvironment, name: str, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.older: dict[str, AgentPlan] = {}  # before its settings changed, by the names of their calls
        memory = settings.get("memory", "none")
        self.keeps = memory != "none"
        self.concurrency: int | None = settings.get("concurrency")
        self.turns = None if self.concurrency is None else asyncio.Semaphore(self.concurrency)
        self.priority: str | None = settings.get("priority")
        self.budget: Money | None = settings.get("budget")
        # The time of a call with all its tries; where `retry` names `timeout`, that of each try instead.
        timeout_s = seconds(settings["timeout"], "timeout") if "timeout" in settings else None
        is_for_tries = "timeout" in settings.get("retry", {}).get("on", ())
        self.timeout_s: float | None = None if is_for_tries else timeout_s
        self.try_timeout_s: float | None = timeout_s if is_for_tries else None
        self.output = parsed_type(settings["output"]) if "output" in settings else None
        options = _options(world, name, settings, memory)
        if self.try_timeout_s is not None:
            options["timeouts"] = Timeouts(first_s=None, idle_s=None, total_s=self.try_timeout_s)
        self.agent = Agent(name, **options)
        # Held here: `name_plan` gives the program a name of its own, and an unused program is made anew without it.
        self.program = program_of(self.agent)


def _options(world: AgentEnvironment, name: str, settings: Mapping[str, Any], memory: Any) -> dict[str, Any]:
    """The settings as lyra's Agent takes them."""
    models = models_of(world, settings)
    if not models and name in world.mocks:
        models = ["sim/echo"]  # it will not be asked
    if not models:
        raise ConfigError(f"agent {name} has no model", hint=f'say `model "…"` in agent {name}, or run with --model')
    model, *fallback = models
    for model_name in models:
        world.runtime.settings.need(model_name)  # from here on its keys are known, and kept out of what it is asked
    options: dict[str, Any] = {
        "model": model,
        "fallback": fallback,
        "system": str(settings.get("system", "")),
        "tools": [] if name in world.mocks else tools_of(world, name, settings),
    }
    if any(is_undeclared(tool) for tool in options["tools"]):
        options["permissions"] = world.undeclared_tools.permissions(options["tools"])
    for plain in ("temperature", "max_tokens", "min_tokens", "fit_budget"):
        if plain in settings:
            options[plain] = settings[plain]
    if "retry" in settings:
        options["retry"] = _retry(settings["retry"])
    if "circuit_breaker" in settings:
        options["circuit_breaker"] = CircuitBreaker(per="call", **_in_seconds(settings["circuit_breaker"]))
    if "rate_limit" in settings:
        options["rate_limit"] = RateLimit(**settings["rate_limit"])
    if "output" in settings:
        options["output"] = schema_of_type(settings["output"])
    if isinstance(memory, list):  # window(n): so many messages, of which the last is the user's
        options["context"] = {"kind": "sliding", "turns": (int(memory[1]) + 1) // 2}
    return options


def models_of(world: AgentEnvironment, settings: Mapping[str, Any]) -> list[Any]:
    """The model of an agent, and those that it falls back to."""
    models = settings.get("model") if world.options.model is None else world.options.model
    return models if isinstance(models, list) else [models] if models else []


def _retry(settings: Mapping[str, Any]) -> Retry:
    options: dict[str, Any] = {"max_attempts": settings.get("max_attempts", 3)}
    if "backoff" in settings:
        options["backoff"] = backoff(settings["backoff"])
    if "on" in settings:
        options["on"] = tuple(settings["on"])
    return Retry(**options)


def _in_seconds(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.seconds if type(value) is Duration else value for name, value in settings.items()}
