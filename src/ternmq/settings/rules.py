"""Rules about combinations of settings, checked once when they are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ternmq.model.errors import SettingsError, TernMQError
from ternmq.model.specs import check_name
from ternmq.settings.fields import ALL_FIELDS, LIMIT_FIELDS
from ternmq.settings.settings import FILE, LEVELS, SEGMENT_EXTRA_BYTES, Follower, Mode, Settings

LEAST_TOKEN: Final = 16
"""Fewest characters of the token of a cluster: 64 bits in hexadecimal."""


def check(settings: Settings, places: Mapping[str, str]) -> Settings:
    """Return the settings if they obey the rules.

    In mode ``dev``, at an address that is not loopback, ``auth`` is on if there is an admin token.

    Args:
        settings: All settings.
        places: Key -> place where the setting is stated; the others are defaults.

    Raises:
        SettingsError: one line, which says what to do.
    """
    if settings.mode is Mode.DEV and not settings.listen.is_loopback:
        settings = msgspec.structs.replace(settings, auth=settings.admin_token is not None)
    said = _Said(settings, places)
    _check_doors(settings, said)
    _check_sizes(settings, said)
    for key, name in (("name", settings.name), ("broker_group", settings.broker_group)):
        try:
            check_name(name)
        except TernMQError as error:
            raise SettingsError(f"{said(key)}: {error}") from error
    _check_cluster(settings, said, places)
    if settings.log_level not in LEVELS:
        raise SettingsError(f"{said('log_level')} is not one of {', '.join(LEVELS)}")
    if settings.mode is Mode.SERVE and not settings.data:
        raise SettingsError(
            "data is not set: name the folder of the journal with --data DIR, TERNMQ_DATA or data "
            "= "
            f"in a settings file ({FILE} in this folder, or the one that --config names)"
        )
    return settings


def _check_doors(settings: Settings, said: _Said) -> None:
    listen = settings.listen
    if (settings.tls_cert is None) != (settings.tls_key is None):
        there = "tls_key" if settings.tls_cert is None else "tls_cert"
        raise SettingsError(
            f"tls_cert and tls_key go together, but there is only {said(there)}: set both, or"
            " neither"
        )
    if not listen.is_loopback:
        missing = []
        if not settings.auth:
            dev = settings.mode is Mode.DEV
            missing.append("a token (set TERNMQ_ADMIN_TOKEN)" if dev else "auth = true")
        if settings.tls_cert is None and settings.mode is not Mode.DEV:
            missing.append("tls_cert and tls_key")
        if missing:
            raise SettingsError(
                f"{said('listen')} accepts connections from other machines, and needs "
                f"{' and '.join(missing)}: set this, or listen on 127.0.0.1"
            )
    if not settings.auth and settings.mode is Mode.SERVE:
        raise SettingsError(
            f"{said('auth')} is only for `ternmq dev`: leave auth on, or use `ternmq dev`"
        )
    if settings.http is not None and not settings.http.is_loopback:
        raise SettingsError(
            f"{said('http')} would show the metrics to everyone: listen on 127.0.0.1"
        )
    if settings.http is not None and listen.overlaps(settings.http):
        raise SettingsError(
            f"{said('listen')} and {said('http')} are one address for two purposes: give one of"
            " them another port, or set http to off"
        )


def _check_cluster(settings: Settings, said: _Said, places: Mapping[str, str]) -> None:
    if settings.cluster is None:
        for key in (
            "cluster_token", "broker_group", "follower", "compress_stream", "cluster_ca",
            "advertise",
        ):  # fmt: skip
            if key in places:
                raise SettingsError(f"{said(key)} needs cluster, the URL of the coordinator")
        return
    if settings.mode is not Mode.SERVE:
        raise SettingsError(f"{said('cluster')} is for `ternmq serve`: a broker group keeps data")
    if settings.cluster_token is None or len(settings.cluster_token.reveal()) < LEAST_TOKEN:
        raise SettingsError(
            f"{said('cluster')} needs cluster_token, at least {LEAST_TOKEN} characters, the same "
            "for all brokers: `openssl rand -hex 32` creates one"
        )
    if "name" not in places:
        raise SettingsError(
            f"{said('cluster')} needs a name for this broker that no other broker of the cluster "
            "has: set name"
        )
    if settings.compress_stream and settings.follower is not Follower.BACKUP:
        raise SettingsError(
            f"{said('compress_stream')} is for a broker with follower = backup: answers wait for "
            "the others, and compression would delay them"
        )
    if settings.advertise is None and settings.listen.is_everywhere:
        raise SettingsError(
            f"{said('listen')} is every interface: set advertise to the address at which the other "
            "brokers and clients reach this one"
        )


def _check_sizes(settings: Settings, said: _Said) -> None:
    limits = settings.limits
    if 0 < settings.segment_bytes < settings.body_bytes + SEGMENT_EXTRA_BYTES:
        raise SettingsError(
            f"{said('segment')} must be at least 2MiB larger than {said('body')}, or it holds no"
            " message"
        )
    if limits.batch_bytes < settings.body_bytes:
        raise SettingsError(
            f"{said('limits.batch')} must be at least {said('body')}, or no such message can be"
            " sent"
        )
    if settings.memory_bytes < settings.body_bytes:
        raise SettingsError(
            f"{said('memory')} must be at least {said('body')}, or a client that sends such a"
            " message is disconnected before the message is complete"
        )
    if limits.dedup_window_us < 2 * limits.send_timeout_us:
        raise SettingsError(
            f"{said('limits.dedup_window')} must be at least twice {said('limits.send_timeout')},"
            " or resends are stored twice"
        )
    if limits.writer_idle_us < 2 * limits.transaction_us:
        raise SettingsError(
            f"{said('limits.writer_idle')} must be at least twice {said('limits.transaction')}, or"
            " writers are forgotten before their transactions end"
        )


class _Said:
    """Returns a setting with its value and place, for errors: `body = 16MiB in TERNMQ_BODY`."""

    def __init__(self, settings: Settings, places: Mapping[str, str]) -> None:
        self._settings = settings
        self._places = places

    def __call__(self, key: str) -> str:
        field = ALL_FIELDS[key]
        holder = self._settings.limits if key in LIMIT_FIELDS else self._settings
        place = self._places.get(key)
        where = f"in {place}" if place else "by default"
        return f"{key} = {field.write(getattr(holder, field.name))} {where}"
