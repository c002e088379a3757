"""Talking to an agent: one answer or a stream, a session that goes on, a stream that is read again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lyra.store.protocol import Lease, make_lost_conflict
from tests.server.http.support import ADA, Served, client, echo, events_of, in_loop, scripted, served, serving, text_of

CHAT = "/api/agents/echo/chat"
STREAM = "/api/agents/echo/chat/stream"


@served()
async def test_a_chat_gives_the_answer_and_goes_on_in_its_session(parts: Served) -> None:
    first = (await parts.ada.post(CHAT, json={"message": "good morning"})).json()
    assert first["text"] == "good morning"
    second = (await parts.ada.post(CHAT, json={"message": "again", "session_id": first["session_id"]})).json()
    assert second["session_id"] == first["session_id"]
    process = parts.kernel.agent(f"chat-bc5i62.{first['session_id']}")
    assert [message.text for message in process.messages] == ["good morning", "good morning", "again", "again"]


@served()
async def test_a_stream_has_typed_events_with_unique_ids_and_ends_with_the_result(parts: Served) -> None:
    answer = await parts.ada.post(STREAM, json={"message": "one two three"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer.text)
    assert [event.word for event in events] == ["session", *["text_delta"] * 3, "usage", "result"]
    assert text_of(events) == "one two three" == events[-1].data["text"]
    assert len({event.id for event in events}) == len(events)


@served()
async def test_a_stream_is_read_on_after_any_event_also_after_its_end(parts: Served) -> None:
    """GET of the same URL with Last-Event-ID gives exactly what came after that event."""
    events = events_of((await parts.ada.post(STREAM, json={"message": "a b c d"})).text)
    for place, event in enumerate(events):
        again = await parts.ada.get(STREAM, headers={"last-event-id": event.id})
        assert events_of(again.text) == events[place + 1 :]
    whole = await parts.ada.get(STREAM, params={"session_id": events[0].data["session_id"]})
    assert events_of(whole.text) == events
    assert (await parts.ada.get(STREAM)).status_code == 400
    assert (await parts.ada.get(STREAM, headers={"last-event-id": "none:x.3"})).status_code == 404


SLOW = scripted("echo", {"text": "one two three four five six", "chunk_s": 0.05})


@served(SLOW)
async def test_a_server_whose_store_is_taken_over_names_no_owner(parts: Served) -> None:
    """What was under way may have been carried out: 502, and no word of machines, processes and epochs."""
    asked = asyncio.ensure_future(parts.ada.post(CHAT, json={"message": "x"}))
    while not any(process.pid.startswith("chat-") for process in parts.kernel.processes.values()):
        await asyncio.sleep(0.01)
    taken = make_lost_conflict(Lease("vm/a-machine/pid:7", 4, 0.0), Lease("vm/another/pid:8", 5, 0.0))
    parts.kernel.core.abort(taken)
    answer = await asked
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "unreachable")
    assert "machine" not in answer.text
    assert "epoch" not in answer.text
    later = await parts.ada.post(CHAT, json={"message": "x"})
    assert (later.status_code, later.json()["error"]["code"]) == (503, "overloaded")


@served(SLOW)
async def test_an_answer_goes_on_when_its_reader_leaves(parts: Served) -> None:
    """The connection is lost in the middle; the rest is read by another, without a gap and without a repeat."""
    before = []
    async with parts.ada.stream("POST", STREAM, json={"message": "x"}) as response:
        text = ""
        async for piece in response.aiter_text():
            text += piece
            before = events_of(text)
            if len(before) >= 3:
                break
    again = await parts.ada.get(STREAM, headers={"last-event-id": before[-1].id})
    after = events_of(again.text)
    assert text_of(before) + text_of(after) == "one two three four five six"
    assert after[-1].word == "result"


@served()
async def test_another_users_session_is_denied(parts: Served) -> None:
    """Neither to talk in it nor to read its streams; a token without a user may act for the owner."""
    events = events_of((await parts.ada.post(STREAM, json={"message": "secret"})).text)
    session_id = events[0].data["session_id"]
    assert (await parts.bob.post(CHAT, json={"message": "x", "session_id": session_id})).status_code == 403
    assert (await parts.bob.get(STREAM, headers={"last-event-id": events[0].id})).status_code == 404
    assert (await parts.bob.get(STREAM, params={"session_id": session_id})).status_code == 404
    for_ada = {"message": "x", "session_id": session_id, "user_id": "ada"}
    assert (await parts.operator.post(CHAT, json=for_ada)).status_code == 200
    assert (await parts.bob.post(CHAT, json=for_ada)).status_code == 403


@served()
async def test_an_event_of_another_session_is_not_read_through_ones_own(parts: Served) -> None:
    """Naming a session of one's own beside the id of an event of another user's stream gives nothing of that stream."""
    events = events_of((await parts.ada.post(STREAM, json={"message": "between ada and the agent"})).text)
    await parts.bob.post(CHAT, json={"message": "x", "session_id": "of-bob"})
    header = {"last-event-id": events[0].id}
    for path in (f"{STREAM}?session_id=of-bob", "/api/runs/of-bob/events"):
        answer = await parts.bob.get(path, headers=header)
        assert answer.status_code == 404, path
        assert "between" not in answer.text


@served()
async def test_what_is_wrong_with_a_message_is_said(parts: Served) -> None:
    assert (await parts.ada.post("/api/agents/nope/chat", json={"message": "x"})).status_code == 404
    for wrong in ({}, {"message": 3}, {"message": "x", "mesage": "y"}, {"message": "x", "session_id": "a b"}, []):
        refused = await parts.ada.post(CHAT, json=wrong)
        assert refused.status_code == 400, wrong
        assert refused.json()["error"]["message"]
    refused = await parts.ada.post(CHAT, content=b"{", headers={"content-type": "application/json"})
    assert refused.status_code == 400
    refused = await parts.ada.post(CHAT, content=b"message=x", headers={"content-type": "text/plain"})
    assert refused.status_code == 415


FAILING = scripted("echo", {"error": {"kind": "auth"}})


@served(FAILING)
async def test_a_failed_answer_is_an_error_in_both_forms(parts: Served) -> None:
    failed = await parts.ada.post(CHAT, json={"message": "x"})
    assert failed.status_code == 502
    assert failed.json()["error"]["code"] == "model_error"
    events = events_of((await parts.ada.post(STREAM, json={"message": "x"})).text)
    assert [event.word for event in events][-2:] == ["error", "result"]
    assert events[-2].data["code"] == "model_error"


def test_a_session_and_its_answer_outlive_the_server(tmp_path: Path) -> None:
    """After a restart the session goes on, is still its owner's, and its last answer can be read."""
    store = str(tmp_path / "lyra.db")

    async def first() -> list[str]:
        async with serving(echo(), store=store) as parts:
            events = events_of((await parts.ada.post(STREAM, json={"message": "remember me"})).text)
            return [events[0].data["session_id"], events[1].id]

    async def second(session_id: str, event_id: str) -> None:
        async with serving(echo(), store=store) as parts:
            again = events_of((await parts.ada.get(STREAM, headers={"last-event-id": event_id})).text)
            assert [event.word for event in again] == ["session", "restart", "text_delta", "result"]
            assert text_of(again) == "remember me"
            assert (await parts.bob.get(STREAM, headers={"last-event-id": event_id})).status_code == 404
            more = await parts.ada.post(CHAT, json={"message": "more", "session_id": session_id})
            assert more.json()["text"] == "more"
            process = parts.kernel.agent(f"chat-bc5i62.{session_id}")
            assert len(process.messages) == 4

    session_id, event_id = in_loop(first())
    in_loop(second(session_id, event_id))


