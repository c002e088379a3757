"""Logging in: a page is shown, the browser comes back, the tokens stay with the person."""

from __future__ import annotations

import asyncio
import json
import stat

import httpx2
import pytest

from lyra.mcp import Approvals, McpServers, ServerSettings
from tests.mcp.support import HERE, PYTHON, free_port, http_server, run


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

        with http_server(port, PYTHON, str(HERE / "guarded.py"), str(port)):
            state, called = await start()
            assert state.state == "auth_required"
            assert state.failure is not None
            assert "lyra mcp login guarded" in state.failure.message
            state, called = await start(authorize=browse)
            assert (state.state, called) == ("connected", "for you")
            assert len(pages) == 1
            state, called = await start()  # nobody is there, and nobody is needed
            assert (state.state, called) == ("connected", "for you")
            assert "secret-token" not in json.dumps(state.to_data())
        (file,) = (own / "mcp-tokens").iterdir()
        assert "secret-token-0" in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700

    run(main())
    assert len(pages) == 1
    assert "code_challenge=" in pages[0]


def test_what_comes_to_the_listener_is_not_believed(tmp_path):
    """Somebody else's request to the port is told no; a refusal ends the login."""

    async def main():
        from lyra.mcp.oauth import Login, Tokens
        from lyra.mcp.state import Failed

        async def shown(server, url):
            pass

        settings = ServerSettings(name="a", url="http://127.0.0.1:1/mcp", transport="http", auth={"kind": "oauth"})
        login = Login(settings, Tokens(None, "f"), shown)
        provider = await login.provider()
        back = str(provider.context.client_metadata.redirect_uris[0])  # type: ignore[index]
        async with httpx2.AsyncClient() as browser:
            assert (await browser.get(f"{back}?code=x&state=y")).status_code == 400  # nobody has asked yet
            await login._show("http://page")
            assert (await browser.get(back)).status_code == 400
            assert (await browser.get(f"{back}?error=access_denied")).status_code == 200
        with pytest.raises(Failed) as caught:
            await asyncio.wait_for(login._wait(), 5)
        assert (caught.value.state, caught.value.failure.code) == ("auth_required", "access_denied")
        login.close()

    run(main())
