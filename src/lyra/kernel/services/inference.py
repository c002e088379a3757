"""Inference requests: which services have a model, the texts of an input, and the error for a used-up time quota."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lyra.core.checking.check import known_keys
from lyra.errors import ConfigError, DeadlineExceeded


def has_model(service: Mapping[str, Any], model: str) -> bool:
    metadata = service["metadata"]
    models = metadata.get("models")
    return (
        model == service["name"]
        or model in service["capabilities"]
        or metadata.get("model") == model
        or (isinstance(models, list) and model in models)
    )


def texts_of(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        known_keys(value, ("text", "texts"), "an inference input")
        text, texts = value.get("text"), value.get("texts", ())
        if not isinstance(texts, (list, tuple)):
            raise ConfigError(f"texts is a list of texts, not {type(texts).__name__}", key="texts")
        all_texts = [*([] if text is None else [text]), *texts]
    else:
        all_texts = [value] if isinstance(value, str) else list(value) if isinstance(value, (list, tuple)) else [value]
    for item in all_texts:
        if not isinstance(item, str):
            raise ConfigError(f"an inference input is text or a list of texts, not {type(item).__name__}", key="input")
    return all_texts


def out_of_time(pid: str) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"process {pid} is over its quota: timeout_exceeded",
        hint="adjust_quota raises it",
        pid=pid,
        reason="timeout_exceeded",
    )
