"""The picture of a Vega plan for the page of a run."""

from __future__ import annotations

from pathlib import Path

from lyra.cli.main import vega
from lyra.server.dashboard.pages.run import plan_of_run, plan_picture
from lyra.vega.compiler.compiler import plan_of
from lyra.vega.durable.runs import Runs
from tests.server.dashboard.support import elements, texts

SOURCE = """\
agent Writer { model "sim/echo" }

fn main() {
    let writer = spawn Writer;
    let other = spawn Writer;
    let first = writer <- "a </title><script>alert(1)</script>";
    let second = other <- "b";
    print(first + second);
}
"""


def test_the_plan_is_drawn_and_said_in_words() -> None:
    html = plan_picture(plan_of(SOURCE, "two.vega"))
    assert "<script>" not in html
    assert "<style" not in html
    assert elements(html, "svg")[0]["role"] == "img"
    assert "side by side in main" in texts(html)
    assert "two.vega:6" in texts(html)


def test_the_plan_of_a_run_is_that_of_its_kept_sources(tmp_path: Path) -> None:
    """The source is read from the run, not from the file, which may have changed since."""
    file, store = tmp_path / "two.vega", tmp_path / "run.db"
    file.write_text(SOURCE)
    assert vega(["run", str(file), "--db", str(store)]) == 0
    file.write_text("print(1);")
    with Runs(store) as runs:
        (run,) = list(runs)
        plan = plan_of_run(run)
    assert plan is not None
    assert len(plan.calls) == 2
