"""What does not go together: checked once, when settings are loaded."""

from __future__ import annotations

import msgspec

from ternmq.model.errors import SettingsError, TernMQError
from ternmq.model.specs import check_name
from ternmq.settings.settings import LEVELS, SEGMENT_EXTRA_BYTES, Mode, Settings


def check(settings: Settings) -> Settings:
    """Return the settings if they may be used.

    Raises:
        SettingsError: one line, which says what to do.
    """
    if settings.mode is Mode.DEV and not settings.listen.is_loopback:
        settings = msgspec.structs.replace(settings, auth=settings.admin_token is not None)
    _check_doors(settings)
    _check_sizes(settings)
    try:
        check_name(settings.name)
    except TernMQError as error:
        raise SettingsError(f"name: {error}") from error
    if settings.log_level not in LEVELS:
        raise SettingsError(f"log_level is {settings.log_level!r}: one of {', '.join(LEVELS)}")
    if settings.mode is Mode.SERVE and not settings.data:
        raise SettingsError("data is not set: say where the journal lies, with --data DIR")
    return settings


def _check_doors(settings: Settings) -> None:
    listen = settings.listen
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise SettingsError("tls_cert and tls_key go together: set both, or neither")
    if not listen.is_loopback:
        missing = []
        if not settings.auth:
            dev = settings.mode is Mode.DEV
            missing.append("a token (set TERNMQ_ADMIN_TOKEN)" if dev else "auth = true")
        if settings.tls_cert is None and settings.mode is not Mode.DEV:
            missing.append("tls_cert and tls_key")
        if missing:
            raise SettingsError(
                f"listening on {listen}, where others can reach it, needs {' and '.join(missing)};"
                " set that, or listen on 127.0.0.1"
            )
    if not settings.auth and settings.mode is Mode.SERVE:
        raise SettingsError("auth = false is for `ternmq dev`: leave it on, or use that")
    if settings.http is not None and not settings.http.is_loopback:
        raise SettingsError(
            f"http on {settings.http} would show the metrics to everybody: listen on 127.0.0.1"
        )


def _check_sizes(settings: Settings) -> None:
    limits = settings.limits
    if 0 < settings.segment_bytes < settings.body_bytes + SEGMENT_EXTRA_BYTES:
        raise SettingsError(
            "segment must be at least 2MiB larger than body, or it holds no message"
        )
    if limits.batch_bytes < settings.body_bytes:
        raise SettingsError("limits.batch must be at least body, or no such message can be sent")
    if limits.dedup_window_us < 2 * limits.send_timeout_us:
        raise SettingsError(
            "limits.dedup_window must be at least twice limits.send_timeout, or resends are stored"
            " twice"
        )
    if limits.writer_idle_us < 2 * limits.transaction_us:
        raise SettingsError(
            "limits.writer_idle must be at least twice limits.transaction, or writers are forgotten"
            " before their transactions end"
        )
