"""Tests that are coroutines, in a loop each."""

from tests.asynchronous import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
