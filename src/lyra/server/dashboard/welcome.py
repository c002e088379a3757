"""A short explanation above the overview, for a kernel that is shown to people who do not know it, such as a demo.

    set_welcome(kernel, "A team of agents at work", [("Supervised", "…", "/processes", "See the tree")])

It is shown until a person closes it; then it stays closed for this server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lyra.server.dashboard.html import Child, Html, tag
from lyra.server.dashboard.layout import act_form, link
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


_PART: Final = "dashboard.welcome"

WelcomeLine = tuple[str, str, str, str]  # a word, a sentence, the path of a page, the words of the link to it


class WelcomeText:
    """What is shown: a title, and lines of a word, a sentence, the page that shows it and the words of the link."""

    __slots__ = ("lines", "title")

    def __init__(self, title: str, lines: Sequence[WelcomeLine]) -> None:
        self.title = title
        self.lines = tuple(lines)

    async def close(self) -> None:
        """Called with the kernel; nothing is open."""


def set_welcome(kernel: Kernel, title: str, lines: Sequence[WelcomeLine]) -> None:
    """Show this above the overview."""
    kernel.parts[_PART] = WelcomeText(title, lines)


def welcome(call: HttpCall) -> Html | None:
    """The explanation, or None where there is none, or it was closed."""
    text = call.kernel.parts.get(_PART)
    if not isinstance(text, WelcomeText):
        return None
    rows: list[Child] = [
        tag("li", tag("strong", word), " ", tag("span", sentence), " ", tag("a", words, href=link(call, path)))
        for word, sentence, path, words in text.lines
    ]
    close = act_form(call, link(call, "acts/welcome"), tag("button", "Got it"), class_="dismiss")
    return tag(
        "section",
        tag("div", tag("h2", text.title), close, class_="bar spread"),
        tag("ul", rows),
        class_="welcome card",
        aria_label="What this is",
    )


async def _dismiss(call: HttpCall) -> RawAnswer:
    call.kernel.parts.pop(_PART, None)
    return RawAnswer(b"", "text/plain", 303, {"location": link(call)})


ENDPOINTS: Final = (
    Endpoint(
        name="acts.welcome",
        method="POST",
        path="/acts/welcome",
        summary="Close the explanation above the overview",
        handler=_dismiss,
        is_documented=False,
    ),
)
