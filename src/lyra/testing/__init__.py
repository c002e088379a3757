"""Tools for testing with Lyra and for testing Lyra: simulated worlds, real servers, damage, conformance suites."""
