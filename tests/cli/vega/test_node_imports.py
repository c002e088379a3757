"""`import node` from the command line: typed calls, errors by code, rights, and a call that survives kill -9."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests import warm
from tests.cli.vega_runner import TARGET, Vega, vega

__all__ = ["vega"]

PRICE = """\
node_id: price_v1
type: function
intent: Price one line of an order
inputs:
  quantity: integer
  unit: {type: decimal, scale: 2}
  discount: {type: decimal, default: "0"}
outputs: {total: decimal, count: integer}
contracts:
  preconditions: ["quantity > 0"]
flow:
  - {step: compute, operation: arithmetic, expression: "quantity * unit - discount", output: total}
  - {step: done, operation: return, return_success: {total: "{total}", count: "{quantity}"}}
"""

# Writes a row, then waits for a server.
BOOK = """\
node_id: book_v1
type: function
intent: Keep a number and ask a server
inputs: {n: integer}
outputs: {ok: boolean}
security: {capabilities_required: [database.write.log, network.http_client.shop]}
flow:
  - {step: keep, operation: database_write, table: log, data: {n: "{n}"}}
  - {step: ask, operation: external_api_call, provider: shop, endpoint: /ask, method: GET}
  - {step: find_ok, operation: arithmetic, expression: response.ok, output: ok}
"""

TOOL = """\
import node "book.vsp" as book;
tool keep(n: int)
    capabilities ["database.write.log", "network.http_client.shop"]
{
    return book(n);
}
"""


class Shop:
    """A server whose first answer never comes."""

    def __init__(self, silent: int = 0) -> None:
        self.asked = 0
        shop = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                shop.asked += 1
                if shop.asked <= silent:
                    time.sleep(60)
                body = b'{"ok": true}'
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def outside(vega: Vega):
    """A database with a log, and how a run is told of it and of a server."""
    path = vega.folder / "log.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE log (n INTEGER)")

    def rows():
        connection = sqlite3.connect(path)
        try:
            return [n for (n,) in connection.execute("SELECT n FROM log")]
        finally:
            connection.close()

    return f"sqlite:///{path}", rows


def test_a_node_is_called_like_a_function(vega: Vega):
    """By position and by name; a decimal takes a text, a number or money, and comes back as an exact text."""
    vega.write("price.vsp", PRICE)
    vega.write(
        "main.vega",
        'import node "price.vsp" as price;\nlet r = price(2, "1.50", discount: 0.25);\n'
        'print(r["total"] + " for " + r["count"]);\nprint(price(unit: $2.50, quantity: 4).total);\n',
    )
    assert vega("run", "main.vega") == (0, "2.75 for 2\n10.00\n", "")


def test_the_error_of_a_node_is_caught_by_its_code(vega: Vega):
    vega.write("price.vsp", PRICE)
    vega.write(
        "main.vega",
        'import node "price.vsp" as price;\n'
        "try { price(0, 1); } catch precondition_failed(why) { print(why); }\n"
        'try { price(1, "1.555"); } catch invalid_input(why) { print("refused"); }\nprice(0, 1);\n',
    )
    code, output, errors = vega("run", "main.vega")
    assert (code, output) == (1, "does not hold: quantity > 0\nrefused\n")
    assert errors.startswith("error[precondition_failed]: does not hold: quantity > 0\n  at main.vega:4:1")
    assert vega("check", "main.vega") == (0, "", "")  # a code is no misspelt name


@pytest.mark.parametrize(
    ("call", "place", "message"),
    [
        ('price("two", 1);', "2:7", "`quantity` of `price` must be an int, and this is a str"),
        ("price(2);", "2:1", "`price` also needs `unit`"),
        ("price(2, 1, cost: 3);", "2:13", "`price` has no parameter `cost`"),
        ("price(1, 2, 3, 4);", "2:16", "`price` takes at most 3 arguments, and 4 are given"),
        ("price(1, true);", "2:10", "`unit` of `price` must be a decimal, and this is a bool"),
        ("let n: int = price(1, 2).total;", "2:14", "`n` must be an int, and this is a str"),
        ("price(1, 2).totl;", "2:13", "{total: str, count: int} has no field `totl`"),
        ("let r = price(1, 2); r.totl;", "2:24", "{total: str, count: int} has no field `totl`"),
        ('let r = price(1, 2); r["totl"];', "2:24", "{total: str, count: int} has no field `totl`"),
        ("let r = price(1, 2); let n: int = r.total;", "2:35", "`n` must be an int, and this is a str"),
        ("const R = price(1, 2); let n: str = R.count;", "2:37", "`n` must be a str, and this is an int"),
    ],
)
def test_a_call_that_does_not_fit_is_found_before_it_runs(vega: Vega, call, place, message):
    vega.write("price.vsp", PRICE)
    vega.write("main.vega", f'import node "price.vsp" as price;\n{call}\n')
    code, output, errors = vega("run", "main.vega")
    assert (code, output) == (2, "")
    assert errors.startswith(f"main.vega:{place}: error: {message}")


@pytest.mark.parametrize(
    "change", ["r.note = 1;", 'r["note"] = 1;', 'r.set("note", 1);', "r = {};", "let s = r; s.note = 1; print(s.note);"]
)
def test_an_answer_that_a_program_changes_has_other_fields(vega: Vega, change):
    """The checker knows the fields of an answer only as long as no statement adds one."""
    vega.write("price.vsp", PRICE)
    use = "" if change.startswith("let s") else "print(r.note);"
    vega.write("main.vega", f'import node "price.vsp" as price;\nlet r = price(1, 2);\n{change}\n{use}\n')
    assert vega("check", "main.vega") == (0, "", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot find `price.vsp`"),
        ("just text\n", "`price.vsp` is no node: "),
        (PRICE.replace("quantity * unit", "quantity * units"), "`price.vsp` is no node: line 12: "),
    ],
)
def test_a_wrong_node_is_a_mistake_at_the_import(vega: Vega, text, message):
    if text is not None:
        vega.write("price.vsp", text)
    vega.write("main.vega", 'import node "price.vsp" as price;\n')
    code, _, errors = vega("check", "main.vega")
    assert code == 2
    assert f"main.vega:1:13: error: {message}" in errors


def test_a_compiled_file_holds_the_node(vega: Vega):
    vega.write("price.vsp", PRICE)
    vega.write("main.vega", 'import node "price.vsp" as price;\nprint(price(3, 1).total);\n')
    assert vega("compile", "main.vega", "-o", "main.vgb")[0] == 0
    (vega.folder / "price.vsp").unlink()
    assert vega("run", "main.vgb") == (0, "3.00\n", "")


def test_two_files_may_give_two_nodes_one_name(vega: Vega):
    vega.write("price.vsp", PRICE)
    vega.write("twice.vsp", PRICE.replace("quantity * unit", "2 * quantity * unit"))
    vega.write("lib.vega", 'import node "twice.vsp" as price;\nfn both(n) { return price(n, 1).total; }\n')
    vega.write(
        "main.vega",
        'import "lib.vega" as lib;\nimport node "price.vsp" as price;\n'
        'print(price(3, 1).total + " " + lib::both(3));\n',
    )
    assert vega("run", "main.vega") == (0, "3.00 6.00\n", "")


def test_a_test_block_calls_a_node(vega: Vega):
    vega.write("price.vsp", PRICE)
    vega.write("main.vega", 'import node "price.vsp" as price;\ntest "t" { assert(price(3, 1).count == 3); }\n')
    code, output, _ = vega("test", "main.vega")
    assert (code, output.splitlines()[-1]) == (0, "1 passed")


def test_a_node_acts_with_the_rights_of_the_program(vega: Vega, outside):
    """Where the program's tools declare what the node needs, it acts; and it acts once."""
    database, rows = outside
    vega.write("book.vsp", BOOK)
    vega.write("main.vega", TOOL + "print(keep(7).ok);\n")
    shop = Shop()
    try:
        told = vega("run", "main.vega", "--database", database, "--provider", f"shop={shop.url}")
    finally:
        shop.close()
    assert told == (0, "true\n", "")
    assert rows() == [7]


