"""Logging in: a page is shown, the browser comes back, the tokens stay with the person."""

from __future__ import annotations

import asyncio
import json
import stat

import httpx2
import pytest

from lyra.errors import ConfigError
from lyra.mcp import Approvals, McpServers, ServerSettings
from lyra.mcp.settings import settings_of
from tests import warm
from tests.mcp.support import HERE, free_port, http_server, run


def test_a_login_and_what_is_kept_of_it(tmp_path):
    """Without anybody there: auth_required. With a browser: connected, and again without one from the kept tokens."""
    port = free_port()
    own = tmp_path / "own"
    settings = ServerSettings(
        name="guarded", url=f"http://127.0.0.1:{port}/mcp", transport="http", auth={"kind": "oauth"}, timeout_s=20
    )
    pages: list[str] = []

    async def browse(server: str, url: str) -> None:
        pages.append(url)
        async with httpx2.AsyncClient(follow_redirects=True) as browser:
            assert "close this page" in (await browser.get(url)).text

    async def main():
        async def start(**options):
            async with McpServers(
                [settings], workspace=str(tmp_path), approvals=Approvals(None), folder=str(own), **options
            ) as servers:
                (state,) = await servers.start()
                called = await servers.__lyra_tools__()[0]() if state.state == "connected" else None
                return state, called

        with http_server(port, *warm.command(str(HERE / "guarded_server.py")), str(port)):
            state, called = await start()
            assert state.state == "auth_required"
            assert state.failure is not None
            assert "lyra mcp login guarded" in state.failure.message
            state, called = await start(authorize=browse)
            assert (state.state, called) == ("connected", "for you")
            assert len(pages) == 1
            state, called = await start()  # no person is there, and none is needed
            assert (state.state, called) == ("connected", "for you")
            assert "secret-token" not in json.dumps(state.to_data())
        (file,) = (own / "mcp-tokens").iterdir()
        assert "secret-token-0" in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700

    run(main())
    assert len(pages) == 1
    assert "code_challenge=" in pages[0]


def test_a_client_that_was_registered_by_hand(tmp_path, monkeypatch):
    """Its name is in the settings, its secret in the environment, its answer comes to the port that was registered."""
    port, back = free_port(), free_port()
    auth = {"kind": "oauth", "client_id": "by-hand", "client_secret_env": "HAND", "callback_port": back}
    settings = ServerSettings(name="g", url=f"http://127.0.0.1:{port}/mcp", transport="http", auth=auth, timeout_s=20)

    async def browse(server: str, url: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=True) as browser:
            await browser.get(url)

    async def start(**options):
        async with McpServers(
            [settings], workspace=str(tmp_path), approvals=Approvals(None), folder=str(tmp_path / "own"), **options
        ) as servers:
            (state,) = await servers.start()
            return state, await servers.__lyra_tools__()[0]() if state.state == "connected" else None

    async def main():
        with http_server(
            port, *warm.command(str(HERE / "guarded_server.py")), str(port), f"http://127.0.0.1:{back}/callback"
        ):
            state, _ = await start(authorize=browse)
            assert (state.state, state.failure.message) == (
                "auth_required",
                "the client's secret is not there: export HAND=…",
            )
            monkeypatch.setenv("HAND", "hand-secret")
            state, called = await start(authorize=browse)
            assert (state.state, called) == ("connected", "for you"), state
            state, called = await start()
            assert (state.state, called) == ("connected", "for you")

    run(main())
    (file,) = (tmp_path / "own/mcp-tokens").iterdir()
    assert "hand-secret" not in file.read_text()
    assert settings.described()[1] == "auth: oauth by-hand HAND"
    assert "hand-secret" in settings.secrets()


@pytest.mark.parametrize(
    ("auth", "why"),
    [
        ({"kind": "bearer", "token_env": "T", "client_id": "x"}, "no login"),
        ({"kind": "oauth", "client_secret_env": "S"}, "no client"),
    ],
)
def test_the_parts_of_a_client_fit_together(auth, why):
    with pytest.raises(ConfigError, match=why):
        settings_of("s", {"url": "https://h/mcp", "auth": auth}, origin="user")


def test_whose_metadata_the_first_edition_may_name(tmp_path):
    """A path of the server's own origin; no other origin, and none if the server names its authorization server."""
    from mcp.shared.auth import OAuthClientMetadata

    from lyra.mcp.oauth import TokenStore, _Provider

    def learned(issuer: str, *, named: str | None = None) -> str:
        metadata = OAuthClientMetadata.model_validate({"redirect_uris": ["http://127.0.0.1:1/callback"]})
        provider = _Provider("https://host/mcp", metadata, TokenStore(None, "f"))
        provider.context.auth_server_url = named
        request = httpx2.Request("GET", "https://host/.well-known/oauth-authorization-server")
        run(provider._learn(httpx2.Response(200, json={"issuer": issuer}, request=request)))
        return provider._expected_issuer()

    assert learned("https://host/oauth") == "https://host/oauth"
    assert learned("https://other/oauth") == learned("http://host/oauth") == learned("::") == "https://host"
    assert learned("https://host/oauth", named="https://issuer") == "https://issuer"


def test_what_comes_to_the_listener_is_not_believed(tmp_path):
    """A foreign request to the port is refused; a refusal ends the login."""

    async def main():
        from lyra.mcp.oauth import Login, TokenStore
        from lyra.mcp.state import ServerFailed

        async def shown(server, url):
            pass

        settings = ServerSettings(name="a", url="http://127.0.0.1:1/mcp", transport="http", auth={"kind": "oauth"})
        login = Login(settings, TokenStore(None, "f"), shown)
        provider = await login.provider()
        back = str(provider.context.client_metadata.redirect_uris[0])  # type: ignore[index]
        async with httpx2.AsyncClient() as browser:
            assert (await browser.get(f"{back}?code=x&state=y")).status_code == 400  # no login has started yet
            await login._show("http://page")
            assert (await browser.get(back)).status_code == 400
            assert (await browser.get(f"{back}?error=access_denied")).status_code == 200
        with pytest.raises(ServerFailed) as caught:
            await asyncio.wait_for(login._wait(), 5)
        assert (caught.value.state, caught.value.failure.code) == ("auth_required", "access_denied")
        login.close()

    run(main())
