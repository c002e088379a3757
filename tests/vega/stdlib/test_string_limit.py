"""A string has at most VEGA_STRING_CHARS_MAX characters, however it is made: one more is LimitExceeded."""

from __future__ import annotations

import pytest

from lyra import vega
from lyra.core.limits import VEGA_STRING_CHARS_MAX
from lyra.vega import VegaError
from lyra.vega.machine import rare_instructions, vm
from lyra.vega.machine.pure import generate
from lyra.vega.plain import run_plain
from lyra.vega.stdlib import natives, strings
from lyra.vega.values import operators

SMALL = 1_000
READERS = (operators, rare_instructions, vm, generate, strings, natives)

# Ways to make a string of N characters.
WAYS = {
    "+": 'let x = str::repeat("a", N - 1); print(str::len(x + "b"));',
    "a number": 'let x = str::repeat("a", N - 1); print(str::len(x + 1));',
    "in front": 'let x = str::repeat("a", N - 1); print(str::len(1 + x));',
    "growing": 'let x = ""; for let i = 0; i < N; i = i + 1 { x = x + "a"; } print(str::len(x));',
    "interpolated": 'let x = str::repeat("a", N - 1); print(str::len("${x}b"));',
    "in a pure function": (
        'fn grown(n: int) -> str { let x = ""; for let i = 0; i < n; i = i + 1 { x = x + "a"; } return x; }'
        "print(str::len(grown(N)));"
    ),
    "repeat": 'print(str::len(str::repeat("a", N)));',
    "replace": 'print(str::len(str::replace(str::repeat("a", N / 2), "a", "bb") + str::repeat("c", N % 2)));',
    "join": 'print(str::len(str::join([str::repeat("a", N - 2), "b"], "-")));',
    "json": 'print(str::len(json::stringify(str::repeat("a", N - 2))));',
}


@pytest.mark.parametrize("way", WAYS)
def test_the_limit_holds_in_every_way(monkeypatch, way):
    """The longest string is made, and one more character is an error that `catch` sees."""
    for module in READERS:
        monkeypatch.setattr(module, "VEGA_STRING_CHARS_MAX", SMALL)
    lines: list[str] = []
    run_plain(vega.compile(WAYS[way].replace("N", str(SMALL))), lines.append)
    assert lines == [str(SMALL)]
    with pytest.raises(VegaError) as caught:
        run_plain(vega.compile(WAYS[way].replace("N", str(SMALL + 1))), lines.append)
    assert caught.value.name == "LimitExceeded"


def test_the_limit_is_the_documented_one():
    """268 435 456 characters; a longer one is refused before memory is taken for it."""
    assert VEGA_STRING_CHARS_MAX == 268_435_456
    assert [module.VEGA_STRING_CHARS_MAX for module in READERS] == [268_435_456] * len(READERS)
    strings.check_length(268_435_456)
    with pytest.raises(VegaError, match="at most 268435456 characters"):
        run_plain(vega.compile('str::repeat("a", 268435457);'), print)
