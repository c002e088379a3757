"""Keys out of texts: what is printed, journaled, recorded or shown to a model passes here.

`redact(text, secrets)` blots out the secrets this process knows, also as they look inside JSON, URLs and base64, and
whatever has the form of a well-known key (`PATTERNS`, the one table). `redact_data` does the same for every text in
plain data, and for the values of fields that are called like a key. It is a net, not a promise: a key nobody has told
us, of a form nobody has listed, goes through.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

from lyra.core.secret import MASK, Secret, mask_url

__all__ = ["PATTERNS", "redact", "redact_data"]

SECRET_LENGTH_LEAST: Final = 6  # a shorter "key" would blot out ordinary words

# What it is → how it looks. A group `keep` is left standing.
PATTERNS: Final[dict[str, str]] = {
    "OpenAI, Anthropic, OpenRouter and many others": r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{16,}",
    "Google": r"AIza[A-Za-z0-9_-]{30,}",
    "Google OAuth": r"ya29\.[A-Za-z0-9_.-]{20,}",
    "AWS key id": r"(?<![A-Z0-9])(?:AKIA|ASIA|AROA|AIDA|ABIA)[A-Z0-9]{16}(?![A-Z0-9])",
    "AWS signature": r"(?P<keep>Credential=)[^,\s\"']+(?:,\s*SignedHeaders=[^,\s]+,\s*Signature=[0-9a-f]+)?",
    "AWS secret": r"(?i)(?P<keep>aws_(?:secret_access_key|session_token)[\"']?\s*[=:]\s*[\"']?)[A-Za-z0-9/+=]{16,}",
    "GitHub": r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    "GitLab": r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{16,}",
    "Slack": r"(?<![A-Za-z0-9])xox[abeprs]-[A-Za-z0-9-]{10,}",
    "Stripe": r"(?<![A-Za-z0-9])[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "Hugging Face": r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}",
    "Groq, xAI, Perplexity": r"(?<![A-Za-z0-9])(?:gsk_|xai-|pplx-)[A-Za-z0-9]{30,}",
    "npm, PyPI": r"(?<![A-Za-z0-9])(?:npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{40,})",
    "JSON web token": r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "private key": r"(?s)-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.*?(?:-----END (?P=kind)-----|\Z)",
    "header": (
        r"(?i)(?P<keep>\b(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token|digest)\s+)?)"
        r"(?!\*\*\*|Bearer\b|Basic\b|AWS4)[^\s\"',;]{6,}"
    ),
    "bearer": r"(?i)(?P<keep>\bbearer\s+)(?!\*\*\*)[A-Za-z0-9._~+/=-]{12,}",
    "key header": r"(?i)(?P<keep>\b(?:x-api-key|api-key|x-goog-api-key)[\"']?\s*[:=]\s*[\"']?)(?!\*\*\*)[^\s\"',;&]{6,}",
    "key in a URL": r"(?i)(?P<keep>[?&](?:api_?key|key|token|access_token|sig|signature)=)(?!\*\*\*)[^\s&\"'#]{6,}",
}
# Something of each pattern, to see quickly that a text has none of them.
_MARKS: Final = re.compile(
    r"sk-|AIza|ya29\.|AKIA|ASIA|AROA|AIDA|ABIA|Credential=|gh[pousr]_|github_pat_|glpat-|xox|[rs]k_(?:live|test)_|hf_"
    r"|gsk_|xai-|pplx-|npm_|pypi-|eyJ|PRIVATE KEY|(?i:aws_se|authorization|bearer|api-?_?key|[?&](?:key|token|access_|sig)"
    r"|://[^/\s]*@|password)"
)
# Named fields whose value is a key, whatever it looks like.
_FIELDS: Final = re.compile(
    r"(?i)(?:.*[_-])?(?:api[_-]?key|secret(?:[_-]access[_-]key)?|session[_-]token|access[_-]token|refresh[_-]token"
    r"|authorization|password|passwd|private[_-]key|x-goog-api-key|cookie|set-cookie)\Z"
)


def redact(text: str, secrets: Iterable[str | Secret] = ()) -> str:
    """`text` with `***` in place of the secrets and of everything that has the form of a key."""
    for form in _forms(secrets):
        if form in text:
            text = text.replace(form, MASK)
    if _MARKS.search(text) is None:
        return text
    return mask_url(_KEYS.sub(_blot, text))


def redact_data(value: Any, secrets: Iterable[str | Secret] = ()) -> Any:
    """Plain data with every text in it redacted, keys of mappings too."""
    return _walk(value, _forms(secrets))


def _walk(value: Any, forms: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact(value, forms)
    if isinstance(value, dict):
        return {_walk(key, forms): _field(key, each, forms) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walk(each, forms) for each in value]
    return MASK if isinstance(value, Secret) else value


def _field(key: Any, value: Any, forms: tuple[str, ...]) -> Any:
    if isinstance(key, str) and isinstance(value, str) and value and _FIELDS.match(key):
        return MASK
    return _walk(value, forms)


def _blot(match: re.Match[str]) -> str:
    kept = next((match[name] for name in _KEPT if match[name] is not None), "")
    return kept + MASK


def _compile() -> tuple[re.Pattern[str], tuple[str, ...]]:
    """One alternation of all patterns; a name may stand in it only once, so each gets a number."""
    parts, kept = [], []
    for number, pattern in enumerate(PATTERNS.values()):
        flags = re.match(r"\(\?([a-z]+)\)", pattern)
        body = pattern[flags.end() :] if flags else pattern
        body = body.replace("(?P<keep>", f"(?P<keep{number}>")
        if f"(?P<keep{number}>" in body:
            kept.append(f"keep{number}")
        parts.append(f"(?{flags[1]}:{body})" if flags else f"(?:{body})")
    return re.compile("|".join(parts)), tuple(kept)


_KEYS, _KEPT = _compile()


def _forms(secrets: Iterable[str | Secret]) -> tuple[str, ...]:
    """The texts to look for, longest first."""
    if not secrets:
        return ()
    values = tuple(each.reveal() if isinstance(each, Secret) else each for each in secrets)
    return _all_forms(values)


@lru_cache(maxsize=64)
def _all_forms(values: tuple[str, ...]) -> tuple[str, ...]:
    found: set[str] = set()
    for value in values:
        if len(value) < SECRET_LENGTH_LEAST:
            continue
        found |= {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(value, safe="")}
        encoded = base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()
        found |= {encoded, encoded.rstrip("=")}
    return tuple(sorted(found, key=len, reverse=True))
