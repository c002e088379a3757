"""Functions as tools: their schema comes from the hints, their description from the docstring.

    python examples/tools.py --sim
    python examples/tools.py              # with ANTHROPIC_API_KEY

The two calls of the first turn run at the same time; the third fails, and the model is told why.
"""

from __future__ import annotations

import sys

import lyra
from lyra.errors import LyraError
from lyra.models.sim import SimProvider

SCRIPT = [
    {"tool_calls": [{"name": "weather", "arguments": {"city": city}} for city in ("Oslo", "Rome", "Atlantis")]},
    {"text": "Here is what I found:\n{result}"},
]
MODEL = SimProvider(SCRIPT) if "--sim" in sys.argv else "anthropic/claude-sonnet-4-5"
FORECASTS = {"Oslo": "snow, -3 °C", "Rome": "sun, 14 °C"}


@lyra.tool
def weather(city: str) -> str:
    """Today's weather.

    Args:
        city: the name of a city, in English
    """
    if city not in FORECASTS:
        raise ValueError(f"no forecast for {city}")
    return f"{city}: {FORECASTS[city]}"


def main() -> None:
    agent = lyra.Agent("forecaster", model=MODEL, tools=[weather])
    print(lyra.run(agent, "What is the weather in Oslo, Rome and Atlantis?"))


if __name__ == "__main__":
    try:
        main()
    except LyraError as error:
        sys.exit(error.render())
