"""The broker's TLS context, made of the certificate and key that the settings name."""

from __future__ import annotations

import ssl
from pathlib import Path

from ternmq.settings import Settings, SettingsError


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context; None if TLS is off. Changes nothing on the disk.

    Raises:
        SettingsError: A file cannot be read or is no such PEM file, or the two do not belong
            together; it names the setting and the file.
    """
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None or key is None:  # ``rules`` has checked that both are set, or neither
        return None
    _check_readable("tls_cert", cert)
    _check_readable("tls_key", key)
    try:
        # Checked first, since ``load_cert_chain`` does not report which of its files is wrong.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert)
    except ssl.SSLError as error:
        raise SettingsError(f"tls_cert = {cert!r} is not a PEM file of a certificate") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2

    def no_password() -> str:
        raise SettingsError(
            f"tls_key = {key!r} has a passphrase, which the broker does not know: `openssl pkey "
            f"-in {key}` writes the key without it"
        )

    try:
        context.load_cert_chain(cert, key, no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"is not the key of the certificate in tls_cert = {cert!r}"
        elif error.reason in {"EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "CA_KEY_TOO_SMALL"}:
            raise SettingsError(
                f"tls_cert = {cert!r} is too weak for this machine's OpenSSL: {error.reason}"
            ) from error
        else:
            why = "is not a PEM file of a private key"
        raise SettingsError(f"tls_key = {key!r} {why}") from error
    return context


def _check_readable(setting: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        raise SettingsError(f"{setting} = {path!r} cannot be read: {error.strerror}") from error
