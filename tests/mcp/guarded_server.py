"""A server behind a login: it issues its own tokens, to every client that opens the page. Run with a port."""

from __future__ import annotations

import sys
import time
from typing import Any

from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 0
CALLBACK = sys.argv[2] if len(sys.argv) > 2 else ""  # then only the client that was registered by hand is known
HOME = f"http://127.0.0.1:{PORT}"


class Provider:
    """Everybody who asks gets a code at once; a token holds for an hour."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        if CALLBACK:
            self.clients["by-hand"] = OAuthClientInformationFull.model_validate(
                {
                    "client_id": "by-hand",
                    "client_secret": "hand-secret",
                    "redirect_uris": [CALLBACK],
                    "token_endpoint_auth_method": "client_secret_basic",
                }
            )

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = f"code-{len(self.codes)}"
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: AuthorizationCode) -> OAuthToken:
        del self.codes[authorization_code.code]
        token = f"secret-token-{len(self.tokens)}"
        self.tokens[token] = AccessToken(
            token=token,
            client_id=authorization_code.client_id,
            scopes=authorization_code.scopes,
            expires_at=int(time.time()) + 3600,
            resource=authorization_code.resource,
        )
        return OAuthToken(access_token=token, token_type="Bearer", expires_in=3600)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return None

    async def exchange_refresh_token(self, client: Any, refresh_token: Any, scopes: Any) -> OAuthToken:
        raise NotImplementedError

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.tokens.clear()


def main() -> None:
    settings = AuthSettings.model_validate(
        {
            "issuer_url": HOME,
            "resource_server_url": f"{HOME}/mcp",
            "validate_token_resource": False,
            "client_registration_options": ClientRegistrationOptions(enabled=not CALLBACK),
        }
    )
    server = MCPServer("guarded", auth_server_provider=Provider(), auth=settings)  # type: ignore[arg-type]

    @server.tool()
    def secret() -> str:
        """Only for those who logged in."""
        return "for you"

    server.run("streamable-http", port=PORT)


if __name__ == "__main__":
    main()
