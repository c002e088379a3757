"""An effect is known again by its hash."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.budgets.budget import Usage
from lyra.core.effect import HASH_BYTES, Charged, canonical_hash
from tests.cases import cases

quick = settings(derandomize=True, deadline=None, max_examples=cases(200))
names = st.text(max_size=3)


@quick
@given(names, st.lists(st.integers() | names, max_size=3), st.dictionaries(names, st.integers(), max_size=4))
def test_the_same_request_has_the_same_hash(name, args, kwargs):
    """Keyword order, and tuple or list, make no difference."""
    digest = canonical_hash(name, tuple(args), kwargs)
    assert len(digest) == HASH_BYTES
    assert digest == canonical_hash(name, list(args), dict(reversed(kwargs.items())))


def test_different_requests_have_different_hashes():
    """1, 1.0, True, text, bytes, nothing, and where an argument stands, all make a difference."""
    requests: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("f", (), {}),
        ("g", (), {}),
        ("f", (1,), {}),
        ("f", (1.0,), {}),
        ("f", (True,), {}),
        ("f", ("1",), {}),
        ("f", (b"1",), {}),
        ("f", (None,), {}),
        ("f", ([1],), {}),
        ("f", (1, 2), {}),
        ("f", (), {"a": 1}),
        ("f", (), {"a": {1: 2}}),
        ("f", (), {"a": {"1": 2}}),
        ("f", ({"a": 1},), {}),
    ]
    for left, right in itertools.combinations(requests, 2):
        assert canonical_hash(*left) != canonical_hash(*right), (left, right)


def test_charged_carries_a_value_and_its_cost():
    """What a function returns to say what it really cost."""
    charged = Charged("text", Usage(usd=5))
    assert (charged.value, charged.usage) == ("text", Usage(usd=5))
