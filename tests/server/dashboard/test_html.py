"""HTML is built: text is escaped everywhere, and no attribute can hold a script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.server.dashboard.html import Html, join, tag
from tests.server.dashboard.support import elements, texts


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_text_stays_text(text: str) -> None:
    """Any text as a child or an attribute is read back as it was, and makes no element."""
    page = tag("p", text, title=text)
    (attributes,) = elements(page, "p")
    assert page.count("<") == 2
    if "\r" not in text and "\x00" not in text:
        assert attributes["title"] == text
        assert texts(page) == " ".join(text.split())


def test_children_are_html_text_numbers_and_lists_of_them() -> None:
    assert tag("ul", [tag("li", row) for row in ("a", 1, 2.5, None)]) == (
        "<ul><li>a</li><li>1</li><li>2.5</li><li></li></ul>"
    )
    assert join("a", Html("<br>"), ["b", ["<"]]) == "a<br>b&lt;"


def test_attributes_are_keywords() -> None:
    assert tag("input", type="hidden", data_pid="p", for_="x", disabled=True, checked=False, title=None) == (
        '<input type="hidden" data-pid="p" for="x" disabled>'
    )


@pytest.mark.parametrize("name", ["onclick", "style", "srcdoc", "ONLOAD", "on"])
def test_an_attribute_that_runs_something_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="attribute"):
        tag("p", **{name: "x"})


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("processes/p", "processes/p"),
        ("https://a.example", "https://a.example"),
        ("javascript:alert(1)", "#"),
        (" java\tscript:alert(1)", "#"),
        ("data:text/html,x", "#"),
        ("vbscript:x", "#"),
        ("./a:b", "./a:b"),
    ],
)
def test_an_address_is_relative_or_http(address: str, expected: str) -> None:
    assert elements(tag("a", href=address), "a") == [{"href": expected}]
