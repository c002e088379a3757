"""Tests of `verify.tasks`: start with `test_tasks`."""
