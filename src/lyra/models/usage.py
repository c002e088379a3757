"""TokenUsage: what a call took, as the provider counted it.

`input_tokens` is the provider's own number. Anthropic and Bedrock leave cached tokens out of it (`cached_apart`),
the others count them in; `total_input` is the same thing everywhere. `price` is not here: `pricing` knows money.
"""

from __future__ import annotations

import msgspec

__all__ = ["TokenUsage"]


class TokenUsage(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0  # part of output_tokens, where the provider says so
    cached_apart: bool = False

    @property
    def total_input(self) -> int:
        """Every token that went in, cached ones too."""
        cached = self.cache_read_tokens + self.cache_write_tokens if self.cached_apart else 0
        return self.input_tokens + cached

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """A sum over calls; over calls of two ways of counting it is counted the common way."""
        apart = self.cached_apart or other.cached_apart
        one, two = (
            (self, other) if self.cached_apart == other.cached_apart or not apart else (self.flat(), other.flat())
        )
        return TokenUsage(
            one.input_tokens + two.input_tokens,
            one.output_tokens + two.output_tokens,
            one.cache_read_tokens + two.cache_read_tokens,
            one.cache_write_tokens + two.cache_write_tokens,
            one.reasoning_tokens + two.reasoning_tokens,
            one.cached_apart and two.cached_apart,
        )

    def flat(self) -> TokenUsage:
        """The same with cached tokens counted in `input_tokens`."""
        return msgspec.structs.replace(self, input_tokens=self.total_input, cached_apart=False)
