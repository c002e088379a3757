"""Amazon's credentials and signatures, by botocore (the extra `bedrock`), and its event stream.

`AwsKeys` finds credentials the way every AWS tool does (variables, files, roles, instance metadata), in a thread, and
lets botocore refresh those that expire. `sign` gives the headers of a SigV4 signature. botocore writes what it signs,
session tokens included, to its debug log; that log is turned off here. `Frames` turns bytes, split anywhere, into the
messages of an event stream, and checks every checksum.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from binascii import crc32
from importlib.util import find_spec
from typing import Any, Final

from lyra.errors import ConfigError, ModelError
from lyra.models.wire.faults import answer_malformed, fault

_SERVICE: Final = "bedrock"
_SIGNED: Final = ("content-type",)  # the headers that are signed, besides those of the signature itself


class AwsKeys:
    """The credentials of this machine and user, found at the first call."""

    def __init__(self) -> None:
        self._credentials: Any = None  # of botocore, which has no types
        self._seen: tuple[str, ...] = ()

    async def frozen(self) -> Any:
        """Credentials as they are now: access key, secret key, token."""
        credentials = self._credentials
        needed = getattr(credentials, "refresh_needed", bool)
        if credentials is None or needed():  # finding and refreshing may read files and the network
            frozen = await asyncio.to_thread(self._find)
        else:
            frozen = credentials.get_frozen_credentials()
        self._seen = tuple(value for value in (frozen.secret_key, frozen.token) if value)
        return frozen

    def _find(self) -> Any:
        from botocore.exceptions import BotoCoreError

        try:
            if self._credentials is None:
                self._credentials = _session().get_credentials()
            if self._credentials is not None:
                return self._credentials.get_frozen_credentials()
        except BotoCoreError as error:
            raise fault("auth", f"AWS gives no credentials: {error}", provider=_SERVICE) from None
        raise fault(
            "auth",
            "there are no AWS credentials",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or log in with the aws command",
            provider=_SERVICE,
        )

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets that were used so far, to be redacted."""
        return self._seen


def region_of_profile() -> str:
    """Return the region of the user's AWS profile; reads files."""
    from botocore.exceptions import BotoCoreError

    try:
        region = _session().get_config_variable("region")
    except BotoCoreError as error:
        raise ConfigError(
            f"the AWS configuration cannot be used: {error}",
            hint="look at AWS_PROFILE and ~/.aws/config",
            key="bedrock",
        ) from None
    if not region:
        raise ConfigError(
            "there is no region for bedrock",
            hint="export AWS_REGION=… or set providers.bedrock.region",
            key="providers.bedrock.region",
        )
    return str(region)


def sign(credentials: Any, region: str, url: str, body: bytes, headers: dict[str, str]) -> dict[str, str]:
    """`headers` with the signature of a POST; only `content-type` is signed, since proxies may change the others."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    signed = {name: value for name, value in headers.items() if name in _SIGNED}
    request = AWSRequest(method="POST", url=url, data=body, headers=signed)
    SigV4Auth(credentials, _SERVICE, region).add_auth(request)
    return {**headers, **{name.lower(): value for name, value in request.headers.items()}}


def need_botocore() -> None:
    """Raise a ConfigError with the install command if botocore is not installed."""
    if find_spec("botocore") is None:
        raise ConfigError(
            "bedrock needs botocore, which is not installed", hint="pip install 'lyra-agents[bedrock]'", key="bedrock"
        )


def _session() -> Any:
    from botocore.session import Session

    quiet = logging.getLogger("botocore.auth")
    quiet.setLevel(max(quiet.level, logging.INFO))
    return Session()


# ---------------------------------------------------------------- event stream
HEADERS_BYTES_MAX: Final = 128 << 10  # the protocol's own limits
PAYLOAD_BYTES_MAX: Final = 24 << 20
_KNOWN_MAX: Final = 64  # sets of headers that are remembered; a stream of Converse has about six

_PRELUDE: Final = struct.Struct("!III")
_CHECKSUM: Final = struct.Struct("!I")
_LENGTH: Final = struct.Struct("!H")
# Numeric types of header values by their code; text, bytes and booleans are read separately.
_NUMBERS: Final = {2: struct.Struct("!b"), 3: struct.Struct("!h"), 4: struct.Struct("!i"), 5: struct.Struct("!q")}
_TRUTHS: Final = {0: True, 1: False}
_BYTES, _TEXT, _TIME, _UUID = 6, 7, 8, 9

Headers = dict[str, Any]


class Frames:
    __slots__ = ("_known", "_rest", "broken")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._known: dict[bytes, Headers] = {}
        self.broken: ModelError | None = None  # the error that follows the messages that were returned

    def feed(self, data: bytes) -> list[tuple[Headers, bytes]]:
        """Return the messages that `data` completes: headers and payload."""
        if self.broken is not None:
            raise self.broken
        self._rest += data
        messages: list[tuple[Headers, bytes]] = []
        try:
            done = self._take(messages)
        except ModelError as error:
            if not messages:
                raise
            self.broken = error
            return messages
        if done:
            del self._rest[:done]
        return messages

    def _take(self, messages: list[tuple[Headers, bytes]]) -> int:
        rest = self._rest
        start, size = 0, len(rest)
        while size - start >= 12:
            total, head, checksum = _PRELUDE.unpack_from(rest, start)
            if crc32(rest[start : start + 8]) != checksum:
                raise answer_malformed("the checksum of a frame's lengths is wrong")
            payload = total - head - 16
            if head > HEADERS_BYTES_MAX or not 0 <= payload <= PAYLOAD_BYTES_MAX:
                raise answer_malformed(f"a frame of {total} bytes with {head} bytes of headers cannot be")
            end = start + total
            if end > size:
                break
            if crc32(rest[start : end - 4]) != _CHECKSUM.unpack_from(rest, end - 4)[0]:
                raise answer_malformed("the checksum of a frame is wrong")
            body = start + 12 + head
            messages.append((self._headers(bytes(rest[start + 12 : body])), bytes(rest[body : end - 4])))
            start = end
        return start

    def _headers(self, data: bytes) -> Headers:
        headers = self._known.get(data)
        if headers is None:
            try:
                headers = _headers(data)
            except (struct.error, IndexError, UnicodeDecodeError, KeyError) as error:
                raise answer_malformed(f"the headers of a frame cannot be read: {error!r}") from None
            if len(self._known) < _KNOWN_MAX:
                self._known[data] = headers
        return headers


def _headers(data: bytes) -> Headers:
    headers: Headers = {}
    position = 0
    while position < len(data):
        position, name = _piece(data, position + 1, data[position])
        kind = data[position]
        position, value = _value(data, position + 1, kind)
        if name.decode() in headers:
            raise answer_malformed(f"a frame has the header {name.decode()!r} twice")
        headers[name.decode()] = value
    return headers


def _value(data: bytes, position: int, kind: int) -> tuple[int, Any]:
    if kind in (_TEXT, _BYTES):
        position, value = _piece(data, position + 2, _LENGTH.unpack_from(data, position)[0])
        return position, value.decode() if kind == _TEXT else value
    if kind in _TRUTHS:
        return position, _TRUTHS[kind]
    if kind == _UUID:
        return _piece(data, position, 16)
    number = _NUMBERS[5 if kind == _TIME else kind]
    return position + number.size, number.unpack_from(data, position)[0]


def _piece(data: bytes, start: int, size: int) -> tuple[int, bytes]:
    end = start + size
    if end > len(data):
        raise IndexError("a header ends outside its frame")
    return end, data[start:end]
