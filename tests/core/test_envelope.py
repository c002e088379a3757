"""An envelope keeps its own books and knows when to stop."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.codec import decode, encode
from lyra.core.envelope import Envelope, StageStatus, TerminalReason, Trust
from lyra.core.ids import Entropy
from lyra.errors import ConfigError
from tests.cases import cases

quick = settings(derandomize=True, deadline=None, max_examples=cases(150))


def make(**fields) -> Envelope:
    return Envelope.create(Entropy(1), now=100.0, **fields)


def test_a_new_envelope_has_the_defaults_of_the_reference():
    """Ids with their prefixes, an anonymous user, the first stage, the bounds 3, 10 and 21, five stages."""
    envelope = make(raw_input="hello")
    assert envelope.envelope_id.startswith("env_")
    assert envelope.request_id.startswith("req_")
    assert envelope.session_id.startswith("sess_")
    assert len(envelope.envelope_id) == 4 + 16
    assert (envelope.user_id, envelope.current_stage, envelope.trust) == ("anonymous", "start", "trusted")
    assert (envelope.max_iterations, envelope.max_llm_calls, envelope.max_agent_hops) == (3, 10, 21)
    assert (envelope.current_stage_number, envelope.max_stages) == (1, 5)
    assert (envelope.received_at, envelope.created_at, envelope.completed_at) == (100.0, 100.0, None)
    assert make().envelope_id == make().envelope_id  # the same entropy, the same id
    assert make(envelope_id="env_mine", received_at=5).envelope_id == "env_mine"


def test_every_field_of_the_reference_is_there():
    """The wire formats of the public ancestors lose nothing."""
    expected = """
    envelope_id request_id session_id user_id raw_input received_at outputs current_stage
    stage_order iteration max_iterations active_stages completed_stage_set failed_stages
    parallel_mode llm_call_count max_llm_calls tool_call_count agent_hop_count max_agent_hops
    tokens_in tokens_out max_input_tokens max_output_tokens terminal_reason terminated
    termination_reason interrupt_pending interrupt
    completed_stages current_stage_number max_stages all_goals remaining_goals
    goal_completion_status prior_plans loop_feedback processing_history errors created_at
    completed_at metadata trust trace_id span_id
    """
    assert set(expected.split()) == set(Envelope.__struct_fields__)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({}, None),
        ({"iteration": 2, "llm_call_count": 9, "agent_hop_count": 20}, None),
        ({"iteration": 3}, "max_iterations_exceeded"),
        ({"llm_call_count": 10}, "max_llm_calls_exceeded"),
        ({"agent_hop_count": 21}, "max_agent_hops_exceeded"),
        ({"iteration": 9, "llm_call_count": 99}, "max_iterations_exceeded"),
        ({"llm_call_count": 99, "agent_hop_count": 99}, "max_llm_calls_exceeded"),
    ],
)
def test_a_bound_is_reached_at_its_number(counts, reason):
    """`>=` stops; iterations are asked first, then model calls, then hops; what is left never reads below zero."""
    envelope = make(**counts)
    result = envelope.check_bounds()
    assert result.can_continue is (reason is None)
    assert result.terminal_reason == reason
    assert result.iterations_remaining == max(3 - envelope.iteration, 0)
    assert result.llm_calls_remaining == max(10 - envelope.llm_call_count, 0)
    assert result.agent_hops_remaining == max(21 - envelope.agent_hop_count, 0)
    assert envelope.check_bounds() == result


def test_an_ended_or_asking_envelope_does_not_go_on():
    """A terminated envelope keeps its reason; a pending interrupt holds it without one."""
    asking = make(interrupt_pending=True)
    assert asking.check_bounds().can_continue is False
    assert asking.check_bounds().terminal_reason is None
    envelope = make()
    envelope.terminate("USER_CANCELLED", now=101.0, message="stop")
    envelope.terminate("completed", now=102.0)
    assert envelope.check_bounds().terminal_reason is TerminalReason.USER_CANCELLED
    assert not envelope.check_bounds().can_continue
    assert (envelope.termination_reason, envelope.completed_at) == ("stop", 101.0)
    other = make()
    other.terminate(TerminalReason.COMPLETED, now=1.0)
    assert other.termination_reason == "completed"
    with pytest.raises(ConfigError):
        make().terminate("bored", now=1.0)


def test_stages_are_booked():
    """A start is a hop and a record; an end closes the record, keeps the output or the error, and counts calls."""
    envelope = make(stage_order=["plan", "write"])
    record = envelope.start_stage("plan", now=100.0, agent="planner")
    assert (record.stage_order, envelope.agent_hop_count, envelope.active_stages) == (1, 1, {"plan": True})
    envelope.complete_stage("plan", {"steps": 2}, now=100.25, agent="planner", llm_calls=3)
    record = envelope.processing_history[-1]
    assert (record.status, record.duration_ms, record.llm_calls) == (StageStatus.SUCCESS, 250, 3)
    assert envelope.outputs == {"plan": {"steps": 2}, "planner": {"steps": 2}}
    assert (envelope.completed_stage_set, envelope.active_stages, envelope.llm_call_count) == ({"plan": True}, {}, 3)
    envelope.start_stage("write", now=101.0)
    envelope.fail_stage("write", "no ink", now=102.0, llm_calls=1)
    failed = envelope.processing_history[-1]
    assert (failed.status, failed.error, failed.agent) == ("error", "no ink", "write")
    assert envelope.failed_stages == {"write": "no ink"}
    assert envelope.errors == [{"stage": "write", "agent": "write", "error": "no ink", "at": 102.0}]
    envelope.start_stage("write", now=103.0)
    assert envelope.failed_stages == {}
    envelope.complete_stage("write", now=104.0)
    assert [entry.status for entry in envelope.processing_history] == ["success", "error", "success"]
    envelope.complete_stage("unknown", {"a": 1}, now=104.0)  # a report without a start is kept, without a record
    assert len(envelope.processing_history) == 3
    assert envelope.start_stage("elsewhere", now=105.0).stage_order == 0


def test_a_stage_that_is_no_longer_needed_is_skipped():
    """Its record ends as skipped, under the name of its agent; it has no output and no error."""
    envelope = make(stage_order=["plan", "write"])
    envelope.start_stage("plan", now=100.0)
    envelope.start_stage("write", now=100.0, agent="writer")
    envelope.skip_stage("write", now=102.0, agent="writer")
    assert envelope.active_stages == {"plan": True}
    assert [(record.agent, record.status) for record in envelope.processing_history] == [
        ("plan", "running"),
        ("writer", "skipped"),
    ]
    assert (envelope.processing_history[-1].completed_at, envelope.outputs, envelope.errors) == (102.0, {}, [])


def test_a_failure_is_that_of_its_agent():
    envelope = make()
    envelope.start_stage("write", now=100.0, agent="writer")
    envelope.fail_stage("write", "no ink", now=101.0, agent="writer")
    (record,) = envelope.processing_history
    assert (record.agent, record.status, record.error) == ("writer", "error", "no ink")
    assert envelope.errors[0]["agent"] == "writer"


def test_a_bound_of_its_own_and_an_end_that_came_with_it():
    """Fewer hops than usual stop it sooner; an envelope that was ended elsewhere does not go on here."""
    few = make(max_agent_hops=1)
    few.start_stage("a", now=1.0)
    assert few.check_bounds().terminal_reason is TerminalReason.MAX_AGENT_HOPS_EXCEEDED
    ended = make(terminated=True)
    assert not ended.check_bounds().can_continue
    ended.terminate("completed", now=2.0)
    assert ended.terminal_reason is None


def test_goals_are_struck_off():
    """False when no goal remains or the stages are used up."""
    envelope = make(all_goals=["a", "b", "c"], remaining_goals=["a", "b", "c"], max_stages=2)
    assert envelope.advance_goals(["a"]) is True
    assert (envelope.remaining_goals, envelope.current_stage_number) == (["b", "c"], 2)
    assert envelope.advance_goals({"b": "satisfied", "c": "partial"}) is False
    assert envelope.goal_completion_status == {"a": "satisfied", "b": "satisfied", "c": "partial"}
    assert envelope.completed_stages[0] == {"stage_number": 1, "satisfied_goals": ["a"]}
    done = make(remaining_goals=["a"])
    assert done.advance_goals(["a"]) is False
    assert done.current_stage_number == 1


def test_a_clone_shares_nothing():
    """Parallel branches work on deep copies, under the same id or a new one."""
    envelope = make(outputs={"a": {"b": [1]}})
    envelope.start_stage("a", now=1.0)
    twin = envelope.clone()
    assert make(processing_history=envelope.processing_history).processing_history == envelope.processing_history
    assert twin == envelope
    twin.outputs["a"]["b"].append(2)
    twin.complete_stage("a", now=2.0)
    assert envelope.outputs == {"a": {"b": [1]}}
    assert envelope.processing_history[0].status is StageStatus.RUNNING
    assert envelope.clone("env_new").envelope_id == "env_new"


HOLDING: dict[str, Any] = {
    "outputs": {"a": {"b": [1]}},
    "metadata": {"state": {"log": [1]}},
    "stage_order": ["a"],
    "active_stages": {"a": True},
    "completed_stage_set": {"b": True},
    "failed_stages": {"c": "no"},
    "interrupt": {"kind": "clarification", "data": [1]},
    "completed_stages": [{"stage_number": 1, "satisfied_goals": ["x"]}],
    "all_goals": ["x"],
    "remaining_goals": ["y"],
    "goal_completion_status": {"x": "satisfied"},
    "prior_plans": [{"steps": [1]}],
    "loop_feedback": ["again"],
    "processing_history": [{"agent": "a"}],
    "errors": [{"stage": "c", "error": "no", "more": [1]}],
}


def test_a_copy_shares_nothing():
    """Neither a container nor its content is shared, for every field that holds something that can be changed."""
    for envelope in (make(**HOLDING), make()):
        before = envelope.to_data()
        copied = envelope.copy()
        assert copied == envelope
        for name in Envelope.__struct_fields__:
            held = getattr(copied, name)
            if isinstance(held, (dict, list)):
                assert held is not getattr(envelope, name), name
                _spoil(held)
        assert envelope.to_data() == before
    assert {
        name for name in Envelope.__struct_fields__ if isinstance(getattr(make(**HOLDING), name), (dict, list))
    } == {*HOLDING}


def _spoil(value):
    for item in list(value.values() if isinstance(value, dict) else value):
        if isinstance(item, (dict, list)):
            _spoil(item)
    value.clear()


def test_a_snapshot_does_not_see_what_comes_later():
    """All the books, before and after each entry."""
    envelope = make(stage_order=["a", "b"], remaining_goals=["x", "y"], all_goals=["x", "y"])
    shots = []

    def shot():
        shots.append((envelope.snapshot(), envelope.to_data()))

    for act in (
        lambda: envelope.start_stage("a", now=1.0),
        lambda: envelope.complete_stage("a", {"k": 1}, now=2.0, llm_calls=1),
        lambda: envelope.start_stage("b", now=3.0),
        lambda: envelope.fail_stage("b", "no", now=4.0),
        lambda: envelope.start_stage("b", now=5.0),
        lambda: envelope.advance_goals(["x"]),
        lambda: envelope.terminate("completed", now=6.0),
    ):
        shot()
        act()
    shot()
    assert [taken.to_data() for taken, _ in shots] == [then for _, then in shots]


def test_an_envelope_survives_being_saved():
    """Through plain data, and through a journal's bytes."""
    envelope = make(trust="untrusted", metadata={"deep": [{"x": b"raw"}]}, trace_id="t", span_id="s")
    envelope.start_stage("a", now=1.0)
    envelope.terminate("completed", now=2.0)
    assert Envelope.from_data(envelope.to_data()) == envelope
    assert Envelope.from_data(decode(encode(envelope))) == envelope
    assert Envelope.from_data({**envelope.to_data(), "trust": "UNTRUSTED"}).trust is Trust.UNTRUSTED


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"iteration": "3"}, "iteration"),
        ({"outputs": {"a": 5}}, "outputs"),
        ({"trust": "maybe"}, "trust"),
        ({"terminal_reason": "bored"}, "terminal_reason"),
        ({"stage_order": [1]}, "stage_order"),
        ({"processing_history": [{"agent": 5}]}, "processing_history"),
        ({"envelope_id": None}, "envelope_id"),
        ({"itteration": 3}, "itteration"),
    ],
)
def test_hostile_data_is_a_config_error_that_names_the_field(change, field):
    """What does not fit is said with its place."""
    with pytest.raises(ConfigError) as caught:
        Envelope.from_data({**make().to_data(), **change})
    assert field in caught.value.fields["key"]


