"""What a server sends is made short on its way in: the loop is never held up, and what is left is JSON."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from lyra.errors import ToolError
from lyra.mcp import ServerSettings
from lyra.mcp.transports import AnswerTooLarge, Trim, shorten
from tests import warm
from tests.mcp.support import HERE, free_port, http_server, run, using


def trimmed(body: bytes, *, step: int, events: bool = False) -> bytes:
    trim = Trim(events=events)
    return b"".join(trim.feed(body[start : start + step]) for start in range(0, len(body), step)) + trim.close()


SMALL = [
    {"a": 'quote " and \\ and \n', "b": [1, 2.5, None, True], "c": {}, "d": "é\U0001f600", "": "\\"},
    {"content": [{"type": "image", "data": "QUJD", "mimeType": "image/png"}]},
    "text",
    [],
]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 64, 10_000])
@pytest.mark.parametrize("value", SMALL)
@pytest.mark.parametrize("plain", [True, False])
def test_what_is_short_stays_as_it_is(value, step, plain):
    body = json.dumps(value, ensure_ascii=plain, indent=1).encode()
    assert trimmed(body, step=step) == body


@pytest.mark.parametrize("step", [1_000, 65_536, 10**9])
@pytest.mark.parametrize("unit", ["x", "é", "\U0001f600", "\n", '"', "\\", "a\U0001f600\\"])
@pytest.mark.parametrize("plain", [True, False])
def test_a_long_text_is_cut_between_two_characters(unit, step, plain):
    """Its beginning is there, it says that it was cut, and everything after it is whole."""
    body = json.dumps({"before": 1, "text": unit * 400_000, "after": [unit]}, ensure_ascii=plain).encode()
    result = json.loads(trimmed(body, step=step))
    text, _, note = result["text"].rpartition("\n…")
    assert (unit * 400_000).startswith(text)
    assert len(text.encode()) > 20_000
    assert note == " the rest was left out"
    assert (result["before"], result["after"]) == (1, [unit])
    assert len(json.dumps(result, ensure_ascii=plain).encode()) < 300_000


def test_bytes_are_kept_up_to_a_size_and_then_seen_to_be_cut():
    """A picture that a model can be shown comes through whole."""
    body = json.dumps({"content": [{"data": "A" * 2_000_000}, {"blob": "B" * 2_000_000}, {"text": "C" * 10}]}).encode()
    first, second, third = json.loads(trimmed(body, step=65_536))["content"]
    assert first["data"] == "A" * 2_000_000
    assert len(second["blob"]) < 1_200_000
    assert "…" in second["blob"]
    assert third["text"] == "C" * 10


def test_too_much_is_an_error():
    with pytest.raises(AnswerTooLarge, match="values"):
        trimmed(json.dumps(list(range(100_002))).encode(), step=65_536)
    assert trimmed(json.dumps(["," * 60] * 5_000).encode(), step=65_536)  # commas inside a text do not count
    with pytest.raises(AnswerTooLarge, match="32 MiB"):
        trimmed(b'"' + b"x" * (33 << 20), step=1 << 20)


@pytest.mark.parametrize("step", [7, 65_536])
@pytest.mark.parametrize("events", [False, True])
def test_lists_and_mappings_are_counted_and_so_is_their_depth(step, events):
    """Each takes the SDK as long as many numbers; brackets in texts are text."""
    for many in (
        b"[" + b"[]," * 25_000 + b"1]",
        b"[" + b'{"a":1},' * 25_000 + b"1]",
        b"[" + (b"[" * 9 + b"]" * 9) * 3_000,
    ):
        with pytest.raises(AnswerTooLarge, match="more than 25000 lists and mappings"):
            trimmed(many, step=step, events=events)
    for deep in (b"[" * 201, b'{"a":' * 201, b'[{"a":' * 101):
        with pytest.raises(AnswerTooLarge, match="nested more than 200 levels deep"):
            trimmed(deep, step=step, events=events)
    for fine in (json.dumps(["[{" * 50_000]).encode(), b"[" * 200 + b"]" * 200, b"[" + b"[]," * 20_000 + b"1]"):
        assert trimmed(fine, step=step) == fine


def test_each_event_is_a_message_of_its_own():
    """A long life is no large answer, and a comment with a quote in it opens no text."""
    event = b": it's \"so\n\nevent: message\r\ndata: " + json.dumps({"text": "x" * 900_000, "n": [1] * 60_000}).encode()
    stream = trimmed((event + b"\r\n\r\n") * 40, step=50_000, events=True)
    lines = [line[6:] for line in stream.splitlines() if line.startswith(b"data: ")]
    assert [len(json.loads(line)["n"]) for line in lines] == [60_000] * 40
    assert stream.count(b": it's \"so\n\n") == 40


def test_parts_are_bounded():
    result: dict[str, Any] = {"content": [{"type": "text", "text": "x"}] * 5_000, "other": [1] * 5_000}
    shorten(result)
    assert (len(result["content"]), len(result["other"])) == (1_001, 5_000)
    assert result["content"][-1]["text"] == "… 4000 parts left out"


def test_large_results_do_not_hold_up_the_loop(tmp_path):
    """Twenty megabytes in one answer, of every shape: the loop takes less than 50 ms of a processor's time at once."""
    port = free_port()
    taken: list[float] = []

    async def beat() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.002)
            taken.append(time.thread_time() - before)

    async def main() -> dict[str, object]:
        settings = ServerSettings(name="big", url=f"http://127.0.0.1:{port}/mcp", transport="http", timeout_s=60)
        with http_server(port, *warm.command(str(HERE / "big_server.py")), str(port)):
            async with using(settings, folder=tmp_path) as use:
                beating = asyncio.ensure_future(beat())
                results: dict[str, object] = {}
                for name in use.state("big").tools:
                    try:
                        results[name.removeprefix("mcp__big__")] = await use.call(name)
                    except ToolError as error:
                        results[name.removeprefix("mcp__big__")] = error.message
                    assert use.state("big").state == "connected"
                beating.cancel()
                return results

    results = run(main(), 120)
    taken.sort()
    assert taken[int(0.99 * len(taken))] < 0.05, (taken[-5:], len(taken))
    for way in ("json", "sse"):
        assert str(results[f"text_{way}"]).startswith("xxx")
        assert "left out" in str(results[f"text_{way}"])
        assert str(results[f"escaped_{way}"]).startswith('é\n"\\é')
        assert str(results[f"parts_{way}"]).startswith("0 yyy")
        assert "[0,1,2" in str(results[f"structured_{way}"])
        assert "cannot be read" in str(results[f"picture_{way}"])
    assert "more than 100000 values" in str(results["crowded_json"])
    assert "more than 25000 lists and mappings" in str(results["deep_json"])
