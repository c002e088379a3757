"""How many tokens a model can read at once, if that is published; else None."""

from __future__ import annotations

from functools import lru_cache

from lyra.models.pricing import published_model


@lru_cache(maxsize=1_024)
def context_window(name: str) -> int | None:
    """The context window of `provider/model` in tokens; None if it is not published."""
    provider, _, model = name.partition("/")
    published = published_model(provider, model) if model and provider != "sim" else None
    window: int | None = published.context_window if published is not None else None
    return window
