"""Real SIGKILL of `vega run` and `vega resume`: at random moments of twelve kinds of programs."""

from __future__ import annotations

import os

import pytest

from tests.cases import cases
from verify.crash import vega as vega_crash
from verify.crash.vega.kills import Books
from verify.crash.vega.provider import Asked

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]


def test_kills_change_no_output_and_repeat_no_call():
    """Calls beside each other, streams, supervised processes, tools, conversations, questions to a person, sessions,
    names, breakers and rate limits: the output is that of an undisturbed run, what was over is not asked again, what
    was in flight has the same key."""
    count = cases(60)
    result = vega_crash.run(count, seed=1)
    assert result.failures == []
    assert result.kills >= count
    assert result.again > 0


def test_the_books_see_a_call_that_is_made_twice():
    """A finished call under its old key, and another question under a key that was used, are both found."""
    books = Books()
    books.heard([Asked("n:main.1:0:aa", "one", True)])
    books.heard([Asked("n:main.1:0:aa", "one", True)])
    assert (books.again, books.failures) == (1, [])
    books._over.add("n:main.1:0:aa")
    books.heard([Asked("n:main.1:0:aa", "two", True), Asked("", "three", True)])
    assert len(books.failures) == 3
