"""Tests of the pictures of `sage`."""
