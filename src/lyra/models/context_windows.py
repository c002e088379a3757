"""How many tokens a model can read at once, where that is published; None where nobody knows."""

from __future__ import annotations

from functools import lru_cache

from lyra.models.pricing import published_model

__all__ = ["context_window"]


@lru_cache(maxsize=1_024)
def context_window(name: str) -> int | None:
    """Of `provider/model`."""
    provider, _, model = name.partition("/")
    found = published_model(provider, model) if model and provider != "sim" else None
    window: int | None = found.context_window if found is not None else None
    return window
