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

__all__ = ["Azure"]


class Azure(OpenAI):
    def url(self, request: Request) -> str:
        base = self.settings.base_url.removesuffix("/openai")
        if not self.settings.api_version:
            return f"{base.removesuffix('/openai/v1')}/openai/v1/{self.path}"
        version = urlencode({"api-version": self.settings.api_version})
        if self.api == "responses":
            return f"{base}/openai/{self.path}?{version}"
        return f"{base}/openai/deployments/{quote(request.model, safe='')}/{self.path}?{version}"

    def headers(self, request: Request) -> dict[str, str]:
        headers = super().headers(request)
        headers.pop("authorization", None)
        return {**headers, "api-key": self.settings.key()}
