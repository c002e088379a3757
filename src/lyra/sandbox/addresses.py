"""Which network addresses are public: the guard against requests to internal addresses (SSRF).

Pure except for `resolve`, which asks a name server through the function it is given. A host is read the way the most
lenient client reads it (`0x7f.1`, `2130706433`, `017700000001`, full-width digits, `[::ffff:7f00:1]`), every IPv4
address inside an IPv6 one is extracted and checked too, and an address that is not certainly public is refused with the
reason. `resolve` checks every answer and gives the addresses themselves: the caller connects to those and never
resolves a second time, so that the name cannot lead elsewhere in between. `after_redirect` checks a redirect like a
first request. The Grant decides which public hosts are allowed, not this module.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from lyra.errors import CapabilityDenied

Address = IPv4Address | IPv6Address
Lookup = Callable[[str, int], Awaitable[list[str]]]

_V4: Final = tuple(
    (IPv4Network(network), why)
    for network, why in (
        ("0.0.0.0/8", "this machine"),
        ("10.0.0.0/8", "a private network"),
        ("100.64.0.0/10", "a carrier's inside network"),
        ("127.0.0.0/8", "this machine"),
        ("169.254.0.0/16", "link-local, where clouds keep their metadata"),
        ("172.16.0.0/12", "a private network"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "reserved for documents"),
        ("192.31.196.0/24", "reserved for name servers"),
        ("192.52.193.0/24", "reserved for relays"),
        ("192.88.99.0/24", "an old relay of IPv6"),
        ("192.168.0.0/16", "a private network"),
        ("192.175.48.0/24", "reserved for name servers"),
        ("198.18.0.0/15", "reserved for measurements"),
        ("198.51.100.0/24", "reserved for documents"),
        ("203.0.113.0/24", "reserved for documents"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved or broadcast"),
        ("168.63.129.16/32", "the metadata of a cloud"),
    )
)
_V6_PUBLIC: Final = IPv6Network("2000::/3")  # all assigned public addresses; everything else is internal or reserved
_V6: Final = tuple(
    (IPv6Network(network), why)
    for network, why in (
        ("2001::/23", "reserved for protocols"),
        ("2001:db8::/32", "reserved for documents"),
        ("3fff::/20", "reserved for documents"),
        ("2620:4f:8000::/48", "reserved for name servers"),
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL: Final = IPv6Network("64:ff9b:1::/48")
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_TRANSLATED: Final = IPv6Network("::ffff:0:0:0/96")
_COMPATIBLE: Final = IPv6Network("::/96")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")
_TEREDO: Final = IPv6Network("2001::/32")
_ISATAP: Final = 0x5EFE

_INSIDE_NAMES: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "metadata"})
_INSIDE_ENDS: Final = (".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa", ".localdomain", ".onion")
# Ports of line-based services that could take an HTTP request for commands (the list that browsers use).
_PORTS_REFUSED: Final = frozenset(
    {
        *(1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103),
        *(104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513),
        *(514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719),
        *(1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669),
        *(6679, 6697, 10080, 11211),
    }
)
_DOTS: Final = str.maketrans("。．｡", "...")
_PORTS: Final = {"http": 80, "https": 443}


class Target(NamedTuple):
    """Where a request goes: the host as it was read, the port, and the addresses that may be dialled."""

    host: str
    port: int
    addresses: tuple[str, ...] = ()


# ---------------------------------------------------------------- reading
def normalize_host(host: str) -> str:
    """Return the host in normal form: no brackets, no zone, no final dot, ASCII digits, lower case."""
    text = unicodedata.normalize("NFKC", host.translate(_DOTS)).strip().lower()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return text.partition("%")[0].rstrip(".") if ":" in text else text.rstrip(".")


def literal(host: str) -> Address | None:
    """Return the address that a host is, in any spelling that some client takes for one; None for a name."""
    text = normalize_host(host)
    if ":" in text:
        try:
            return ip_address(text)
        except ValueError:
            return None
    # One to four numbers in decimal, octal or hexadecimal, the last one filling what is left.
    parts = text.split(".")
    if not 1 <= len(parts) <= 4:
        return None
    numbers = [_number(part) for part in parts]
    if any(number is None for number in numbers):
        return None
    values = [number for number in numbers if number is not None]
    whole = 0
    for value in values[:-1]:
        whole = whole << 8 | (value & 0xFF)  # as some clients do, a part that is too large is cut
    room = 8 * (4 - len(values) + 1)
    return IPv4Address((whole << room | (values[-1] & ((1 << room) - 1))) & 0xFFFFFFFF)


def _number(part: str) -> int | None:
    try:
        if part.startswith("0x"):
            return int(part[2:] or "0", 16)
        if len(part) > 1 and part.startswith("0") and part.isdigit():
            return int(part, 8) if not set(part) & set("89") else int(part, 10)
        return int(part, 10) if part.isascii() and part.isdigit() else None
    except ValueError:
        return None


# ---------------------------------------------------------------- checking
def address_problem(address: Address | str) -> str | None:
    """Return why an address is not public, or None."""
    ip = ip_address(address.partition("%")[0]) if isinstance(address, str) else address
    if isinstance(ip, IPv4Address):
        return next((f"{ip} is {why}" for network, why in _V4 if ip in network), None)
    for inner in _find_embedded(ip):
        hidden = address_problem(inner)
        if hidden:
            return f"{ip} hides {hidden}"
    if ip in _NAT64 or ip in _MAPPED:
        return None  # its IPv4 address was public
    if ip in _NAT64_LOCAL or ip not in _V6_PUBLIC:
        return f"{ip} is not a public address of IPv6"
    return next((f"{ip} is {why}" for network, why in _V6 if ip in network), None)


def _find_embedded(ip: IPv6Address) -> Iterator[IPv4Address]:
    whole = int(ip)
    low = whole & 0xFFFFFFFF
    if any(ip in network for network in (_NAT64, _MAPPED, _TRANSLATED)) or (ip in _COMPATIBLE and low > 1):
        yield IPv4Address(low)
    if ip in _SIX_TO_FOUR:
        yield IPv4Address(whole >> 80 & 0xFFFFFFFF)
    if ip in _TEREDO:
        yield IPv4Address(whole >> 64 & 0xFFFFFFFF)
        yield IPv4Address(~low & 0xFFFFFFFF)
    if whole >> 32 & 0xFFFF == _ISATAP:
        yield IPv4Address(low)


def host_problem(host: str, port: int) -> str | None:
    """Return why a host and a port are refused before any name server is asked, or None."""
    if not 0 < port < 65536 or port in _PORTS_REFUSED:
        return f"port {port} is not for HTTP"
    name = normalize_host(host)
    if not name or len(name) > 253 or any(char in name for char in "/\\@#?%<>^|\"'` \t\r\n\0"):
        return f"{host[:80]!r} is not a host"
    address = literal(host)
    if address is not None:
        return address_problem(address)
    if ":" in name:
        return f"{host[:80]!r} is not an address of IPv6"
    if not name.isascii():
        return f"{host[:80]!r} is not in ASCII (write its punycode form)"
    if name in _INSIDE_NAMES or name.endswith(_INSIDE_ENDS):
        return f"{name} is a name of an inside network"
    last = name.rpartition(".")[2]
    if last[:1].isdigit():
        return f"{name} looks like an address and is none"
    return None


def target_of(url: str) -> Target:
    """Return the host and port of an http or https URL, checked as far as possible without a name server."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _make_refusal(url, "the URL cannot be read for certain") from None
    if parts.scheme not in _PORTS:
        raise _make_refusal(url, f"only http and https are fetched, not {parts.scheme or 'nothing'!r}")
    if any(char in url for char in "\\\t\r\n\0 ") or parts.username is not None or parts.password is not None:
        raise _make_refusal(url, "the URL has a name, a password, a backslash or a space in it")
    host = parts.hostname or ""
    target = Target(host, _PORTS[parts.scheme] if port is None else port)
    problem = host_problem(host, target.port)
    if problem:
        raise _make_refusal(url, problem)
    return target


def after_redirect(url: str, location: str) -> tuple[str, Target]:
    """Return the next URL and its target; a redirect from https to http is refused, and the new URL is checked like any
    other."""
    following = urljoin(url, location)
    target = target_of(following)
    if url.startswith("https:") and not following.startswith("https:"):
        raise _make_refusal(following, "a redirect must not leave https")
    return following, target


async def resolve(host: str, port: int, *, lookup: Lookup) -> Target:
    """Return the target with the addresses to dial. One answer that is not public refuses the whole name."""
    problem = host_problem(host, port)
    if problem:
        raise _make_refusal(host, problem)
    address = literal(host)
    if address is not None:
        return Target(host, port, (str(address),))
    answers = await lookup(normalize_host(host), port)
    for answer in answers:
        problem = address_problem(answer)
        if problem:
            raise _make_refusal(host, f"its name server says {problem}")
    if not answers:
        raise _make_refusal(host, "its name has no address")
    return Target(host, port, tuple(dict.fromkeys(answers)))


def _make_refusal(what: str, why: str) -> CapabilityDenied:
    return CapabilityDenied(
        f"{what[:200]} is refused: {why}", hint="only public addresses can be reached from here", target=what[:200]
    )
