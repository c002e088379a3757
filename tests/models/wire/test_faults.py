"""The kinds of errors: what a status, a word and a sentence come to."""

from __future__ import annotations

import pytest

from lyra.models.wire.faults import from_code, from_status, pause_in


@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length",
            "context_overflow",
        ),
        (400, "exceed_context_size_error", "the request exceeds the available context size", "context_overflow"),
        (400, "unknown_parameter", "Unknown parameter: 'safety_identifier'.", "bad_request"),
        (400, "", "Your request was rejected as a result of our safety system.", "content_filter"),
        (400, "ServiceQuotaExceededException", "You have exceeded your quota", "rate_limit"),
        (400, "ValidationException", "The provided model identifier is invalid.", "not_found"),
        (402, "billing_error", "no credit", "auth"),
        (402, "", "pay first", "auth"),
        (302, "", "elsewhere", "bad_response"),
    ],
)
def test_a_refusal_has_its_kind_and_a_hint(status: int, code: str, message: str, kind: str) -> None:
    error = from_status(status, message, code=code)
    assert error.kind == kind
    assert bool(error.hint) == (kind not in ("bad_request", "content_filter", "rate_limit"))


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("timeout", "", "timeout"),
        ("invalid_api_key", "", "auth"),
        ("billing_error", "", "auth"),
        ("invalid_request_error", "prompt is too long: 9 tokens", "context_overflow"),
        ("invalid_request_error", "Output blocked by content filtering policy", "content_filter"),
        ("invalid_request_error", "no such thing", "bad_request"),
        ("something_new", "", "temporary"),
    ],
)
def test_an_error_told_in_a_stream_is_of_the_same_kind(code: str, message: str, kind: str) -> None:
    assert from_code(code, message).kind == kind


@pytest.mark.parametrize(
    ("sentence", "seconds"),
    [
        ("Rate limit reached. Please try again in 11.5s. Visit the page", 11.5),
        ("try again in 250ms", 0.25),
        ("Please try again in 2 minutes.", 120.0),
        ("try again later", None),
    ],
)
def test_a_sentence_may_ask_for_a_pause(sentence: str, seconds: float | None) -> None:
    assert pause_in(sentence) == seconds
    assert from_code("rate_limit_exceeded", sentence).fields.get("retry_after_s") == seconds
