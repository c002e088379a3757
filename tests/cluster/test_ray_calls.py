"""Addresses of hosts that Ray started."""

from __future__ import annotations

from lyra.cluster.ray_hosts import actor_name, ray_address


def test_addresses_of_both_kinds() -> None:
    """An address says by which actor a host of Ray's is called; one that was started by hand has none."""
    assert actor_name(ray_address("ray-0a1b", "10.0.0.7:4100")) == "ray-0a1b"
    assert actor_name("10.0.0.7:4100") == ""