def test_what_is_no_envelope_is_a_config_error():
    """Not a mapping, no ids, bottomless nesting."""
    deep: dict[str, object] = {}
    for _ in range(5_000):
        deep = {"x": deep}
    wrongs: tuple[Any, ...] = (None, [], {}, {**make().to_data(), "metadata": deep})
    for wrong in wrongs:
        with pytest.raises(ConfigError):
            Envelope.from_data(wrong)
    with pytest.raises(ConfigError):
        make(unknown=1)


@quick
@given(
    st.dictionaries(
        st.sampled_from(Envelope.__struct_fields__),
        st.none()
        | st.integers()
        | st.text(max_size=5)
        | st.lists(st.integers(), max_size=2)
        | st.dictionaries(st.text(), st.text()),
        max_size=4,
    )
)
def test_any_mapping_is_an_envelope_or_a_config_error(change):
    """Nothing else is raised."""
    with contextlib.suppress(ConfigError):
        Envelope.from_data({**make().to_data(), **change})


def test_reasons_have_an_outcome():
    """completed, bounds_exceeded or failed; words in capitals are the same words."""
    outcomes = {reason.value: reason.outcome() for reason in TerminalReason}
    assert outcomes["completed"] == outcomes["break_requested"] == "completed"
    assert {word for word, outcome in outcomes.items() if outcome == "bounds_exceeded"} == {
        "max_iterations_exceeded",
        "max_llm_calls_exceeded",
        "max_agent_hops_exceeded",
        "max_input_tokens_exceeded",
        "max_output_tokens_exceeded",
        "max_loop_exceeded",
        "max_stage_visits_exceeded",
        "edge_limit_exceeded",
    }
    assert outcomes["policy_violation"] == outcomes["user_cancelled"] == "failed"
    assert TerminalReason("COMPLETED") is TerminalReason.COMPLETED
    assert str(TerminalReason.COMPLETED) == "completed"
    with pytest.raises(ValueError, match="bored"):
        TerminalReason("bored")
    number: Any = 5
    with pytest.raises(ValueError, match="5"):
        TerminalReason(number)


def test_a_run_took_as_long_as_its_agent_says():
    """`duration_ms` is in the record of the run; without it, the time since the start is."""
    envelope = make(stage_order=["plan", "write"])
    envelope.start_stage("plan", now=100.0)
    envelope.complete_stage("plan", now=101.0, duration_ms=40)
    envelope.start_stage("write", now=101.0)
    envelope.fail_stage("write", "no ink", now=103.0, llm_calls=2, duration_ms=70)
    envelope.start_stage("write", now=103.0)
    envelope.fail_stage("write", "no ink", now=103.5)
    assert [record.duration_ms for record in envelope.processing_history] == [40, 70, 500]


def test_calls_of_a_failed_run_count():
    """In its record and against the bound."""
    envelope = make(max_llm_calls=2)
    envelope.start_stage("write", now=101.0)
    envelope.fail_stage("write", "no ink", now=102.0, llm_calls=2)
    assert envelope.processing_history[-1].llm_calls == 2
    assert envelope.find_reached_bound() is TerminalReason.MAX_LLM_CALLS_EXCEEDED
