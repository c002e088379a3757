"""A real `lyra serve` under load, killed with SIGKILL and started again: the short version of `verify server-crash`."""

from __future__ import annotations

import pytest

from verify.crash import server
from verify.crash.server.outside import ActLog
from verify.servers import postgres_missing

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("store", server.STORES)
def test_nothing_acknowledged_is_lost_when_the_server_is_killed(store: str) -> None:
    """Processes, sessions, questions, envelopes, pipelines, chats, streams and tasks: everything that was answered is
    there after each restart, no finished effect is performed again, and streams are read on."""
    if store == "postgresql" and (missing := postgres_missing()):
        pytest.skip(missing)
    result = server.run(1, seed=3, store=store)
    assert result.failures == []
    assert result.kills == 1
    assert result.acknowledged > 50


def test_an_act_that_is_repeated_after_its_result_was_seen_is_a_failure(tmp_path) -> None:
    """The judge of the log: an act in flight may be repeated where that is allowed, a finished one may not."""
    log = ActLog(tmp_path / "log")
    for word, key in (("act", "repeatable/a"), ("act", "repeatable/a"), ("seen", "repeatable/a"), ("act", "once/b")):
        log.note(word, key)
    assert log.failures() == []
    log.note("act", "repeatable/a")
    log.note("act", "once/b")
    log.close()
    assert log.failures() == [
        "repeatable/a was finished and is performed again",
        "once/b is performed 2 times",
    ]
