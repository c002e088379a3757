"""Amazon's credentials and signatures, by botocore (the extra `bedrock`).

`AwsKeys` finds credentials the way every AWS tool does (variables, files, roles, instance metadata), in a thread, and
lets botocore refresh those that expire. `sign` gives the headers of a SigV4 signature. botocore writes what it signs,
session tokens included, to its debug log; that log is turned off here.
"""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec
from typing import Any, Final

from lyra.errors import ConfigError
from lyra.models.wire.faults import fault

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
        """The secrets that were used so far, to be redacted."""
        return self._seen


def region_of_profile() -> str:
    """The region of the user's AWS profile; reads files."""
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