@served(SLOW)
async def test_stopping_lets_an_answer_finish(parts: Served) -> None:
    """`stop` waits for a stream that is being read, to its last event."""
    async with client(parts.address, ADA) as ada, asyncio.TaskGroup() as group:
        reading = group.create_task(ada.post(STREAM, json={"message": "x"}))
        while not parts.face.app.parts.chats.running:
            await asyncio.sleep(0.01)
        await parts.face.stop(10)
        assert text_of(events_of((await reading).text)) == "one two three four five six"
        assert not parts.face.app.parts.chats.running


LONG = scripted("echo", {"user": "hello", "text": "hello"}, {"text": "word " * 400, "chunk_s": 0.05})


@served(LONG)
async def test_a_turn_that_was_not_begun_here_is_followed_and_stopped(parts: Served) -> None:
    """Asked in the process itself after an answer of the chat: its stream is not the one of before, a cancel stops it,
    the stream says so, and the session goes on."""
    body = {"message": "hello", "session_id": "s"}
    assert (await parts.ada.post(CHAT, json=body)).json()["text"] == "hello"
    process = parts.kernel.agent("chat-bc5i62.s")
    process.send_async("a long one")
    while process.current is None or process.execution is None or not process.execution.running:
        await asyncio.sleep(0.01)
    reading = asyncio.ensure_future(parts.ada.get(STREAM, params={"session_id": "s"}))
    await asyncio.sleep(0.1)
    assert (await parts.ada.post("/api/sessions/s/cancel")).json() == {"cancelled": 1}
    events = events_of((await reading).text)
    assert [event.word for event in events] == ["session", "restart", "result"], events
    assert events[-1].data["status"] == "cancelled"
    assert (await parts.ada.post("/api/sessions/s/cancel")).json() == {"cancelled": 0}
    assert (await parts.ada.post(CHAT, json=body)).json()["text"] == "hello"
