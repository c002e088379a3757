"""TokenUsage: the tokens of a call, as the provider counted them, or `estimated` where it did not.

`input_tokens` is the provider's own number. Anthropic and Bedrock leave cached tokens out of it (`cached_apart`),
the others count them in; `total_input` means the same for all providers. Prices are in `pricing`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.core.limits import COUNTED_MAX


class TokenUsage(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0  # part of output_tokens, where the provider says so
    cached_apart: bool = False
    estimated: bool = False  # the provider was silent: some or all are Lyra's own count, on the high side

    @property
    def total_input(self) -> int:
        """Every token that went in, cached ones too."""
        cached = self.cache_read_tokens + self.cache_write_tokens if self.cached_apart else 0
        return self.input_tokens + cached

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """The sum over calls. If the two count cached tokens differently, both are converted with `flat`."""
        apart = self.cached_apart or other.cached_apart
        left, right = (
            (self, other) if self.cached_apart == other.cached_apart or not apart else (self.flat(), other.flat())
        )
        return TokenUsage(
            left.input_tokens + right.input_tokens,
            left.output_tokens + right.output_tokens,
            left.cache_read_tokens + right.cache_read_tokens,
            left.cache_write_tokens + right.cache_write_tokens,
            left.reasoning_tokens + right.reasoning_tokens,
            left.cached_apart and right.cached_apart,
            left.estimated or right.estimated,
        )

    def checked(self) -> TokenUsage:
        """The same without counts that cannot be, since a server may report anything: such a count is 0, as unsaid."""
        counts = (
            self.input_tokens,
            self.output_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
            self.reasoning_tokens,
        )
        for count in counts:
            if type(count) is not int or not 0 <= count <= COUNTED_MAX:
                return msgspec.structs.replace(self, **dict(zip(_COUNTS, map(count_of, counts), strict=True)))
        return self

    def flat(self) -> TokenUsage:
        """This usage with cached tokens counted in `input_tokens`."""
        return msgspec.structs.replace(self, input_tokens=self.total_input, cached_apart=False)


_COUNTS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


def count_of(count: Any) -> int:
    """A count as a server reports it; 0 where it reports none, or one that cannot be."""
    return int(count) if type(count) in (int, float) and 0 <= count <= COUNTED_MAX else 0
