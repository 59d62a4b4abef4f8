"""Tests against a broker in a process of its own, over its socket, as anybody could write them."""
