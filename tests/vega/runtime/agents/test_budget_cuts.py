"""Answers that a budget cuts, in Vega: BudgetExceeded with the text in its reason, or taken where the agent says so."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.models.script import Reply
from tests.vega.support import Seen, play

STORY = "word " * 2_000
SCRIPT = {"price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 10}, "replies": [STORY]}
ASKED = 'try { print(b <- "x" budget $0.0075); } catch BudgetExceeded(reason) { print("cut: " + reason); }'
READ = (
    'try { for piece in b <~ "x" budget $0.0075 { } print("whole"); } catch BudgetExceeded(r) { print("cut: " + r); }'
)


def bot(settings: str = "") -> str:
    return f'agent Bot {{ model "sim/script" {settings} }} let b = spawn Bot;\n'


@pytest.mark.parametrize("memory", ["", "memory conversation"])
@pytest.mark.parametrize("call", [ASKED, READ])
def test_a_cut_answer_is_an_error_with_its_text(call, memory):
    (line,) = play(bot(memory) + call, SCRIPT)
    assert line.startswith("cut: the budget of agent Bot ended in the middle of an answer, after ")
    _, _, told = line.partition("which cost $0.00")
    assert STORY.startswith(told.partition(": ")[2])
    assert len(told) > 1_000


def test_a_session_cuts_in_the_same_way():
    source = (
        bot() + 'try { session budget $0.0075 { print(b <- "x"); } } catch BudgetExceeded(r) { print("cut: " + r); }'
    )
    (line,) = play(source, SCRIPT)
    assert line.startswith("cut: the budget of agent Bot ended in the middle of an answer, after ")


def test_fit_budget_takes_it_and_an_event_says_so():
    events: list[Any] = []
    (line,) = play(bot("fit_budget true") + ASKED, SCRIPT, events=events)
    assert STORY.startswith(line)
    assert len(line) > 100
    assert [event.data["wanted"] for event in events if event.kind == "budget.cut"] == [4096]


def test_below_the_floor_the_model_is_not_asked():
    priced = {"text": "short"}
    for tokens, asked in ((256, 0), (100, 1)):
        seen = Seen(lambda _: Reply.from_data(priced))
        source = bot(f"min_tokens {tokens}") + 'try { print(b <- "x"); } catch BudgetExceeded { print("refused"); }'
        lines = play(source, seen, budget={"output_tokens": 200})
        assert (lines, len(seen.requests)) == (["refused" if not asked else "short"], asked)
