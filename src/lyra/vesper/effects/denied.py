"""`security.denied_capabilities`: rights that a node gives up, whatever it was granted.

That a node does not need what it denies is checked when it is loaded. What only an execution shows is refused here: an
address behind a provider's name, and acts of the nodes that it calls, at any depth. The rights of its process are made
smaller, so the kernel's door and all below it know nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from lyra.core.rights.capability import ANY_NAME, Capability, Grant
from lyra.vesper.check.capabilities import denied_capability


def without_denied(grant: Grant, denied: Iterable[str]) -> Grant:
    """The rights without those that a node denies itself."""
    rules = [rule for rule in map(denied_capability, denied) if rule is not None]
    return grant.narrow(Grant(allow=[ANY_NAME], deny=rules)) if rules else grant


def check_address(grant: Grant, address: str) -> None:
    """Refuse the address of a provider whose host is denied (CapabilityDenied)."""
    host = urlsplit(address).hostname
    if host and grant.deny:
        Grant(allow=[ANY_NAME], deny=grant.deny).check(Capability.parse(f"net.http:{host}"))
