"""Envelopes without a pipeline: kept, merged, owned, and there again after a crash."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.core.envelope import Envelope
from lyra.errors import ConfigError, Denied, InvalidTransition, NameTaken, NoSuchEnvelope, Overloaded
from lyra.kernel import Kernel
from lyra.kernel.workers import envelope_table
from tests.kernel.conftest import Crash, run


def test_an_envelope_is_made_of_fields_of_text_or_as_it_is(target):
    """Ids that are not given are drawn; the caller's are taken; a second of the same id is refused."""

    async def main():
        async with Kernel(target) as kernel:
            first = kernel.create_envelope({"raw_input": "tea", "metadata": {"n": 1}}, user_id="ann", session_id="s")
            assert (first.raw_input, first.user_id, first.session_id) == ("tea", "ann", "s")
            assert first.envelope_id.startswith("env_")
            assert kernel.create_envelope("tea", request_id="r").request_id == "r"
            given = Envelope(envelope_id="mine", request_id="r", session_id="s", user_id="ann")
            assert kernel.create_envelope(given, user_id="ann") == given
            with pytest.raises(NameTaken):
                kernel.create_envelope(given)
            with pytest.raises(Denied):
                kernel.create_envelope({"user_id": "bob"}, user_id="ann")
            with pytest.raises(ConfigError):
                kernel.create_envelope({"raw_inptu": "tea"})
            assert [kept.user_id for kept in kernel.envelopes.list_envelopes(user_id="ann")] == ["ann", "ann"]
            assert len(kernel.envelopes.list_envelopes()) == 3
            first.outputs["x"] = {}
            assert kernel.envelopes.get(first.envelope_id).outputs == {}

    run(main())


def test_an_update_merges(target, clock):
    """Fields that are not given keep their values, mappings are merged by key, an end has a time."""

    async def main():
        async with Kernel(target, clock) as kernel:
            first = kernel.create_envelope(
                {"raw_input": "tea", "outputs": {"a": {"n": 1}, "b": {}}, "metadata": {"k": 1}}
            )
            changes = {"envelope_id": first.envelope_id, "outputs": {"a": {"m": 2}, "c": {}}, "iteration": 1}
            second = kernel.update_envelope(changes)
            assert second.outputs == {"a": {"m": 2}, "b": {}, "c": {}}
            assert (second.raw_input, second.metadata, second.iteration) == ("tea", {"k": 1}, 1)
            assert kernel.update_envelope(changes) == second
            assert kernel.update_envelope({"envelope_id": first.envelope_id}) == second
            clock.advance(5)
            ended = kernel.update_envelope(
                {"envelope_id": first.envelope_id, "terminated": True, "terminal_reason": "completed"}
            )
            assert (ended.terminal_reason, ended.completed_at) == ("completed", clock.now())
            assert kernel.update_envelope({"envelope_id": first.envelope_id, "terminated": True}) == ended
            with pytest.raises(InvalidTransition):
                kernel.update_envelope({"envelope_id": first.envelope_id, "terminated": False})

    run(main())


def test_a_wrong_update_changes_nothing(target):
    """Unknown envelopes and fields, values that do not fit, other ids, another owner."""

    async def main():
        async with Kernel(target) as kernel:
            first = kernel.create_envelope({"raw_input": "tea"}, user_id="ann")
            known = {"envelope_id": first.envelope_id}
            wrong: list[tuple[Any, type[Exception]]] = [
                ({}, NoSuchEnvelope),
                ({"envelope_id": "env_x"}, NoSuchEnvelope),
                ({"envelope_id": 5}, NoSuchEnvelope),
                ({**known, "raw_inptu": "x"}, ConfigError),
                ({**known, "iteration": "many"}, ConfigError),
                ({**known, "outputs": {"a": 5}}, ConfigError),
                ({**known, "user_id": "bob"}, ConfigError),
                ({**known, "request_id": "other"}, ConfigError),
                ("text", ConfigError),
            ]
            for changes, error in wrong:
                with pytest.raises(error):
                    kernel.update_envelope(changes)
            with pytest.raises(Denied):
                kernel.update_envelope({**known, "raw_input": "coffee"}, user_id="bob")
            assert kernel.envelopes.get(first.envelope_id, user_id="ann") == first
            anonymous = kernel.create_envelope({})
            with pytest.raises(Denied):
                kernel.envelopes.get(anonymous.envelope_id, user_id="ann")

    run(main())


