"""Declarations: what a pipeline may say, and every mistake with its path."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.errors import ConfigError
from lyra.kernel.pipelines.check import problems
from lyra.kernel.pipelines.declaration import AgentConfig, PipelineConfig
from lyra.kernel.pipelines.routing import PIPELINE_KEYS, STAGE_KEYS
from lyra.kernel.pipelines.schema import json_schema
from tests.cases import cases, each

GOOD = {
    "name": "review",
    "agents": [
        {
            "name": "draft",
            "has_llm": True,
            "model_role": "writer",
            "routing_rules": [{"condition": "ok", "value": True, "target": "end"}],
            "default_next": "check",
        },
        {"name": "check", "default_next": "draft", "error_next": "end", "max_visits": 3},
    ],
    "edge_limits": [{"from": "check", "to": "draft", "max_count": 2}],
    "state_schema": {"log": "append"},
}


@pytest.mark.parametrize(
    ("source_key", "target_key"), [("from", "to"), ("from_stage", "to_stage"), ("source", "target")]
)
def test_an_edge_limit_is_written_in_any_of_three_ways(source_key, target_key):
    """As people write it, as the wire has it, and as its fields are called."""
    config = PipelineConfig.of(changed(edge_limits=[{source_key: "check", target_key: "draft", "max_count": 2}]))
    assert config.most_taken == {("check", "draft"): 2}
    with pytest.raises(ConfigError, match="no stage"):
        PipelineConfig.of(changed(edge_limits=[{source_key: "check", target_key: "x", "max_count": 2}]))
    if source_key != "from":
        with pytest.raises(ConfigError, match="once"):
            PipelineConfig.of(
                changed(edge_limits=[{source_key: "check", "from": "x", target_key: "draft", "max_count": 2}])
            )


def changed(**settings):
    return {**GOOD, **settings}


def with_stage(**settings):
    return {"name": "p", "agents": [{"name": "a"}, {"name": "b", **settings}]}


def test_a_declaration_survives_the_way_through_plain_data():
    """Object, plain data and object again are the same; the object is accepted where a mapping is."""
    config = PipelineConfig.of(GOOD)
    assert PipelineConfig.of(config.to_data()) == config == PipelineConfig.of(config)
    assert config.stage_order == ["draft", "check"]
    assert config.edge_limits[0].max_count == 2


def test_stages_are_sorted_by_their_order():
    """stage_order first, then the order written."""
    config = PipelineConfig.of(
        {"name": "p", "agents": [{"name": "c", "stage_order": 2}, {"name": "a"}, {"name": "b", "stage_order": 1}]}
    )
    assert config.stage_order == ["a", "b", "c"]


def test_words_may_be_written_in_capitals_and_keys_by_their_other_names():
    """`stages`, `routing`, `run_mode`, and PARALLEL."""
    config = PipelineConfig.of(
        {
            "name": "p",
            "run_mode": "PARALLEL",
            "stages": [{"name": "a", "node_kind": "GATE", "routing": [{"target": "end"}]}],
        }
    )
    assert (config.default_run_mode, config.agents[0].node_kind) == ("parallel", "gate")


@each(
    [
        ([], (), "a mapping"),
        ({"agents": [{"name": "a"}]}, (), "needs a name"),
        ({"name": "p"}, (), "needs agents"),
        ({"name": "p", "agents": []}, ("agents",), "at least one"),
        ({"name": "p", "agents": [{"name": "a"}], "stages": [{"name": "b"}]}, ("agents",), "stages or agents"),
        (
            {
                "name": "p",
                "default_run_mode": "parallel",
                "agents": [{"name": "a"}, {"name": "b", "requires": ["c"]}, {"name": "c", "after": ["a", "b"]}],
            },
            ("agents", 1, "requires"),
            "wait for one another: b, c",
        ),
        ({"name": "p", "agents": ["a"]}, ("agents", 0), "a mapping"),
        (changed(max_iteration=1), ("max_iteration",), "no setting"),
        (changed(max_iterations=0), ("max_iterations",), "at least 1"),
        (changed(max_llm_calls=-1), ("max_llm_calls",), "at least 1"),
        (changed(max_agent_hops=True), ("max_agent_hops",), "whole number"),
        (changed(default_run_mode="paralel"), ("default_run_mode",), "one of"),
        (changed(state_schema={"a": "add"}), ("state_schema", "a"), "merged by"),
        (
            changed(edge_limits=[{"from": "x", "to": "draft", "max_count": 1}]),
            ("edge_limits", 0, "from"),
            "no stage 'x'",
        ),
        (changed(edge_limits=[{"from": "check", "to": "draft"}]), ("edge_limits", 0, "max_count"), "max_count"),
        (changed(clarification_resume_stage="x"), ("clarification_resume_stage",), "no stage"),
        (with_stage(name="a"), ("agents", 1, "name"), "already"),
        (with_stage(name="end"), ("agents", 1, "name"), "no stage may be called"),
        (with_stage(name=""), ("agents", 1, "name"), "needs a name"),
        (with_stage(default_next="c"), ("agents", 1, "default_next"), "no stage 'c'"),
        (with_stage(error_next="c"), ("agents", 1, "error_next"), "no stage 'c'"),
        (with_stage(default_next="b"), ("agents", 1, "default_next"), "max_visits"),
        (with_stage(routing_rules=[{"target": "x"}]), ("agents", 1, "routing_rules", 0, "target"), "no stage 'x'"),
        (
            with_stage(routing_rules=[{"condition": "x", "target": "a"}]),
            ("agents", 1, "routing_rules", 0),
            "needs a value",
        ),
        (
            with_stage(routing_rules=[{"target": "a", "expr": {"op": "x"}}]),
            ("agents", 1, "routing_rules", 0, "expr", "op"),
            "no op",
        ),
        (with_stage(requires=["b"]), ("agents", 1, "requires", 0), "itself"),
        (with_stage(after=["c"]), ("agents", 1, "after", 0), "no stage 'c'"),
        (with_stage(has_llm=True), ("agents", 1, "has_llm"), "model_role"),
        (with_stage(output_key="a"), ("agents", 1, "output_key"), "another stage's"),
        (with_stage(max_visits=0), ("agents", 1, "max_visits"), "at least 1"),
        (with_stage(timeout_seconds=0), ("agents", 1, "timeout_seconds"), "above 0"),
        (with_stage(node_kind="fork"), ("agents", 1, "node_kind"), "needs branches"),
        (with_stage(branches=["a"]), ("agents", 1, "branches"), "no fork"),
        (with_stage(retry_policy={"max_retires": 1}), ("agents", 1, "retry_policy", "max_retires"), "no setting"),
        (with_stage(allowed_tools="x"), ("agents", 1, "allowed_tools"), "a list of texts"),
        (with_stage(output_schema={"tpye": "object"}), ("agents", 1, "output_schema", "tpye"), "no keyword"),
        (with_stage(output_schema="object"), ("agents", 1, "output_schema"), "a mapping"),
        (with_stage(max_context_tokens=0), ("agents", 1, "max_context_tokens"), "at least 1"),
        (with_stage(context_overflow="drop"), ("agents", 1, "context_overflow"), "one of fail, truncate_oldest"),
        (with_stage(context_overflow="truncate_oldest"), ("agents", 1, "context_overflow"), "no max_context_tokens"),
        (with_stage(generation=[]), ("agents", 1, "generation"), "a mapping"),
        (with_stage(generation={"topp": 1}), ("agents", 1, "generation", "topp"), "no setting"),
        (with_stage(generation={"stop": "x"}), ("agents", 1, "generation", "stop"), "a list of texts"),
        (with_stage(generation={"top_p": -1}), ("agents", 1, "generation", "top_p"), "at least 0"),
        (with_stage(generation={"top_k": 1.5}), ("agents", 1, "generation", "top_k"), "whole number"),
        (with_stage(generation={"seed": "x"}), ("agents", 1, "generation", "seed"), "whole number"),
        (with_stage(token_stream="all"), ("agents", 1, "token_stream"), "one of off"),
    ]
)
def test_mistakes(declared, path, words):
    """Each with its path and its sentence; `of` raises it."""
    mistakes = list(problems(declared))
    assert any(mistake.path == path and words in mistake.message for mistake in mistakes), mistakes
    with pytest.raises(ConfigError):
        PipelineConfig.of(declared)


def test_all_mistakes_are_found_at_once():
    """The error names the first and lists the others."""
    with pytest.raises(ConfigError) as caught:
        PipelineConfig.of({"name": "p", "agents": [{"name": "a", "default_next": "x", "error_next": "y"}]})
    assert caught.value.key == "agents[0].default_next"
    assert caught.value.also == ["agents[0].error_next: there is no stage 'y'"]


def test_near_names_are_offered():
    """A slip of the finger gets its hint, in keys, words and targets."""
    hints = [
        problem.hint
        for problem in problems(
            {"name": "p", "agents": [{"name": "draft", "defualt_next": "end", "error_next": "draf"}]}
        )
    ]
    assert hints == ["did you mean 'default_next'?", "did you mean 'draft'?"]


def test_the_tables_the_objects_and_the_schema_know_the_same_keys():
    """No key is known to one and not to another."""
    assert list(STAGE_KEYS) == list(AgentConfig.__struct_fields__)
    assert list(PIPELINE_KEYS) == list(PipelineConfig.__struct_fields__)
    schema = json_schema()
    assert set(schema["properties"]) == {*PIPELINE_KEYS, "stages", "run_mode", "edge_limit"}
    assert set(schema["$defs"]["stage"]["properties"]) == {*STAGE_KEYS, "routing"}


def test_the_defaults_in_the_tables_are_the_objects():
    """What the reference says is what happens."""
    config = PipelineConfig.of({"name": "p", "agents": [{"name": "a"}]})
    for name, key in PIPELINE_KEYS.items():
        if name not in ("name", "agents"):
            assert getattr(config, name) == key.default, name
    for name, key in STAGE_KEYS.items():
        if name != "name":
            assert getattr(config.agents[0], name) == key.default, name


_junk = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.sampled_from(["a", "end", "", "fork", "all"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*STAGE_KEYS, *PIPELINE_KEYS, "target", "expr", "op", "from", "x"]), inner, max_size=6
        )
    ),
    max_leaves=20,
)


@settings(max_examples=cases(150), deadline=None)
@given(_junk)
def test_any_value_is_a_pipeline_or_a_config_error(value):
    """Nothing else is ever raised."""
    declared = {"name": "p", "agents": [{"name": "a"}], **value} if isinstance(value, dict) else value
    try:
        config = PipelineConfig.of(declared)
    except ConfigError:
        return
    assert PipelineConfig.of(config.to_data()) == config
