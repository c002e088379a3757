"""GatewayRequest: the body of a request, read as far as the gateway has to know it.

The members of the JSON object are kept as the bytes that came: `body` puts them together again with another model's
name (and, where a budget needs it, another bound of the answer), so that every other value continues byte for byte. A
member that is given twice stands once, the last of them: a provider never reads another model than the one checked.
For the same reason a name that stands twice deeper inside is refused, and so are members that are checked for each key
in another spelling: parsers differ in which of two they take, and whether `Model` is `model` to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unicodedata import normalize

import msgspec

from lyra.errors import ConfigError
from lyra.models.stream import TokenUsage, count_of
from lyra.models.wire.faults import UNREADABLE

if TYPE_CHECKING:
    from lyra.models.wire.remote import Reader


_MODEL_CHARS_MAX: Final = 300
_ADDED_BYTES_MAX: Final = 200  # braces, the bound of the answer, the wish for the usage; a model's name gets shorter
# Members by which it is decided who may ask, and what is asked for.
_CHECKED: Final = frozenset({"model", "models", "fallbacks", "tools", "stream"})
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.encode


class GatewayRequest:
    """See the module."""

    __slots__ = ("_has_escapes", "_is_ascii", "_members", "_raw", "format", "model", "stream", "values")

    def __init__(self, wire: WireFormat, raw: bytes) -> None:
        self.format = wire
        try:
            self._members = _members.decode(raw)
            # All of it is read once: a part that is no JSON, or no UTF-8, is refused here and never sent on.
            self.values: dict[str, Any] = msgspec.json.decode(raw)  # the members, read, not to be changed
            self._raw = raw
            self._is_ascii, self._has_escapes = raw.isascii(), b"\\u" in raw
        except UNREADABLE as error:
            raise ConfigError(f"the body cannot be read: {error}", hint="it is a JSON object") from None
        # Refuse what one parser reads in another way than the next.
        for name in self._members:
            if name not in _CHECKED and name.casefold() in _CHECKED:
                raise ConfigError(f"{name[:60]!r} is written {name.casefold()!r}", key=name[:60])
        members = b",".join([bytes(value) for value in self._members.values()])
        if _strings(members) != _strings(_encode(list(self.values.values()))):
            raise ConfigError("a name stands twice in one object of the body", hint="give each once")
        model = self.values.get("model")
        if not isinstance(model, str) or not 0 < len(model) <= _MODEL_CHARS_MAX:
            raise ConfigError("the request names a model", hint="such as openai/gpt-5-mini", key="model")
        self.model = model
        self.stream = self.values.get("stream") is True

    def raw(self, name: str) -> bytes:
        """Return the bytes of a member that the request has."""
        return bytes(self._members[name])

    def data(self) -> dict[str, Any]:
        """Return the whole request, read anew: the caller may change it."""
        return {name: msgspec.json.decode(value) for name, value in self._members.items()}

    @property
    def names(self) -> Iterable[str]:
        return self._members

    def has(self, name: str) -> bool:
        return name in self._members

    @property
    def size_bytes(self) -> int:
        """The most bytes that the body may have that goes to the provider."""
        members = self._members.items()
        size = sum([len(_encode(name)) + len(memoryview(value)) + 2 for name, value in members])
        if not self._is_ascii or self._has_escapes:
            # Some tokenizers read the text with its compatibility forms written out.
            size = max(size, len(normalize("NFKC", _encode(self.values).decode()).encode()))
        return _ADDED_BYTES_MAX + size

    @property
    def other_models(self) -> list[str]:
        """The models that the request names besides its own: a provider may ask one of them in its place, or by a
        tool."""
        given = [self.values[name] for name in ("models", "fallbacks", "tools") if name in self.values]
        entries = [entry for value in given for entry in (value if isinstance(value, list) else [value])]
        named = [entry for entry in entries if isinstance(entry, dict)]
        names = [value for entry in named for key, value in entry.items() if key.casefold() == "model"]
        return [name for name in (*names, *entries) if isinstance(name, str)]

    def may_name(self, word: str) -> bool:
        """Return whether the word can be a name in the request; False is certain."""
        return self._has_escapes or word.encode() in self._raw

    @property
    def limits(self) -> dict[str, Any]:
        """The members that bound the answer, under all names that providers have for that; null bounds nothing."""
        given = {name: self.values.get(name) for name in ANSWER_BOUNDS}
        return {name: bound for name, bound in given.items() if bound is not None}

    @property
    def limit(self) -> int | None:
        """The most tokens that the answer may have, by the smallest bound; None where the request does not say."""
        return min((bound for bound in self.limits.values() if type(bound) is int and bound > 0), default=None)

    def body(self, changes: dict[str, Any]) -> bytes:
        """Return the request with other values for some members; the rest as it came, in its order."""
        members = self._members
        texts = [
            _encode(name) + b":" + (_encode(changes[name]) if name in changes else bytes(value))
            for name, value in members.items()
        ]
        texts += [_encode(name) + b":" + _encode(value) for name, value in changes.items() if name not in members]
        return b"{" + b",".join(texts) + b"}"


def _strings(text: bytes) -> int:
    """Count the strings in a JSON text, names included."""
    plain = text.replace(b"\\\\", b"")
    return (plain.count(b'"') - plain.count(b'\\"')) // 2


# ---------------------------------------------------------------- formats
# The wire formats that the gateway takes, one row each: where the fields are that it has to know.

# The names under which providers take the most tokens of an answer. Servers that speak a vendor's format often take
# those of others beside it.
ANSWER_BOUNDS: Final = (
    *("max_completion_tokens", "max_tokens", "max_output_tokens"),
    *("max_new_tokens", "max_tokens_to_sample", "num_predict", "n_predict"),
)


class WireFormat(NamedTuple):
    """`limits` are the fields that bound the tokens of an answer; the first is the one that is added where none is
    given. `reader` makes a reader of streams."""

    name: str
    vendor: str
    path: str  # below the provider's base URL
    limits: tuple[str, ...]
    usage: Callable[[dict[str, Any]], TokenUsage]
    reader: Callable[[], Reader] | None = None
    is_free: bool = False  # providers take nothing for it


def _openai_usage(usage: dict[str, Any]) -> TokenUsage:
    """Usage as OpenAI writes it, in its three forms."""
    into = usage.get("prompt_tokens", usage.get("input_tokens"))
    out = usage.get("completion_tokens", usage.get("output_tokens"))
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    answer = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    return TokenUsage(
        count_of(into),
        count_of(out),
        cache_read_tokens=count_of(details.get("cached_tokens")) if isinstance(details, dict) else 0,
        reasoning_tokens=count_of(answer.get("reasoning_tokens")) if isinstance(answer, dict) else 0,
    )


def _anthropic_usage(usage: dict[str, Any]) -> TokenUsage:
    return TokenUsage(
        count_of(usage.get("input_tokens")),
        count_of(usage.get("output_tokens")),
        cache_read_tokens=count_of(usage.get("cache_read_input_tokens")),
        cache_write_tokens=count_of(usage.get("cache_creation_input_tokens")),
        cached_apart=True,
    )


def _chat_reader() -> Reader:
    from lyra.models.providers.openai_chat import ChatReader

    return ChatReader()


def _responses_reader() -> Reader:
    from lyra.models.providers.openai_responses import ResponsesReader

    return ResponsesReader()


def _messages_reader() -> Reader:
    from lyra.models.providers.anthropic import AnthropicReader

    return AnthropicReader()


FORMATS: Final = {
    "chat": WireFormat(
        "chat",
        "openai",
        "chat/completions",
        ("max_completion_tokens", "max_tokens"),
        _openai_usage,
        _chat_reader,
    ),
    "responses": WireFormat(
        "responses", "openai", "responses", ("max_output_tokens",), _openai_usage, _responses_reader
    ),
    "messages": WireFormat("messages", "anthropic", "v1/messages", ("max_tokens",), _anthropic_usage, _messages_reader),
    "count_tokens": WireFormat(
        "count_tokens", "anthropic", "v1/messages/count_tokens", (), _anthropic_usage, is_free=True
    ),
    "embeddings": WireFormat("embeddings", "openai", "embeddings", (), _openai_usage),
}