def test_a_clone_goes_its_own_way(target):
    """A new id, the same work; the owner's alone; of a known envelope only."""

    async def main():
        async with Kernel(target) as kernel:
            first = kernel.create_envelope({"raw_input": "tea", "outputs": {"a": {"n": 1}}}, user_id="ann")
            for named in (first, first.envelope_id, {"envelope_id": first.envelope_id}):
                copy = kernel.clone_envelope(named, user_id="ann")
                assert copy.envelope_id != first.envelope_id
                assert {**copy.to_data(), "envelope_id": ""} == {**first.to_data(), "envelope_id": ""}
            kernel.update_envelope({"envelope_id": copy.envelope_id, "outputs": {"a": {"n": 2}}})
            assert kernel.envelopes.get(first.envelope_id).outputs == {"a": {"n": 1}}
            with pytest.raises(Denied):
                kernel.clone_envelope(first, user_id="bob")
            with pytest.raises(NoSuchEnvelope):
                kernel.clone_envelope("env_x")

    run(main())


def test_bounds(target):
    """Of an envelope that is kept, by its id, and of one that is given whole."""

    async def main():
        async with Kernel(target) as kernel:
            fields = {"llm_call_count": 4, "tokens_in": 70, "max_input_tokens": 100, "tokens_out": 3}
            first = kernel.create_envelope(fields, user_id="ann")
            left = kernel.check_bounds(first.envelope_id, user_id="ann")
            assert (left.can_continue, left.llm_calls_remaining, left.tokens_in_remaining) == (True, 6, 30)
            assert left.tokens_out_remaining is None
            given = kernel.check_bounds({**fields, "tokens_in": 100, "max_output_tokens": 1})
            assert (given.can_continue, given.terminal_reason) == (False, "max_input_tokens_exceeded")
            assert (given.tokens_in_remaining, given.tokens_out_remaining) == (0, 0)
            with pytest.raises(Denied):
                kernel.check_bounds(first, user_id="bob")
            with pytest.raises(NoSuchEnvelope):
                kernel.check_bounds("env_x")

    run(main())


def test_envelopes_survive_a_crash_and_a_snapshot(path):
    """After kill -9 from the journal, and after an orderly end from a snapshot."""

    async def first_life():
        async with Crash(Kernel(path)) as kernel:
            first = kernel.create_envelope({"raw_input": "tea"}, user_id="ann")
            kernel.create_envelope({"envelope_id": "gone"})
            kernel.envelopes.forget("gone")
            updated = kernel.update_envelope({"envelope_id": first.envelope_id, "outputs": {"a": {"n": 1}}})
            await kernel.durable()
            return updated

    async def later_life():
        async with Kernel(path) as kernel:
            return kernel.envelopes.list_envelopes()

    updated = run(first_life())
    assert run(later_life()) == [updated]
    assert run(later_life()) == [updated]


def test_old_ones_are_forgotten_and_there_is_a_most(clock, monkeypatch):
    """A day after the last change, by a round of cleaning up; one more than the most is refused."""
    monkeypatch.setattr(envelope_table, "ENVELOPES_MAX", 2)

    async def main():
        async with Kernel("memory", clock) as kernel:
            old, fresh = kernel.create_envelope({}), kernel.create_envelope({})
            with pytest.raises(Overloaded):
                kernel.create_envelope({})
            clock.advance(20 * 3600)
            kernel.update_envelope({"envelope_id": fresh.envelope_id, "iteration": 1})
            clock.advance(4 * 3600)
            assert kernel.cleanup()["envelopes"] == 1
            assert [kept.envelope_id for kept in kernel.envelopes.list_envelopes()] == [fresh.envelope_id]
            with pytest.raises(NoSuchEnvelope):
                kernel.envelopes.get(old.envelope_id)

    run(main())
