"""Supervised trees and waiting questions under real SIGKILL; the long version is part of `make crash`."""

from __future__ import annotations

import os

import pytest

from verify.crash import tree as crash_tree

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]


@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.long)])
def test_a_supervised_tree_survives_kills(count):
    """The tree is whole in every life, the question waits, no finished effect is done again."""
    result = crash_tree.run(count, seed=1)
    assert result.failures == []
    assert result.kills == count
    assert result.acts > count  # how many there are between two kills depends on the machine
