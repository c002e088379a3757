"""OpenAI, and every server with its format behind a base URL: the address and the headers.

`api = "responses"` chooses the Responses API; chat completions are the default, because all compatible servers have
them. OpenAI's own models from GPT-5.2 on are asked by the Responses API all the same: in chat completions they refuse
tools while they think. The wire formats are in `openai_chat` and `openai_responses`.

It stands alone beside the modules of the other providers.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote, urlencode

from lyra.models.conversation_parts import first_call_number
from lyra.models.provider import Request
from lyra.models.providers.openai_chat import ChatReader, chat_body
from lyra.models.wire.remote import Reader, RemoteProvider

_VERSION: Final = re.compile(r"gpt-(\d{1,2})(?:\.(\d{1,2}))?(?:-|$)")
_PATHS: Final = {"chat": "chat/completions", "responses": "responses"}


class OpenAI(RemoteProvider):
    own = ("openai", "azure")  # names of providers that are OpenAI's own servers, not look-alikes

    @property
    def searches_web(self) -> bool:  # type: ignore[override]  # an attribute of the others
        """Return whether the server is OpenAI's own: look-alikes have no search."""
        return self.name in self.own

    def api(self, request: Request) -> str:
        version = _VERSION.match(request.model)
        is_late = version is not None and (int(version[1]), int(version[2] or 0)) >= (5, 2)
        is_new = (is_late or request.web_search) and self.name in self.own and not request.stop
        return self.settings.api or ("responses" if is_new else "chat")

    def url(self, request: Request) -> str:
        return f"{self.settings.base_url}/{_PATHS[self.api(request)]}"

    def headers(self, request: Request) -> dict[str, str]:
        key = self.settings.key()
        return {"authorization": f"Bearer {key}"} if key else {}

    def body(self, request: Request) -> dict[str, Any]:
        if self.api(request) == "responses":
            from lyra.models.providers.openai_responses import responses_body

            return responses_body(request)
        return chat_body(request, compatible=self.name not in self.own)

    def reader(self, request: Request) -> Reader:
        if self.api(request) == "responses":
            from lyra.models.providers.openai_responses import ResponsesReader

            return ResponsesReader(first_call_number(request))
        return ChatReader(first_call_number(request))


class Azure(OpenAI):
    """Azure OpenAI: OpenAI's formats at another address, with the key in another header.

    The model of a request is the name of a deployment. With an `api_version` the address is the older one that names
    the deployment; without it the newer `/openai/v1`, which needs none."""

    def url(self, request: Request) -> str:
        return self.url_of(_PATHS[self.api(request)], request.model)

    def url_of(self, path: str, model: str) -> str:
        """Return the address of one of OpenAI's APIs (`chat/completions`) for a deployment."""
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
