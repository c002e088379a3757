"""What the web demo says above its overview: for a person who has not heard of Lyra, in a minute."""

from __future__ import annotations

from typing import Final

__all__ = ["LINES", "TITLE"]

TITLE: Final = "This is a team of agents at work"

# A sentence, the page that shows it, and the words of the link.
LINES: Final = (
    (
        "Every agent is a process with a parent, a budget and rights. One that crashes is started again.",
        "/processes",
        "See the tree.",
    ),
    (
        "What an agent spends is reserved before and settled after. A change without enough money is refused.",
        "/costs",
        "See what it costs.",
    ),
    ("An agent that needs a person waits, for hours if it must.", "/inbox", "Answer one."),
    (
        "All of it is in a journal: nothing that was finished is done again, and each run can be stepped through.",
        "/runs",
        "Open a run.",
    ),
    ("The model is simulated, and nothing leaves this machine.", "/chat", "Talk to the guide."),
)
