"""Only public addresses are dialled, in whatever form a private one is written."""

from __future__ import annotations

import asyncio
import socket

import pytest

from lyra.errors import CapabilityDenied
from lyra.sandbox.addresses import address_problem, after_redirect, host_problem, literal, resolve, target_of
from tests.cases import each

INSIDE = """
127.0.0.1 127.1 127.0.1 127.255.255.254 2130706433 017700000001 0x7f000001 0x7f.1 0x7f.0.0.1 0177.0.0.1 0177.1
127.0.0.01 0x7F.0x0.0x0.0x1 127.0.0.1. １２７.０.０.１ 127。0。0。1 ①27.0.0.1 0 0.0.0.0 0.0.0.1 00 0x0
10.0.0.1 10.255.255.255 167772161 0xa000001 012.0.0.1 172.16.0.1 172.31.255.255 2886729729 192.168.0.1 3232235521
0xc0a80001 192.168.257 169.254.169.254 2852039166 0xa9fea9fe 0251.0376.0251.0376 169.254.43518 0xA9.0xFE.0xA9.0xFE
100.64.0.1 100.100.100.200 192.0.0.192 168.63.129.16 198.18.0.1 224.0.0.1 239.255.255.250 240.0.0.1
255.255.255.255 192.0.2.1 198.51.100.1 203.0.113.1 192.88.99.1 383.0.0.1 4294967297
[::1] ::1 [::] :: [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] ::ffff:10.0.0.1 [::ffff:0:127.0.0.1]
[::127.0.0.1] [::7f00:1] [64:ff9b::127.0.0.1] [64:ff9b::a9fe:a9fe] [64:ff9b:1::1] [2002:7f00:1::] [2002:a9fe:a9fe::1]
[2001:0:0a00:0001::1] [2001:0:4136:e378:8000:63bf:80ff:fffe] [fe80::1] [fe80::1%25eth0] fe80::1%eth0 [fec0::1]
[fc00::1] [fd00::1] [fd00:ec2::254] [ff02::1] [2001:db8::1] [3fff::1] [100::1] [5f00::1] [::ffff:169.254.169.254]
[2001:4860::5efe:7f00:1] [2001:4860:0:0:0:5efe:10.0.0.1]
localhost LOCALHOST localhost. sub.localhost metadata metadata.google.internal printer.local router.lan nas.home.arpa
db.internal intra.intranet ip6-localhost hidden.onion x.localdomain 127.0.0.1.5 1.2.3.4.5 256.256.256.256 08.8.8.8.8
"""
PUBLIC = """
8.8.8.8 1.1.1.1 134744072 0x08080808 010.010.010.010 93.184.216.34 172.32.0.1 172.15.255.255 192.167.255.255
100.63.255.255 100.128.0.1 169.253.0.1 [2606:4700:4700::1111] 2001:4860:4860::8888 [::ffff:8.8.8.8] [64:ff9b::8.8.8.8]
[2002:808:808::1] example.com EXAMPLE.com. xn--bcher-kva.example api.stripe.com a-b.c_d.org
"""


@each(INSIDE.split())
def test_every_form_of_an_inside_address_is_refused(host):
    """Before any name server is asked, or because the name alone says so."""
    assert host_problem(host, 443)


@pytest.mark.parametrize("host", PUBLIC.split())
def test_public_hosts_pass(host):
    """Who may talk to them is for the Grant to say."""
    assert host_problem(host, 443) is None


@each([host for host in INSIDE.split() if host[0].isdigit() and host.isascii()])
def test_we_read_addresses_at_least_as_leniently_as_the_machine(host):
    """What the C library takes for an address is one here too, and the same one."""
    try:
        theirs = socket.inet_ntoa(socket.inet_aton(host.rstrip(".")))
    except OSError:
        return
    assert str(literal(host)) == theirs


@pytest.mark.parametrize("port", [0, -1, 65536, 22, 25, 53, 6379, 11211, 6667])
def test_ports_of_other_protocols_are_refused(port):
    """A line protocol would read a request as its own language."""
    assert host_problem("example.com", port)


@pytest.mark.parametrize(
    "host", ["", " ", "a b", "a/b", "a\\b", "a@b", "a\nb", "a\0b", "a#b", "a?b", "[::1", "bücher.example", "x" * 300]
)
def test_what_is_no_host_is_refused(host):
    """Nothing is repaired."""
    assert host_problem(host, 80)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "//example.com/",
        "example.com",
        "http://user:pass@example.com/",
        "http://example.com@127.0.0.1/",
        "http://127.0.0.1\\@example.com/",
        "http://example.com\t.evil.com/",
        "http://[::1]/",
        "http://2130706433/",
        "http://example.com:22/",
        "http://example.com:99999/",
        "http://example.com:x/",
        "http:///path",
        "http://[::1%25lo]/",
        "http://[zz]/",
    ],
)
def test_urls_that_are_refused(url):
    """Other schemes, names in front of hosts, odd characters, ports, inside addresses."""
    with pytest.raises(CapabilityDenied):
        target_of(url)


def test_urls_that_pass():
    """Host and port, with the scheme's own port."""
    assert target_of("https://example.com/a?b#c")[:2] == ("example.com", 443)
    assert target_of("http://example.com:8080/")[:2] == ("example.com", 8080)


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1/", "//169.254.169.254/latest", "http://example.com/", "file:///etc/passwd", "https://[::1]/"],
)
def test_redirects_are_judged_like_first_requests(location):
    """Inside, down to http, or to a file: refused."""
    with pytest.raises(CapabilityDenied):
        after_redirect("https://example.com/a", location)


def test_redirects_that_pass():
    """Relative ones, and other public hosts."""
    assert after_redirect("https://example.com/a/b", "../c")[0] == "https://example.com/c"
    assert after_redirect("http://example.com/", "https://example.org/x")[1][:2] == ("example.org", 443)


def _resolve(host, answers, port=443):
    asked = []

    async def lookup(name, port):
        asked.append(name)
        return answers

    return asyncio.run(resolve(host, port, lookup=lookup)), asked


@pytest.mark.parametrize(
    "answers", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["::ffff:192.168.0.1"], ["fe80::1%eth0"], []]
)
def test_answers_of_the_name_server_are_judged(answers):
    """One inside address among public ones refuses the name: that is how rebinding looks."""
    with pytest.raises(CapabilityDenied):
        _resolve("example.com", answers)


def test_the_addresses_are_pinned():
    """What was judged is what is dialled; the name is asked about once, and a literal never."""
    target, asked = _resolve("Example.com", ["8.8.8.8", "8.8.8.8", "1.1.1.1"])
    assert target.addresses == ("8.8.8.8", "1.1.1.1")
    assert asked == ["example.com"]
    target, asked = _resolve("0x08080808", ["127.0.0.1"])
    assert (target.addresses, asked) == (("8.8.8.8",), [])


def test_addresses_as_text_and_as_values():
    """Both are judged the same."""
    assert address_problem("8.8.8.8") is None
    assert "private" in (address_problem("10.1.1.1") or "")
    assert "hides" in (address_problem("::ffff:10.1.1.1") or "")
