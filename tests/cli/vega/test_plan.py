"""`vega plan`, `vega run --sequential`, and what a trace says of calls made ahead of their turn."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from tests.cli.vega_runner import Vega, vega

__all__ = ["vega"]

REVIEWS = """\
agent Reviewer { model "sim/script" retry { max_attempts 1 } }
agent Summarizer { model "sim/script" }
let reviewer = spawn Reviewer;
let summarizer = spawn Summarizer;
let review1 = reviewer <- "one";
let review2 = reviewer <- "two";
let summary = summarizer <- review1 + review2;
print(summary);
"""
SCRIPT = """\
price: {input_usd_per_mtok: 100, output_usd_per_mtok: 100}
replies:
  - {user: ^bad, first_s: 0.4, error: {kind: bad_request, message: refused}}
  - {text: "<{user}>"}
"""


def test_a_plan_says_what_overlaps_and_why_the_rest_does_not(vega: Vega):
    vega.write("reviews.vega", REVIEWS)
    done = vega("plan", "reviews.vega")
    assert done.returncode == 0
    assert 'reviews.vega:5:15  reviewer <- "one"  (Reviewer)' in done.stdout
    assert "it needs the answer of line 5 and 6" in done.stdout
    plan = vega.json("plan", "reviews.vega")
    assert [[call["line"] for call in group["calls"]] for group in plan["groups"]] == [[5, 6]]
    assert [(part["line"], part["why"]) for part in plan["alone"]] == [(7, "it needs the answer of line 5 and 6")]


def test_a_plan_as_a_graph_and_a_picture(vega: Vega):
    vega.write("reviews.vega", REVIEWS)
    assert vega("plan", "reviews.vega", "--dot").stdout.startswith("digraph plan {")
    assert vega("plan", "reviews.vega", "--svg", "plan.svg") == (0, "", "")
    assert ElementTree.parse(vega.folder / "plan.svg").getroot().tag.endswith("svg")
    assert vega("plan", "reviews.vega", "--svg", "no/such/folder.svg").returncode == 2


def test_a_plan_is_asked_for_in_one_way_and_of_a_source(vega: Vega):
    vega.write("reviews.vega", REVIEWS)
    assert "give one of them" in vega("plan", "reviews.vega", "--json", "--dot").stderr
    assert vega("compile", "reviews.vega").returncode == 0
    assert "reviews.vgb is compiled" in vega("plan", "reviews.vgb").stderr


def test_a_picture_of_no_calls_says_so(vega: Vega):
    vega.write("none.vega", 'print("hi");')
    assert "none.vega asks no agent" in vega("plan", "none.vega", "--svg", "-").stdout


def test_a_plan_of_a_wrong_program_says_what_is_wrong(vega: Vega):
    vega.write("wrong.vega", "let x = nothing;\n")
    done = vega("plan", "wrong.vega")
    assert done.returncode == 2
    assert "wrong.vega:1:9: error" in done.stderr


def test_sequential_makes_every_call_in_its_turn(vega: Vega):
    """A failure in front of the second call: only with overlap is the second one made at all, as speculative."""
    vega.write("script.yaml", SCRIPT)
    vega.write("bad.vega", REVIEWS.replace('"one"', '"bad"'))
    flags = ("--model", "sim/script:script.yaml", "--trace")
    done = vega("run", "bad.vega", *flags, "--sequential")
    assert done.returncode == 1
    assert [record["status"] for record in records(done.stderr)] == ["bad_request"]
    done = vega("run", "bad.vega", *flags)
    assert done.returncode == 1
    assert [record["status"] for record in records(done.stderr)] == ["bad_request", "speculative"]
    told = vega.json("run", "bad.vega", "--model", "sim/script:script.yaml", code=1)
    assert told["speculative_usd"] > 0
    assert told["speculative_calls"] == 1
    line_by_line = vega.json("run", "bad.vega", "--model", "sim/script:script.yaml", "--sequential", code=1)
    assert (line_by_line["speculative_calls"], line_by_line["speculative_usd"]) == (0, 0)
    assert (told["calls"], told["cost_usd"]) == (line_by_line["calls"], line_by_line["cost_usd"]) == (1, 0)


def test_taken_calls_are_traced_once(vega: Vega):
    vega.write("script.yaml", SCRIPT)
    vega.write("reviews.vega", REVIEWS)
    done = vega("run", "reviews.vega", "--model", "sim/script:script.yaml", "--trace")
    assert done.stdout == "<<one><two>>\n"
    assert [record["status"] for record in records(done.stderr)] == ["ok", "ok", "ok"]


def records(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
