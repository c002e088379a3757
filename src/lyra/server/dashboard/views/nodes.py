"""How the pages show a node: its mode in words, the split of its traffic, its confidence over time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.plots import PlotColumn, PlotStep, plot
from lyra.server.dashboard.words import state
from lyra.server.http.nodes.facts import NodeFacts

# What each mode does with an execution, in words.
MODE_WORDS: Final[dict[str, str]] = {
    "python_only": "the Python path answers; nothing is compared",
    "shadow_direct": "the Python path answers; the direct path is compared behind it",
    "canary_direct": "the direct path answers for a small share; every execution is compared",
    "dual_verify": "the Python path answers; every execution is compared at once",
    "direct_only": "the direct path answers; every hundredth execution is compared",
}


# How the axis writes times, by the seconds that it covers at least.
_TIME_FORMS: Final = ((2 * 86_400, "%m-%d"), (3_600, "%H:%M"), (0, "%H:%M:%S"))


def mode_words(facts: NodeFacts) -> Html:
    """The mode as a state: a blocked node failed, one on the way is running."""
    look = "failed" if facts.is_blocked else "running" if facts.direct_share else "waiting"
    word = f"{facts.mode}, forced" if facts.is_forced else facts.mode
    return state(look, word)


def traffic_bar(facts: NodeFacts) -> Html:
    """The split of traffic between the two paths, as a bar and in words."""
    direct = facts.direct_share * 100
    words = f"{100 - direct:g} % Python, {direct:g} % direct"
    return tag(
        "span",
        tag(
            "svg",
            tag("title", words),
            tag("rect", x=0, y=0, width=100, height=10, class_="split-python"),
            tag("rect", x=f"{100 - direct:.2f}", y=0, width=f"{direct:.2f}", height=10, class_="split-direct"),
            viewBox="0 0 100 10",
            preserveAspectRatio="none",
            role="img",
            class_="split",
        ),
        tag("span", words, class_="note"),
        class_="traffic",
    )


def confidence_plot(facts: NodeFacts) -> Html:
    """The share of agreement with its interval, at each moment when comparisons were counted."""
    from lyra.vesper.confidence import interval

    length_s = facts.timeline[-1][0] - facts.timeline[0][0]
    form = next(form for seconds, form in _TIME_FORMS if length_s >= seconds)
    needs = [] if facts.needed is None else [facts.needed]
    steps = []
    for time, compared, divergences in facts.timeline:
        if not compared:  # executions of a mode that compares nothing
            continue
        moment = datetime.fromtimestamp(time, UTC)
        low, high = interval(compared, divergences)
        label = f"{moment:%Y-%m-%d %H:%M:%S} UTC, {compared:,} compared"
        values = [low, (compared - divergences) / compared, high, *needs]
        steps.append(PlotStep(label, moment.strftime(form), values, at=time))
    columns = [PlotColumn("lower end", "line low"), PlotColumn("agreed"), PlotColumn("upper end", "high")]
    columns += [PlotColumn(f"needed for {facts.next_mode}") for _ in needs]
    needed = "" if facts.needed is None else f" {facts.next_mode} needs a lower end of {facts.needed * 100:g} %."
    about = f"Share of compared executions that agreed, with its interval at 99.9 %.{needed}"
    least = min((step.values[0] or 0.0 for step in steps), default=0.0)
    least = min(least, *needs) if needs else least
    return plot(
        "confidence", "Confidence", about, columns, steps, unit="share", low=max(0.0, least - (1 - least) * 0.2)
    )
