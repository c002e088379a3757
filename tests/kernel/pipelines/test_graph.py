"""The picture of a pipeline: valid, complete, the same each time."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from lyra.kernel.pipelines.declaration import PipelineConfig
from lyra.kernel.pipelines.files import load_file
from lyra.kernel.pipelines.schema import Edge, edges, svg

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipeline.toml"


def texts(picture):
    return {"".join(element.itertext()) for element in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")}


def test_every_stage_and_edge_is_drawn():
    """Boxes, diamonds and forks by their names; one path for each edge."""
    config = load_file(EXAMPLE)
    picture = svg(config)
    assert {stage.name for stage in config.agents} | {"end"} <= texts(picture)
    assert picture.count('<path class="edge') == len(edges(config))
    assert 'class="node gate"' in picture
    assert 'class="node fork"' in picture
    assert svg(config) == picture


def test_edges_are_what_is_declared():
    """Rules with their text, errors, loops; branches meet at the fork's next stage."""
    config = PipelineConfig.of(
        {
            "name": "p",
            "agents": [
                {
                    "name": "a",
                    "routing_rules": [{"condition": "ok", "value": True, "target": "f"}],
                    "default_next": "a",
                    "max_visits": 2,
                },
                {"name": "f", "node_kind": "fork", "branches": ["b", "c"], "default_next": "d", "join_strategy": "any"},
                {"name": "b"},
                {"name": "c", "error_next": "end"},
                {"name": "d", "default_next": "confirmation"},
            ],
        }
    )
    assert edges(config) == [
        Edge("a", "f", "ok = true", "rule"),
        Edge("a", "a"),
        Edge("f", "b", "", "fork"),
        Edge("f", "c", "", "fork"),
        Edge("b", "d", "join any", "join"),
        Edge("c", "d", "join any", "join"),
        Edge("c", "d", "error", "join"),
        Edge("d", "confirmation"),
    ]
    ET.fromstring(svg(config))


def test_an_edge_shows_its_condition_in_words():
    """Also one that is made of others: not, and, or."""
    ok = {"op": "eq", "field": {"scope": "current", "key": "ok"}, "value": True}
    late = {"op": "exists", "field": {"scope": "state", "key": "late"}}
    rule = {"expr": {"op": "and", "exprs": [{"op": "not", "expr": ok}, late]}, "target": "b"}
    config = PipelineConfig.of({"name": "p", "agents": [{"name": "a", "routing_rules": [rule]}, {"name": "b"}]})
    assert edges(config)[0] == Edge("a", "b", "not (ok = true) and state.late exists", "rule")


def test_parallel_pipelines_show_their_requirements():
    """requires and after are the edges."""
    config = PipelineConfig.of(
        {
            "name": "p",
            "run_mode": "parallel",
            "agents": [{"name": "a"}, {"name": "b", "requires": ["a"]}, {"name": "c", "after": ["a"]}],
        }
    )
    assert edges(config) == [Edge("a", "b", "", "requires"), Edge("a", "c", "after", "after")]
    ET.fromstring(svg(config))


def test_names_cannot_break_the_picture():
    """Whatever a stage or a value is called, it is text."""
    name = "<script>\"&'</script>"
    rule = {"expr": {"op": "contains", "field": {"key": "<&>"}, "value": "]]>" * 40}, "target": "end"}
    config = PipelineConfig.of({"name": name, "agents": [{"name": name, "routing_rules": [rule]}]})
    picture = svg(config)
    assert name in texts(picture)
    assert "<script>" not in picture
