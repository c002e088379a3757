"""The OpenAPI document is served and complete; `test_openapi_requests` shows that it is true."""

from __future__ import annotations

from lyra.server.http.api.system import openapi_document
from lyra.server.site import site
from tests.server.http.support import Served, served


@served()
async def test_the_document_is_served_without_a_token_and_has_every_endpoint(parts: Served) -> None:
    document = (await parts.stranger.get("/openapi.json")).json()
    assert document == openapi_document(site())
    operations = {
        operation["operationId"]: (method.upper(), path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert operations == {
        endpoint.name: (endpoint.method, endpoint.path) for endpoint in site() if endpoint.is_documented
    }
