"""Azure OpenAI: OpenAI's formats at another address, with the key in another header.

The model of a request is the name of a deployment. With an `api_version` the address is the older one that names the
deployment; without it the newer `/openai/v1`, which needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from lyra.models.providers.openai import OpenAI

if TYPE_CHECKING:
    from lyra.models.request import Request


class Azure(OpenAI):
    def url(self, request: Request) -> str:
        return self.url_of(self.path, request.model)

    def url_of(self, path: str, model: str) -> str:
        """The address of one of OpenAI's APIs (`chat/completions`) for a deployment."""
        base = self.settings.base_url.removesuffix("/openai")
        if not self.settings.api_version:
            return f"{base.removesuffix('/openai/v1')}/openai/v1/{path}"
        version = urlencode({"api-version": self.settings.api_version})
        if path == "responses":
            return f"{base}/openai/{path}?{version}"
        return f"{base}/openai/deployments/{quote(model, safe='')}/{path}?{version}"

    def headers(self, request: Request) -> dict[str, str]:
        headers = super().headers(request)
        headers.pop("authorization", None)
        return {**headers, "api-key": self.settings.key()}
