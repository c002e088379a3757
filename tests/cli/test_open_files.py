"""A server that may hold many connections raises its limit of open files as far as the system lets it."""

from __future__ import annotations

import resource

import pytest

from lyra.cli.commands.serve import allow_open_files


@pytest.fixture(autouse=True)
def limits():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_is_raised_and_never_lowered(limits) -> None:
    _, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    assert allow_open_files(600)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (600, hard)
    assert allow_open_files(100)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (600, hard)


def test_a_limit_of_the_system_is_told(limits) -> None:
    _, hard = limits
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this system has no limit")
    assert not allow_open_files(hard + 1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
