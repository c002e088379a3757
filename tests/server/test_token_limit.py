"""Tokens and keys that are not known: an address cannot try them without end, and programs that work go on."""

from __future__ import annotations

import pytest

from lyra import Kernel
from lyra.core.address import Address
from lyra.core.limits import SERVER_CALLERS_KEPT, SERVER_LOGIN_FAILURES
from lyra.errors import RateLimited, Unauthenticated
from lyra.server.grpc.guard import _address
from lyra.server.http.face import HttpFace
from lyra.server.http.routes import ENDPOINTS
from lyra.server.token_limit import TokenLimit, credential_of
from lyra.testing import SimClock
from tests.server.gateway.support import serving_gateway
from tests.server.grpc.client import ALICE, settings
from tests.server.grpc.client import serving as serving_grpc
from tests.server.http.support import ADA, client, in_loop


def attempt(limit: TokenLimit, address: str, credential: str, *, is_known: bool) -> None:
    with limit.attempt(address, credential):
        if not is_known:
            raise Unauthenticated("not known")


def guess(limit: TokenLimit, address: str = "10.0.0.1") -> None:
    for number in range(SERVER_LOGIN_FAILURES):
        with pytest.raises(Unauthenticated):
            attempt(limit, address, f"guess-{number}", is_known=False)


def test_an_address_that_guesses_has_to_wait() -> None:
    """Then no other credential from there is looked at, not even a right one, until the minute is over."""
    clock = SimClock()
    limit = TokenLimit(clock)
    attempt(limit, "10.0.0.1", "works", is_known=True)
    guess(limit)
    with pytest.raises(RateLimited) as refused:
        attempt(limit, "10.0.0.1", "right", is_known=True)
    assert refused.value.fields["retry_after_s"] > 0
    attempt(limit, "10.0.0.1", "works", is_known=True)  # was known from there before
    attempt(limit, "10.0.0.1", "", is_known=True)  # a cookie, or an open page
    attempt(limit, "10.0.0.2", "right", is_known=True)  # another address
    with pytest.raises(RateLimited):
        attempt(limit, "10.0.0.1", "right", is_known=True)  # known from the other address alone
    clock.advance(120)
    attempt(limit, "10.0.0.1", "right", is_known=True)


@pytest.mark.parametrize("was_known", [True, False])
def test_a_token_that_is_tried_again_is_no_other_guess(was_known: bool) -> None:
    """A program that goes on with a revoked key, or with a wrong one, locks no other out, and is told what is wrong."""
    limit = TokenLimit(SimClock())
    if was_known:
        attempt(limit, "10.0.0.1", "key", is_known=True)
    for _ in range(3 * SERVER_LOGIN_FAILURES):
        with pytest.raises(Unauthenticated):
            attempt(limit, "10.0.0.1", "key", is_known=False)
    attempt(limit, "10.0.0.1", "other", is_known=True)


def test_a_bounded_number_of_tokens_is_remembered() -> None:
    """The one that was used least recently is forgotten, and is one among those to be guessed then."""
    limit = TokenLimit(SimClock())
    for number in range(SERVER_CALLERS_KEPT + 1):
        attempt(limit, "10.0.0.1", f"key-{number}", is_known=True)
    guess(limit)
    attempt(limit, "10.0.0.1", "key-100", is_known=True)
    with pytest.raises(RateLimited):
        attempt(limit, "10.0.0.1", "key-0", is_known=True)


def test_a_credential_is_a_bearer_or_a_key() -> None:
    """The two headers that vendors' clients use; the first counts."""
    assert credential_of({"authorization": "Bearer a", "x-api-key": "b"}) == "a"
    assert credential_of({"authorization": "Basic a", "x-api-key": " b "}) == "b"
    assert credential_of({}) == ""


