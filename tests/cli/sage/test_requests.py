"""`sage -p --input-format stream-json`: several turns in one session, driven by a program on stdin."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from typing import Any

import pytest

from tests.cli.agent_runner import DONE, call
from tests.cli.sage.conftest import Sage

IN = ("--input-format", "stream-json")
OUT = ("--output-format", "stream-json")


def user(text: str) -> str:
    return json.dumps({"type": "user", "text": text}) + "\n"


def results(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(line["status"], line["text"]) for line in lines if line["type"] == "result"]


def test_several_messages_are_turns_of_one_session(sage: Sage) -> None:
    """Each has its result; the words of the command line come first; empty lines are passed over."""
    given = user("one") + "\n" + user("two")
    lines = sage.lines("-p", *IN, *OUT, "--model", "sim/echo", "zero", stdin=given)
    assert results(lines) == [("success", "zero"), ("success", "one"), ("success", "two")]
    assert [line["type"] for line in lines].count("system") == 1
    assert [line["turn"] for line in lines if line["type"] == "result"] == [1, 2, 3]
    (record,) = sage.json("sessions", "list", "--json")
    assert (record["id"], record["turns"]) == (lines[0]["session_id"], 3)
    again = sage.lines("-c", *IN, *OUT, "--model", "sim/echo", stdin=user("four"))
    assert (again[-1]["session_id"], again[-1]["turn"]) == (record["id"], 4)


@pytest.mark.parametrize("content", ["one\n\ntwo", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]])
def test_a_message_may_have_the_shape_of_claude_code(sage: Sage, content: Any) -> None:
    request = {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None}
    given = json.dumps({**request, "session_id": "", "uuid": "u"}) + "\n"
    assert results(sage.lines("-p", *IN, *OUT, "--model", "sim/echo", stdin=given)) == [("success", "one\n\ntwo")]


@pytest.mark.parametrize(
    "line",
    [
        '{"type": "user", "message": {"role": "assistant", "content": "x"}}',
        '{"type": "user", "message": {"role": "user", "content": [{"type": "image", "source": {}}]}}',
        "nonsense",
        "[]",
        '{"type": "user"}',
        '{"type": "user", "text": ""}',
        '{"type": "user", "text": "x", "evil": 1}',
        '{"type": "delete"}',
        '{"type": "answer", "id": "not-there", "decision": "allow"}',
        "\\ud800",
    ],
)
def test_a_line_that_is_no_request_is_told(sage: Sage, line: str) -> None:
    """As an error line; the next one is read."""
    lines = sage.lines("-p", *IN, *OUT, "--model", "sim/echo", stdin=f"{line}\n{user('one')}")
    assert [entry["type"] for entry in lines].count("error") == 1
    assert results(lines) == [("success", "one")]


def test_no_message_at_all(sage: Sage) -> None:
    done = sage("-p", *IN, *OUT, "--model", "sim/echo", stdin="")
    assert (done.returncode, "no message came" in done.stderr) == (2, True)


def test_the_exit_code_is_that_of_the_last_turn(sage: Sage) -> None:
    refused = {"error": {"kind": "auth", "message": "no such key"}}
    model = sage.script(refused, DONE, name="one.json")
    failed = sage("-p", *IN, *OUT, "--model", sage.script(refused), stdin=user("one"))
    assert failed.returncode != 0
    assert json.loads(failed.stdout.splitlines()[-1])["status"] != "success"
    assert sage("-p", *IN, *OUT, "--model", model, stdin=user("one") + user("two")).returncode == 0


def test_a_budget_refuses_a_turn_and_not_the_session(sage: Sage) -> None:
    """The refused message has an error and a result; the next one is tried all the same."""
    price = {"input_usd_per_mtok": 10, "output_usd_per_mtok": 10}
    spends = {"text": "x", "usage": {"input_tokens": 40_000, "output_tokens": 10_000}}
    model = sage.script(spends, spends, price=price)
    lines = [
        json.loads(line)
        for line in sage(
            *("-p", *IN, *OUT, "--model", model, "--set", "sage.session_budget_usd=0.40"),
            stdin=user("one") + user("two") + user("three"),
        ).stdout.splitlines()
    ]
    assert results(lines) == [("success", "x"), ("budget_exceeded", ""), ("budget_exceeded", "")]


def test_the_formats_have_to_fit(sage: Sage) -> None:
    done = sage("-p", *IN, "--model", "sim/echo", stdin=user("one"))
    assert (done.returncode, "add --output-format stream-json" in done.stderr) == (2, True)


def test_a_question_without_a_reader_is_withdrawn(sage: Sage) -> None:
    """After the end of the input nothing can answer: the model is told, and the turn goes on."""
    model = sage.script(
        call("Write", file_path="made", content="x"), call("AskUser", question="Which?"), {"text": "{result}"}
    )
    lines = sage.lines("-p", *IN, *OUT, "--model", model, stdin=user("go"))
    assert [line["type"] for line in lines].count("interrupt") == 2
    assert lines[-1]["status"] == "success"
    assert not (sage.folder / "made").exists()


def test_a_slash_command_does_what_it_says(sage: Sage) -> None:
    """It has a result and asks no model; one that opens another session is refused with the command for it."""
    given = user("one") + user("/title A name") + user("/fork") + user("/usr/lib is a path") + user("/init now")
    lines = sage.lines("-p", *IN, *OUT, "--model", "sim/echo", stdin=given)
    told = results(lines)
    assert [status for status, _ in told] == ["success", "success", "config", "success", "success"]
    assert "title: A name" in told[1][1]
    assert told[3][1] == "/usr/lib is a path"
    assert "AGENTS.md" in told[4][1]
    (error,) = [line for line in lines if line["type"] == "error"]
    assert error["hint"] == f"sage -r {lines[0]['session_id']} --fork"


def test_an_answer_to_no_question_says_where_the_id_is(sage: Sage) -> None:
    answer = json.dumps({"type": "answer", "id": "zz", "decision": "allow"})
    lines = sage.lines("-p", *IN, *OUT, "--model", "sim/echo", stdin=f"{answer}\n{user('one')}")
    (error,) = [line for line in lines if line["type"] == "error"]
    assert "zz" in error["message"]
    assert "interrupt" in error["hint"]


# ---------------------------------------------------------------- while it runs
class Talk:
    """A process that is written to while it runs; one that hangs is killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._watch = threading.Timer(120, process.kill)
        self._watch.start()

    def write(self, **request: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def until(self, kind: str) -> dict[str, Any]:
        """Read up to the next line of this type."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            line: dict[str, Any] = json.loads(text)
            self.lines.append(line)
            if line["type"] == kind:
                return line
        raise AssertionError(f"no {kind}: {self.lines}")

    def end(self) -> int:
        self.process.communicate()
        self._watch.cancel()
        return self.process.returncode


@pytest.mark.slow
def test_questions_are_answered(sage: Sage) -> None:
    """A call is allowed, or allowed with other arguments, or denied; a question in words gets its text."""
    writes = [call("Write", file_path=f"{name}.txt", content="x") for name in "abc"]
    model = sage.script(*writes, call("AskUser", question="Which colour?"), {"text": "{result}"})
    talk = Talk(sage.start("-p", *IN, *OUT, "--model", model))
    talk.write(type="user", text="go")
    question = talk.until("interrupt")
    assert (question["tool"], question["arguments"]["file_path"]) == ("Write", "a.txt")
    talk.write(type="answer", id=question["id"], decision="allow")
    question = talk.until("interrupt")
    edited = {"file_path": "edited.txt", "content": "y"}
    talk.write(type="answer", id=question["id"], decision="allow", arguments=edited)
    talk.write(type="answer", id=talk.until("interrupt")["id"], decision="deny", text="not that one")
    talk.write(type="answer", id=talk.until("interrupt")["id"], text="blue")
    result = talk.until("result")
    assert talk.end() == 0
    assert "blue" in result["text"]
    assert sorted(path.name for path in sage.folder.iterdir()) == ["a.txt", "edited.txt"]
    assert (sage.folder / "edited.txt").read_text() == "y"


@pytest.mark.slow
def test_a_turn_is_interrupted_and_the_next_one_goes_on(sage: Sage) -> None:
    """What was said before stays in the conversation; an interrupt without a turn does nothing."""
    slow = {"text": "a long answer " * 200, "chunk_s": 0.02}
    talk = Talk(sage.start("-p", *IN, *OUT, "--model", sage.script(slow, DONE)))
    talk.write(type="interrupt")
    talk.write(type="user", text="go")
    for _ in range(4):
        talk.until("text_delta")
    talk.write(type="user", text="and then this")
    talk.write(type="interrupt")
    assert talk.until("result")["status"] == "interrupted"
    assert talk.until("result")["text"] == "All done."
    assert talk.end() == 0
    (record,) = sage.json("sessions", "list", "--json")
    shown = sage("sessions", "show", record["id"]).stdout
    assert "a long answer" in shown
    assert "stopped by the user" in shown


@pytest.mark.slow
def test_a_message_steers_the_turn_that_is_under_way(sage: Sage) -> None:
    """With `steer` it is in the model's next request, told by a notice, and no turn of its own; one that comes too late
    is the next turn."""
    model = sage.script(call("Bash", command="sleep 1"), {"text": "{user}"}, {"text": "late"})
    talk = Talk(sage.start("-p", *IN, *OUT, "--allowed-tools", "Bash", "--model", model))
    talk.write(type="user", text="go")
    talk.until("tool_start")
    talk.write(type="user", text="use tabs", steer=True)
    notice = talk.until("notice")
    assert (notice["source"], notice["text"]) == ("user", "use tabs")
    assert "use tabs" in talk.until("result")["text"]
    talk.write(type="user", text="and now?", steer=True)
    assert talk.until("result")["turn"] == 2
    assert talk.end() == 0
    assert [line["type"] for line in talk.lines].count("result") == 2


@pytest.mark.slow
def test_a_signal_ends_with_what_was_said_by_then(sage: Sage) -> None:
    """The last line is the result of the turn, with its text and what it used; a session goes on from there."""
    slow = {"text": "a long answer " * 2000, "chunk_s": 0.02}
    talk = Talk(sage.start("-p", *IN, *OUT, "--model", sage.script(slow, DONE)))
    talk.write(type="user", text="go")
    for _ in range(4):
        talk.until("text_delta")
    talk.process.send_signal(signal.SIGTERM)
    result = talk.until("result")
    assert (result["status"], result["turn"]) == ("interrupted", 1)
    assert result["text"].startswith("a long answer a ")
    assert talk.end() == 128 + signal.SIGTERM
    (record,) = sage.json("sessions", "list", "--json")
    assert (record["id"], record["state"]) == (result["session_id"], "interrupted")


@pytest.mark.slow
def test_one_printed_task_that_a_signal_ends_gives_its_text(sage: Sage) -> None:
    """In the middle of a call: what the model said before it."""
    waits = {"text": "I look first.", **call("Bash", command="sleep 600")}
    talk = Talk(sage.start("-p", "go", *OUT, "--allowed-tools", "Bash", "--model", sage.script(waits)))
    talk.until("tool_start")
    talk.process.send_signal(signal.SIGTERM)
    result = talk.until("result")
    assert (result["status"], result["text"]) == ("interrupted", "I look first.")
    assert talk.end() == 128 + signal.SIGTERM


@pytest.mark.slow
def test_a_reader_that_leaves_ends_the_run(sage: Sage) -> None:
    """As any program whose pipe is closed: exit 141, and nothing about it on stderr."""
    slow = {"text": "a long answer " * 2_000, "chunk_s": 0.001}
    process = sage.start("-p", *IN, *OUT, "--model", sage.script(slow))
    talk = Talk(process)
    talk.write(type="user", text="go")
    talk.until("text_delta")
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    process.stdin.close()
    assert (process.wait(30), told) == (141, "")
    talk._watch.cancel()


@pytest.mark.slow
def test_a_sub_agent_in_the_background_is_answered_between_turns(sage: Sage) -> None:
    """Its question is a line with its id, although no turn runs; its end is told on stderr."""
    path = sage.folder.parent / "rules.json"
    start = call("Task", description="tidy up", prompt="tidy", run_in_background=True)
    replies = [
        {"user": "go", **start},
        {"user": "tidy", **call("Write", file_path="tidied", content="x"), "first_s": 0.3},
        {"tool": "Write", "text": "It is tidy."},
        {"text": "ok"},
    ]
    path.write_text(json.dumps({"replies": replies}))
    talk = Talk(sage.start("-p", *IN, *OUT, "--model", f"sim/script:{path}"))
    talk.write(type="user", text="go")
    talk.until("result")
    question = talk.until("interrupt")
    assert question["task"]
    assert "tidied" in question["question"]
    talk.write(type="answer", id=question["id"], decision="allow")
    assert talk.process.stderr is not None
    told = ""
    while "done" not in told:  # the watch ends a process that never tells
        told = talk.process.stderr.readline()
        assert told
    assert "tidy up" in told
    assert (sage.folder / "tidied").exists()
    assert talk.end() == 0
