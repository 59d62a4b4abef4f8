"""The app."""

from __future__ import annotations

from django.apps import AppConfig


class ReliableConfig(AppConfig):  # type: ignore[misc]
    """``ternmq.reliable`` in a Django project."""

    name = "ternmq.reliable.django"
    label = "ternmq_reliable"
    verbose_name = "TernMQ"
