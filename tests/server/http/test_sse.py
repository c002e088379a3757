"""A log of events that many readers share: each gets all of it, a little at a time."""

from __future__ import annotations

from lyra.server.http.sse import SseLog
from tests.server.http.support import events_of, in_loop


def test_a_reader_that_is_behind_gets_what_it_missed_in_small_pieces() -> None:
    """What a client does not take is kept for it: a thousand slow ones must not each be given the whole log at once."""
    log = SseLog("log", events_max=5_000, bytes_max=8 * 1024 * 1024)
    for number in range(400):
        log.append("alert", {"number": number, "text": "x" * 10_000})
    log.end()

    async def read() -> list[bytes]:
        return [piece async for piece in log.read(0)]

    pieces = in_loop(read())
    assert max(map(len, pieces)) < 128 * 1024
    events = events_of(b"".join(pieces).decode())
    assert [event.data["number"] for event in events] == list(range(400))


def test_events_for_others_are_passed_over() -> None:
    """A reader to whom only the last of many events belongs gets that one."""
    log = SseLog("log", events_max=5_000, bytes_max=8 * 1024 * 1024)
    for number in range(400):
        log.append("alert", {"number": number, "text": "x" * 10_000}, owner="ada" if number == 399 else "bob")
    log.end()

    async def read() -> list[bytes]:
        return [piece async for piece in log.read(0, wanted=lambda logged: logged.owner == "ada")]

    pieces = in_loop(read())
    assert [event.data["number"] for event in events_of(b"".join(pieces).decode())] == [399]
