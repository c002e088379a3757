"""The server of the campaigns, and the calls that its clients make.

`GatewayServer` is a `lyra serve --gateway` that can be killed and started again on its store; `ask` makes one call and
says what the client has seen of it. A call that fails while the server lives is a defect, told as `Outcome.problem`.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from verify.crash.gateway.bill import MODEL, BilledProvider
from verify.served import OPERATOR, ServedProcess

__all__ = ["PROVIDER_KEY", "GatewayServer", "Outcome", "is_over_budget"]

PROVIDER_KEY: Final = "sk-provider-key-of-the-campaign-4417"
_TIMEOUT_S: Final = 120.0
_PROVIDER_FAILED: Final = (502, 503)  # broken off, or not asked because it was broken off too often
_HELD: Final = b"of the key's budget, which this call needs"  # the words of a 429 that is about the key's money
_SETUP: Final = "def setup(kernel):\n    pass\n"


class Outcome(NamedTuple):
    """What a client has seen: the whole answer or not, its status (0: none), and what should not have been."""

    is_whole: bool
    status: int
    problem: str = ""
    is_over_budget: bool = False  # refused for want of money: it is spent, or calls in flight hold it


def is_over_budget(status: int, text: bytes) -> bool:
    """Tell whether a call was refused for want of money; a provider's own 429 is about something else."""
    return status == 402 or (status == 429 and _HELD in text)


class GatewayServer:
    """See the module."""

    def __init__(self, folder: Path, db: str, provider: BilledProvider) -> None:
        (folder / "nothing.py").write_text(_SETUP)
        env = {"OPENAI_API_KEY": PROVIDER_KEY, "OPENAI_BASE_URL": provider.url}
        self._provider = provider
        self.process = ServedProcess(folder, db, load=folder / "nothing.py", flags=["--gateway"], env=env)
        limits = httpx.Limits(max_connections=None)
        headers = {"authorization": f"Bearer {OPERATOR}"}
        self._operator = httpx.AsyncClient(timeout=_TIMEOUT_S, headers=headers)
        self._client = httpx.AsyncClient(timeout=_TIMEOUT_S, limits=limits)

    @property
    def is_alive(self) -> bool:
        return self.process.running_pid is not None

    async def close(self) -> None:
        await self._operator.aclose()
        await self._client.aclose()
        self.process.close()

    async def operate(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """A request of the operator: status and JSON; (0, None) where the server was killed meanwhile."""
        try:
            answer = await self._operator.request(method, f"http://{self.process.http}{path}", **options)
        except httpx.HTTPError:
            await asyncio.sleep(0.1)  # the death of a process is seen a moment later than the end of its connections
            if self.is_alive:
                raise
            return 0, None
        return answer.status_code, answer.json()

    async def keys(self) -> dict[str, dict[str, Any]]:
        """The keys in force, by name."""
        status, listed = await self.operate("GET", "/api/keys")
        assert status == 200, listed
        return {key["name"]: key for key in listed["keys"]}

    async def ask(
        self, key: str, request_id: str, mode: str = "stream", *, tokens_max: int = 100, leave_after: int | None = None
    ) -> Outcome:
        """Make a call; with `leave_after`, the client leaves after so many pieces."""
        body = {
            "model": f"openai/{MODEL}",
            "messages": [{"role": "user", "content": "Say a word."}],
            "max_completion_tokens": tokens_max,
            "user": f"{mode}.{request_id}",
            "stream": mode != "whole",
        }
        url, headers = f"http://{self.process.http}/v1/chat/completions", {"authorization": f"Bearer {key}"}
        status, pieces = 0, []
        try:
            if leave_after is not None and mode == "whole":
                await self._leave_unanswered(url, body, headers)
                return Outcome(False, status)
            async with self._client.stream("POST", url, json=body, headers=headers) as answer:
                status = answer.status_code
                async for piece in answer.aiter_bytes():
                    pieces.append(piece)
                    if leave_after is not None and len(pieces) > leave_after and status == 200:
                        return Outcome(False, status)
        except httpx.HTTPError as error:
            await asyncio.sleep(0.1)
            problem = f"{type(error).__name__}: {error}" if self.is_alive else ""
            return Outcome(False, status, problem)
        text = b"".join(pieces)
        if status != 200:
            is_defect = status >= 500 and status not in _PROVIDER_FAILED
            problem = f"{status} {text[:300]!r}" if is_defect else ""
            return Outcome(False, status, problem, is_over_budget(status, text))
        is_whole = b"[DONE]" in text or (mode == "whole" and text.endswith(b"}"))
        return Outcome(is_whole, status)

    async def _leave_unanswered(self, url: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        """Ask, and leave once the provider has the request, or the server has refused it."""
        asking = asyncio.create_task(self._client.post(url, json=body, headers=headers))
        while not asking.done() and body["user"] not in self._provider.bill:  # noqa: ASYNC110 - it knows of no client
            await asyncio.sleep(0.01)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
