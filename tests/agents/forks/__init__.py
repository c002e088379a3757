"""Runs that the tests of time travel look at and fork."""
