"""The picture of a Vega program's plan: which calls to agents overlap, and why the others do not.

    plan_picture(plan_of_run(run))          # of a durable run
    plan_picture(plan_of(text, "review.vega"))

Time goes to the right: what stands in one column is under way together. The plan is also there as text, for a reader
that cannot see the picture. Draws; the compiler decides.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from lyra.core.imported_node import NODE_FILES
from lyra.errors import LyraError
from lyra.server.dashboard.html import Html, tag

if TYPE_CHECKING:
    from lyra.vega.durable.runs import DurableRun
    from lyra.vega.plan.plan import OverlapPlan


def plan_picture(plan: OverlapPlan) -> Html:
    """The picture, and the same in words."""
    from lyra.vega.plan.render import svg_of, text_of

    return tag(
        "div",
        tag(
            "div", Html(svg_of(plan, embedded=True)), class_="graph-box", tabindex="0", role="region", aria_label="Plan"
        ),
        tag("details", tag("summary", "The plan in words"), tag("pre", text_of(plan), tabindex="0")),
        class_="plan",
    )


def plan_of_run(run: DurableRun) -> OverlapPlan | None:
    """The plan of the program that is in force in a run; None for one that was run compiled, without its source."""
    from lyra.vega.compiler.compiler import plan_of

    sources = run.sources()
    text = sources.get(run.file)
    if text is None:
        text = next(iter(sources.values()), None)
    if text is None:
        return None
    try:
        return plan_of(text, run.file, load=partial(_load, sources))
    except LyraError:  # a source of an older version of the language
        return None


def _load(sources: Mapping[str, str], target: str, importer: str) -> Any:
    """An imported source among those that the run has kept."""
    beside = posixpath.join(posixpath.dirname(importer), target)
    for name in (target, f"{target}.vega", beside, f"{beside}.vega"):
        plain = posixpath.normpath(name)
        if plain in sources:
            return _node(plain, sources[plain]) if plain.endswith(NODE_FILES) else (plain, sources[plain])
    return None


def _node(name: str, text: str) -> Any:
    """A node that a program imports."""
    from lyra.vesper.runtime.faces import read_file

    return read_file(name, text)