@pytest.mark.parametrize("declared", ["", 'tool other() capabilities ["database.write.log"] { }\n'])
def test_an_import_gives_no_right(vega: Vega, outside, declared):
    """A node needs what the program may do; with a part of it, it does not begin."""
    database, rows = outside
    vega.write("book.vsp", BOOK)
    vega.write("main.vega", f'import node "book.vsp" as book;\n{declared}book(7);\n')
    shop = Shop()
    try:
        code, _, errors = vega("run", "main.vega", "--database", database, "--provider", f"shop={shop.url}")
    finally:
        shop.close()
    assert code != 0
    assert "capability_denied" in errors
    assert rows() == []
    assert shop.asked == 0


def test_a_provider_has_a_name_and_an_address(vega: Vega):
    vega.write("main.vega", "print(1);\n")
    code, output, errors = vega("run", "main.vega", "--provider", "shop")
    assert code != 0
    assert output == ""
    assert "no NAME=URL" in errors


@pytest.mark.slow
def test_a_call_after_a_kill_has_the_database_of_the_resume(vega: Vega, outside):
    """The run was killed before its first call: what it needs outside is given again."""
    database, rows = outside
    vega.write("book.vsp", BOOK)
    pause = 'receive { "go" => {} after 400ms => {} }\n'
    vega.write("main.vega", TOOL + 'print("one");\n' + pause + "print(keep(1).ok);\n")
    shop = Shop()
    options = ("--db", "run.db", "--database", database, "--provider", f"shop={shop.url}")
    try:
        child = warm.Started(TARGET, ("run", "main.vega", "--run-id", "r", *options), cwd=vega.folder, env=vega.env)
        assert child.stdout.readline() == "one\n"
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=30)
        assert rows() == []
        assert vega("resume", "r", *options) == (0, "one\ntrue\n", "")
        assert rows() == [1]
    finally:
        shop.close()


@pytest.mark.slow
def test_a_killed_call_goes_on_and_repeats_nothing(vega: Vega, outside):
    """The row was written before the kill: the call goes on behind it, and the run behind the call."""
    database, rows = outside
    vega.write("book.vsp", BOOK)
    vega.write("main.vega", TOOL + 'print(keep(1).ok);\nprint("end");\n')
    shop = Shop(silent=1)
    options = ("--db", "run.db", "--database", database, "--provider", f"shop={shop.url}")
    try:
        child = warm.Started(TARGET, ("run", "main.vega", "--run-id", "r", *options), cwd=vega.folder, env=vega.env)
        end = time.monotonic() + 30
        while not shop.asked:
            assert time.monotonic() < end, child.communicate(timeout=1)
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=30)
        assert rows() == [1]
        assert vega("resume", "r", *options) == (0, "true\nend\n", "")
        assert (rows(), shop.asked) == ([1], 2)
        assert vega("resume", "r", *options) == (0, "true\nend\n", "")  # it is over: nothing is asked again
        assert (rows(), shop.asked) == ([1], 2)
    finally:
        shop.close()
