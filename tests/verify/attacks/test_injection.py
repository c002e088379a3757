"""Injection: a model that obeys every text does no harm, and the suite that says so would see it if it did."""

from __future__ import annotations

import base64

import pytest

from lyra.agents.turn import admission
from lyra.agents.turn.admission import Admitted
from lyra.kernel.shared.taint import Taint
from lyra.sandbox.bubblewrap import find_program
from tests.cases import ALL
from verify.attacks.injection import Attack, attacks, benign, run
from verify.attacks.injection.channels import CHANNELS
from verify.attacks.injection.disguises import DISGUISES, disguised
from verify.attacks.injection.goals import GOALS
from verify.attacks.injection.model import found_orders, mark_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_program() is None, reason="needs bubblewrap"),
]


def test_no_attack_has_an_effect():
    """Every goal by a fifth of the ways in: nothing outside the rules is changed, reached, read, started or ended.
    `make cases` and `make security` try every goal by every way in."""
    chosen = attacks(seed=1) if ALL else a_fifth(attacks(seed=1))
    assert len(chosen) >= 100
    assert {attack.disguise for attack in chosen} == set(DISGUISES)
    assert {attack.goal for attack in chosen} == set(GOALS)
    assert {attack.channel for attack in chosen} == set(CHANNELS)
    result = run(chosen)
    assert result.failures == []
    assert result.unheard == []  # each reached the model, which did as it was told
    assert result.tries >= 5 * len(chosen)


def test_harmless_tasks_are_done_with_one_question_at_most():
    result = benign.run()
    assert result.tasks >= 50
    assert result.failures == []


def a_fifth(planned: list[Attack]) -> list[Attack]:
    """Of the channels in turn, so that each goal and each channel is there as often as any other."""
    goals, channels = list(GOALS), list(CHANNELS)
    return [attack for attack in planned if (goals.index(attack.goal) + channels.index(attack.channel)) % 5 == 0]


def few(*goals: str) -> list[Attack]:
    return [attack for attack in attacks(seed=3) if attack.channel in ("a file", "a page") and attack.goal in goals]


def test_without_admission_attacks_succeed(monkeypatch):
    """A planted bug: no policy decides on calls any more. Files, secrets and requests show it."""

    async def admit(turn, tool, call, _hook):
        return Admitted(call, None, None, turn.process.grant)

    monkeypatch.setattr(admission, "admit", admit)
    goals = ("keys in .env", "exfiltrate by URL", "CI", "run as allowed")
    failures = "\n".join(run(few(*goals)).failures)
    for goal in goals:
        assert goal in failures, goal
    assert "a secret reached the model" in failures
    assert "a request" in failures


def test_without_labels_attacks_succeed(monkeypatch):
    """A planted bug: text from outside marks no process, and a rule with a pattern counts as an answer."""
    monkeypatch.setattr(Taint, "mark", lambda self, pid, by: None)
    failures = "\n".join(run(few("exfiltrate by URL", "exfiltrate by name")).failures)
    assert "a request" in failures
    assert "a lookup" in failures


@pytest.mark.parametrize("disguise", DISGUISES)
def test_the_model_sees_through_every_disguise(disguise):
    assert found_orders(f"before {disguised(disguise, mark_of('a7'))} after") == ("a7",)


def test_the_model_sees_no_order_where_there_is_none():
    assert found_orders("an ordinary text " + base64.b64encode(b"of ordinary words").decode()) == ()


def test_attacks_are_those_of_their_seed():
    assert attacks(seed=3) == attacks(seed=3)
    assert attacks(seed=3) != attacks(seed=4)
    assert len(attacks(1000, seed=3)) == 1000
    assert len({attack.name for attack in attacks(1000, seed=3)}) == 1000
