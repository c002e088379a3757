"""What the web demo says above its overview: for a person who has not heard of Lyra, in a minute."""

from __future__ import annotations

from typing import Final

__all__ = ["LINES", "TITLE"]

TITLE: Final = "This is a team of agents at work"

# A word, a sentence, the page that shows it, and the words of the link.
LINES: Final = (
    (
        "Supervised.",
        "Every agent is a process below a supervisor. One that crashes is started again: watch the restarts below.",
        "/processes",
        "See the tree",
    ),
    (
        "Budgeted.",
        "Money is set aside before each model call and settled after it. A change without enough money is refused.",
        "/costs",
        "See what it costs",
    ),
    (
        "Resumable.",
        "Every step is in a journal. After a crash a run goes on where it was, and nothing finished is done again.",
        "/runs",
        "Step through a run",
    ),
    (
        "Asks you.",
        "Where an agent needs a person it waits, for hours if it must, and spends nothing meanwhile.",
        "/inbox",
        "Answer a question",
    ),
    ("Try it.", "The model is simulated and nothing leaves this machine.", "/chat/guide", "Ask the guide what this is"),
)
