"""An agent in ten lines.

python examples/hello.py --sim        # offline, with a simulated model
python examples/hello.py              # with ANTHROPIC_API_KEY
"""

from __future__ import annotations

import sys

import lyra
from lyra.errors import LyraError
from lyra.models.sim import SimProvider

SCRIPT = {"replies": [{"user": "my name is (\\w+)", "text": "Hello {1}, nice to meet you."}, {"text": "Hello."}]}
MODEL = SimProvider(SCRIPT) if "--sim" in sys.argv else "anthropic/claude-sonnet-4-5"


def main() -> None:
    greeter = lyra.Agent("greeter", model=MODEL, system="Greet people in one sentence.")
    print(lyra.run(greeter, "Hi, my name is Ada"))


if __name__ == "__main__":
    try:
        main()
    except LyraError as error:
        sys.exit(error.render())
