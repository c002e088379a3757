"""A program that a kernel does not know by the name that was said: the error names those that may be meant."""

from __future__ import annotations

import pytest

from lyra import Kernel
from lyra.kernel.programs.registry import unknown_program


async def review(ctx):
    """Does nothing."""


async def translate(ctx):
    """Does nothing."""


pytestmark = pytest.mark.anyio
_HERE = "tests.kernel.programs.test_unknown"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("review", "review"),  # as in the file, without where it stands
        ("lyra_server_setup:review", "review"),
        ("reviw", "review"),
        (f"{_HERE}:tanslate", "translate"),
    ],
)
async def test_the_program_that_may_be_meant_is_named(word, meant):
    """A name without its module, with another module or with a letter wrong gives the right one."""
    async with Kernel(programs=[review, translate]) as kernel:
        error = unknown_program(word, kernel.programs)
        assert error.hint == f"did you mean {_HERE}:{meant}?"
        assert repr(word) in error.message


async def test_what_is_known_is_listed():
    """Where nothing is like it, the hint lists what there is, at most eight; with nothing, how to register one."""
    async with Kernel(programs=[review, translate]) as kernel:
        hint = unknown_program("other", kernel.programs).hint
        assert hint.startswith(f"it knows {_HERE}:review, {_HERE}:translate; register it")
    async with Kernel() as kernel:
        assert unknown_program("other", kernel.programs).hint.startswith("register it")
