"""Values to bytes and back, for journal rows, messages and snapshots.

The form is msgpack. Text, numbers, bytes, lists, mappings and None come back as they were; tuples and sets
come back as lists, and Decimal, UUID, Enum, dataclasses, Structs and pydantic's models (known by their
methods: nothing here imports pydantic) as the plain data they are made of, unless `decoder_for` is told the type.
A value that has no such form is a ConfigError that names its type;
bytes that are not such a form are Corrupt, and nothing else is ever raised by reading them. Sizes are the
caller's to check. Nothing is ever unpickled.

`canonical` is the same form made unique (sorted keys, sorted sets), for hashing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from lyra.errors import ConfigError, Corrupt

# Types (no subclasses) whose values are the same after they were written and read back.
UNCHANGED: Final = frozenset({type(None), bool, int, float, str, bytes})

_EXT_MAP: Final = 1  # a mapping with keys that are not text, in `canonical` only
_EXT_INT: Final = 2  # a whole number beyond 64 bits, in `canonical` only
_DECODERS_MAX: Final = 1_024


class _NoForm(TypeError):
    """A value's type cannot be encoded; msgspec passes this error on from the hook."""


def is_model(kind: Any) -> bool:
    """Return whether it is the class of a pydantic model."""
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def read_model(kind: Any, value: Any) -> Any:
    """Return a pydantic model from plain data. Read as JSON, in which a strict model takes a date as text, too."""
    return kind.model_validate_json(msgspec.json.encode(value))


def to_plain(value: Any) -> Any:
    """Plain data for values that msgspec does not know: those with `to_data`, pydantic's models, and subclasses of str,
    int and float."""
    to_data = getattr(value, "to_data", None)
    if to_data is not None and not isinstance(value, type):
        return to_data()
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise _NoForm(type(value).__name__)


_encode: Final = msgspec.msgpack.Encoder(enc_hook=to_plain).encode
_encode_sorted: Final = msgspec.msgpack.Encoder(enc_hook=to_plain, order="deterministic").encode


def encode(value: Any) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _unwritable(error) from None


def canonical(value: Any) -> bytes:
    """Equal values give equal bytes: the order of keys and sets does not matter; 1, 1.0 and True differ."""
    try:
        return _encode_sorted(value)
    except (TypeError, OverflowError):
        pass  # keys that are not text, a set of several types, a large number: use the slower way below
    except (ValueError, RecursionError) as error:
        raise _unwritable(error) from None
    try:
        return _encode_sorted(_sort(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _unwritable(error) from None


def _sort(value: Any) -> Any:
    """`value` with everything that msgspec cannot sort sorted by its bytes."""
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: _sort(item) for key, item in value.items()}
        pairs = sorted((_encode_sorted(_sort(key)), _encode_sorted(_sort(item))) for key, item in value.items())
        return msgspec.msgpack.Ext(_EXT_MAP, _encode_sorted(pairs))
    if isinstance(value, (list, tuple)):
        return [_sort(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_sort(item) for item in value), key=_encode_sorted)
    if type(value) is int and not -(2**63) <= value < 2**64:
        return msgspec.msgpack.Ext(_EXT_INT, hex(value).encode())
    return value


def _unwritable(error: Exception) -> ConfigError:
    hint = "return text, numbers, bytes, lists, mappings, dataclasses or msgspec Structs"
    if isinstance(error, _NoForm):
        return ConfigError(f"a value of type {error} cannot be saved", hint=hint, type=str(error))
    if isinstance(error, RecursionError):
        return ConfigError("a value that contains itself, or is nested too deeply, cannot be saved", hint=hint)
    if isinstance(error, OverflowError):
        return ConfigError("a whole number beyond 64 bits cannot be saved", hint="write it as text")
    if isinstance(error, UnicodeError):
        return ConfigError("text with half a surrogate pair cannot be saved", hint="decode it with errors='replace'")
    return ConfigError(f"a value cannot be saved: {error}", hint=hint)


# ---------------------------------------------------------------- reading
def _no_ext(code: int, _data: Any) -> Any:
    raise ValueError(f"unknown extension {code}")


def _from_data(wanted: type, value: Any) -> Any:
    """Return a value of a type that has `from_data`, or of a pydantic model."""
    if is_model(wanted):
        return read_model(wanted, value)
    from_data = getattr(wanted, "from_data", None)
    if from_data is None:
        raise NotImplementedError(f"{wanted.__name__} has no from_data")
    return from_data(value)


_decode: Final = msgspec.msgpack.Decoder(ext_hook=_no_ext).decode
_decoders: dict[Any, Callable[[bytes], Any]] = {}


def decode(data: bytes) -> Any:
    try:
        return _decode(data)
    except (ValueError, RecursionError, TypeError, OverflowError) as error:
        raise Corrupt(f"bytes that should hold a value do not: {error}") from None


def decoder_for(annotation: Any) -> Callable[[bytes], Any]:
    """Return a function from bytes to a value of that type; plain `decode` if the annotation has no such form."""
    try:
        known = _decoders.get(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return _make_decoder(annotation)
    if known is None:
        if len(_decoders) >= _DECODERS_MAX:
            _decoders.clear()
        known = _decoders[annotation] = _make_decoder(annotation)
    return known


def _make_decoder(annotation: Any) -> Callable[[bytes], Any]:
    if annotation is Any or annotation is object:
        return decode
    try:
        typed: Callable[[bytes], Any] = msgspec.msgpack.Decoder(
            annotation, ext_hook=_no_ext, dec_hook=_from_data
        ).decode
    except (TypeError, ValueError, NameError, RecursionError):
        members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
        decoders = [_make_decoder(member) for member in members]
        if not decoders or decode in decoders:
            return decode
        typed = _first_that_fits(decoders)

    def decode_typed(data: bytes) -> Any:
        try:
            return typed(data)
        except NotImplementedError:
            return decode(data)
        except Exception as error:  # noqa: BLE001 (a type's own checks may raise anything)
            raise Corrupt(f"saved bytes do not hold the type expected: {error}") from None

    return decode_typed


def _first_that_fits(decoders: list[Callable[[bytes], Any]]) -> Callable[[bytes], Any]:
    """For a union whose members msgspec cannot tell apart: the members are tried in the order they are written."""

    def decode_either(data: bytes) -> Any:
        misfits = []
        for decoder in decoders:
            try:
                return decoder(data)
            except Corrupt as misfit:
                misfits.append(misfit.message)
        raise ValueError("; ".join(misfits))

    return decode_either


def convert(value: Any, wanted: Any) -> Any:
    """Plain data as a value of that type; the same data where it does not fit, or the type has no such form."""
    if wanted is None or wanted is Any or type(value) is wanted:
        return value
    try:
        return msgspec.convert(value, wanted, dec_hook=_from_data)
    except Exception:  # noqa: BLE001 (a type's own checks may raise anything)
        if get_origin(wanted) not in (Union, UnionType):
            return value
    try:
        return decoder_for(wanted)(encode(value))
    except (Corrupt, ConfigError):
        return value