@pytest.mark.parametrize("prefix", ["", "sk-lyra-"])
def test_tokens_and_keys_cannot_be_tried_over_http(prefix: str) -> None:
    """Guesses at any endpoint count together, in the vendor's shape below /v1/; a key and a token that worked before go
    on, and a new one waits."""

    async def main() -> None:
        async with serving_gateway() as served:
            key, late = await served.key(), await served.key("late")
            async with (
                served.client(key) as program,
                served.client(late) as newcomer,
                served.client(ADA) as ada,
                client(served.address) as guesser,
            ):
                assert (await program.get("/v1/models")).status_code == 200
                paths = ("/v1/models", "/v1/messages", "/api/processes")
                for number in range(SERVER_LOGIN_FAILURES):
                    headers = {"authorization": f"Bearer {prefix}{number}"}
                    answer = await guesser.get(paths[number % 2 * 2], headers=headers)
                    assert answer.status_code == 401, answer.text
                assert (await guesser.get("/v1/models")).status_code == 401  # without a credential none is tried
                for stranger in (newcomer, ada):
                    refused = await stranger.post("/v1/messages", json={})
                    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
                    assert int(refused.headers["retry-after"]) > 0
                assert (await program.get("/v1/models")).status_code == 200
                assert (await served.operator.get("/api/keys")).status_code == 200

    in_loop(main())


@pytest.mark.parametrize(
    ("path", "is_gateway"), [("/v1/chat/completions", True), ("/v1/messages", True), ("/api/processes", False)]
)
def test_a_stranger_is_told_what_to_send(path: str, is_gateway: bool) -> None:
    """A program with a provider's own key learns that the gateway has keys of its own, and how to make one."""

    async def main() -> None:
        async with serving_gateway() as served, served.client("sk-ant-of-the-vendor") as stranger:
            answer = await stranger.request("POST" if is_gateway else "GET", path, json={} if is_gateway else None)
            assert answer.status_code == 401
            assert ("lyra keys create" in answer.text, "x-api-key" in answer.text) == (is_gateway, is_gateway)

    in_loop(main())


def test_tokens_that_are_guessed_over_grpc_and_http_count_together() -> None:
    """After too many from one address a new one is RESOURCE_EXHAUSTED over gRPC, the right one too, and 429 over HTTP;
    one that was known before goes on, and a call without a token tries none."""

    async def main() -> None:
        kernel = Kernel()
        async with serving_grpc(kernel) as (_, grpc_client):
            face = HttpFace(kernel, settings(http=Address("127.0.0.1", 0)), endpoints=ENDPOINTS)
            address = await face.start()
            try:
                assert await grpc_client.status("KernelService/GetProcessCounts") == "OK"
                for number in range(SERVER_LOGIN_FAILURES):
                    guesser = grpc_client.as_(f"guess-{number}")
                    assert await guesser.status("KernelService/GetProcessCounts") == "UNAUTHENTICATED"
                for token in ("another-guess", ALICE):
                    status = await grpc_client.as_(token).status("KernelService/GetProcessCounts")
                    assert status == "RESOURCE_EXHAUSTED"
                assert await grpc_client.as_("").status("KernelService/GetProcessCounts") == "UNAUTHENTICATED"
                assert await grpc_client.as_("guess-1").status("KernelService/GetProcessCounts") == "UNAUTHENTICATED"
                assert await grpc_client.status("KernelService/GetProcessCounts") == "OK"
                async with client(address, ALICE) as alice:
                    assert (await alice.get("/api/processes")).status_code == 429
            finally:
                await face.stop(1.0)

    in_loop(main())


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.1:5123", "10.0.0.1"),
        ("ipv6:%5B2001:db8::1%5D:443", "2001:db8::1"),
        ("unix:/run/lyra", "/run/lyra"),
    ],
)
def test_a_peer_is_known_by_its_address_without_its_port(peer: str, address: str) -> None:
    """A new connection from the same machine has another port, and is the same address."""
    assert _address(peer) == address
