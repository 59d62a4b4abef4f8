"""Coroutines as tests."""

from __future__ import annotations

from tests.asynchronous import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
