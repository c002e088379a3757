"""Real SIGKILL of `vega run` and `vega resume`: at random moments of twelve kinds of programs."""

from __future__ import annotations

import os

import pytest

from tests.cases import cases
from verify.crash import vega as vega_crash
from verify.crash.vega.kills import Books
from verify.crash.vega.provider import Asked

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]


@pytest.mark.parametrize("count", [6, pytest.param(cases(60), marks=pytest.mark.long)])
def test_kills_change_no_output_and_repeat_no_call(count):
    """Calls beside each other, streams, supervised processes, tools, conversations, questions to a person, sessions,
    names, breakers and rate limits: the output is that of an undisturbed run, what was over is not asked again, what
    was in flight has the same key."""
    result = vega_crash.run(count, seed=1)
    assert result.failures == []
    assert result.kills >= count
    assert result.again > 0 or count == 6  # few kills may all fall between calls


def test_the_books_see_a_call_that_is_made_twice():
    """A finished call under its old key, and another question under a key that was used, are both found."""
    books = Books()
    books.heard([Asked("n:main.1:0:aa", "one", True)])
    books.heard([Asked("n:main.1:0:aa", "one", True)])
    assert (books.again, books.failures) == (1, [])
    books._over.add("n:main.1:0:aa")
    books.heard([Asked("n:main.1:0:aa", "two", True), Asked("", "three", True)])
    assert len(books.failures) == 3
