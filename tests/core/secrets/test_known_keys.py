"""A known key is found however it is written, whole or in part; what only resembles it stays."""

from __future__ import annotations

import base64
import json
import re
import textwrap
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.secrets.known_keys import KnownKeys
from lyra.core.secrets.redact import redact

KEY = "sk-ant-api03-AbCd5f2a9c81b7d64e03-Zz_9"
ODD = 'p4ss"w/ö+rd&key=1'
KEYS = KnownKeys.prepare([KEY, ODD])

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda key: key,
    "JSON": json.dumps,
    "JSON, not ASCII": lambda key: json.dumps(key, ensure_ascii=False),
    "a query": lambda key: f"?k={quote(key, safe='')}",
    "a path": lambda key: f"/{quote(key)}",
    "small hex in a query": lambda key: re.sub("%..", lambda code: code[0].lower(), quote(key, safe="")),
    "every byte with a percent sign": lambda key: "".join(f"%{byte:02X}" for byte in key.encode()),
    "hex": lambda key: key.encode().hex(),
    "HEX": lambda key: key.encode().hex().upper(),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 without padding": lambda key: base64.b64encode(key.encode()).decode().rstrip("="),
    "URL-safe base64": lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
    "basic authentication": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    "base64 behind one byte": lambda key: base64.b64encode(f":{key}".encode()).decode(),
    "base64 behind two bytes": lambda key: base64.b64encode(f"a:{key}!".encode()).decode(),
}


@pytest.mark.parametrize("key", [KEY, ODD])
@pytest.mark.parametrize("what", SPELLINGS)
def test_a_key_is_found_in_every_spelling(what, key):
    written = SPELLINGS[what](key)
    text = f"it is {written}, so"
    assert KEYS.holds(text)
    assert KEYS.holds({"a": [1, {written: None}]})
    for masked in (KEYS.mask(text), KEYS.mask_whole(text), redact(text, [KEY, ODD], forms=False)):
        assert "***" in masked
        left = masked.removeprefix("it is ").removesuffix(", so").replace("***", " ")
        # Of base64 a few characters are left, which the key alone does not decide.
        assert all(len(word) <= 12 for word in left.split()), masked
        assert not KEYS.holds(masked)


@pytest.mark.parametrize("what", SPELLINGS)
def test_the_beginning_of_a_key_is_found_too(what):
    """A server or a limit cut it off; what stands in every manual about such keys is no part of the key."""
    if what == "JSON":
        return  # the closing quote is cut off
    whole = SPELLINGS[what](KEY)
    for end in range(len(whole) * 3 // 4, len(whole)):
        assert "AbCd" not in KEYS.mask(whole[:end])
        assert "***" in KEYS.mask(whole[:end])
    assert KEYS.mask("keys begin with sk-ant-api03-…") == "keys begin with sk-ant-api03-…"
    assert KEYS.mask("keys begin with sk-ant-api03-…", any_part=True) == "keys begin with ***…"
    assert KEYS.mask(KEY[:17]) == "***"
    assert KEYS.mask(KEY[:8], any_part=True) == "***"
    assert KEYS.mask(KEY[:7], any_part=True) == KEY[:7]


def test_the_end_of_a_key_is_found_too():
    for start in range(len(KEY) - 12):
        assert KEYS.mask(f"…{KEY[start:]} x") == "…*** x"
    assert KEYS.mask(KEY[-11:]) == KEY[-11:]


def test_a_part_does_not_have_to_be_run_or_refused():
    """What a tool is given is refused for a whole key alone: a document about keys can be written."""
    assert not KEYS.holds(KEY[:-1])
    assert not KEYS.holds([1, None, True, {"a": 2.5}, "sk-ant-api03-"])
    assert not KnownKeys.prepare([])
    assert not KnownKeys.prepare(["short"])


def test_a_header_of_plain_words_masks_no_words():
    """Headers count as secrets; a beginning that is an ordinary word is not looked for."""
    keys = KnownKeys.prepare(["computer-use-tools"])
    assert keys.mask("a computer and computer-use") == "a computer and computer-use"
    assert keys.mask("beta: computer-use-tools") == "beta: ***"


@given(st.text(max_size=60), st.text(max_size=60))
def test_data_that_is_not_searched_has_no_key(before, after):
    """The quick look at encoded data misses nothing that `mask` would find."""
    for text in (before + KEY[:20] + after, before + after, before + KEY + after):
        if not KEYS.may_be_in(text.encode("utf-8", "surrogatepass")):
            assert KEYS.mask(text) == text


LONG = "sk-ant-api03-Qx7Rm2Tz9Kp4Wv8Ns1Yb6Hd3Gf5Jc0La" * 2

SCATTERED = {
    "base64 in lines": "\n".join(textwrap.wrap(base64.b64encode(LONG.encode()).decode(), 76)),
    "hexadecimal digits in lines": "\n".join(textwrap.wrap(LONG.encode().hex(), 60)),
    "hexadecimal digits with colons": ":".join(textwrap.wrap(LONG.encode().hex(), 2)),
    "hexadecimal digits with blanks": " ".join(textwrap.wrap(LONG.encode().hex(), 2)),
    "hexadecimal digits of both cases": LONG.encode().hex().replace("a", "A").replace("6b", "6B"),
    "all characters as %xx in lower case": "".join(f"%{byte:02x}" for byte in LONG.encode()),
    "one character as %xx": LONG[:10] + f"%{ord(LONG[10]):02x}" + LONG[11:],
    "all characters as \\x": "".join(f"\\x{byte:02x}" for byte in LONG.encode()),
    "all characters as \\u": "".join(f"\\u{ord(character):04x}" for character in LONG),
    "quotes in it": f"{LONG[:20]}''{LONG[20:30]}\"\"{LONG[30:]}",
    "a continued line": f"{LONG[:20]}\\\n{LONG[20:]}",
    "a blank in it": f"{LONG[:20]} {LONG[20:]}",
}


@pytest.mark.parametrize("text", SCATTERED.values(), ids=SCATTERED)
def test_a_long_key_is_found_through_what_stands_between_its_characters(text):
    keys = KnownKeys.prepare([LONG])
    assert keys.holds({"command": f"echo {text} | wc"})
    masked = keys.mask(f"before {text} after")
    assert masked.startswith("before ***")
    assert masked.endswith("after")
    assert len(masked) < 40


def test_a_key_that_is_split_over_arguments_is_found():
    keys = KnownKeys.prepare([LONG])
    assert keys.holds({"first": LONG[:30], "second": LONG[30:]})
    assert keys.holds(["a", LONG[:30], LONG[30:], "b"])
    assert not keys.holds({"first": LONG[:30], "second": LONG[31:]})


def test_a_short_key_is_not_found_across_words():
    assert not KnownKeys.prepare(["tomato"]).holds("to matonic")
    assert KnownKeys.prepare(["tomato"]).mask("to matonic") == "to matonic"


def test_the_middle_of_a_key_in_an_error():
    """As a server quotes it; in ordinary text the middle of a key is any word."""
    masked = KnownKeys.prepare([LONG]).mask(f"bad key: {LONG[10:-6]}", any_part=True)
    assert LONG[20:32] not in masked
    assert masked.startswith("bad key: ***")
    assert KnownKeys.prepare([LONG]).mask("nothing of it", any_part=True) == "nothing of it"
    for start in range(1, 8):
        part = KEY[start : start + 12]  # which is in the key only once
        assert part not in KnownKeys.prepare([KEY]).mask(f"bad key: {part}", any_part=True), start
