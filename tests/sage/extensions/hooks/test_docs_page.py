"""The page about hooks has the tables of the code: every event, key and answer with the words of the tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra.config.hook_settings import COMMON_FIELDS, HOOK_EVENTS, HOOK_KEYS
from lyra.sage.extensions.hooks.hook import ANSWER_KEYS

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "hooks.md"
_WORDS = {"end": "continue"}  # the key of an answer, where it differs from the word of the table


def _rows(*rows: tuple[str, ...]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join((head, "|" + "---|" * len(rows[0]), *body))


def _code(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{_WORDS.get(word, word)}`" for word in words)


def events_table() -> str:
    head = ("event", "when", "its own fields", "matched", "answers", "`deny`")
    rows = [
        (
            f"`{name}`",
            event.sentence,
            _code(event.fields),
            _code((event.matches,)) if event.matches else "",
            _code(event.answers),
            event.denial,
        )
        for name, event in HOOK_EVENTS.items()
    ]
    return _rows(head, *rows)


def keys_table() -> str:
    return _rows(("key", "meaning"), *((f"`{key}`", sentence) for key, sentence in HOOK_KEYS.items()))


def common_table() -> str:
    return _rows(("field", "meaning"), *((f"`{key}`", sentence) for key, sentence in COMMON_FIELDS.items()))


def answers_table() -> str:
    return _rows(("key", "meaning"), *((f"`{key}`", sentence) for key, sentence in ANSWER_KEYS.items()))


@pytest.mark.parametrize("table", [events_table, keys_table, common_table, answers_table])
def test_the_page_has_the_table_of_the_code(table) -> None:
    assert table() in PAGE.read_text()


def test_there_are_thirteen_events() -> None:
    assert len(HOOK_EVENTS) == 13
