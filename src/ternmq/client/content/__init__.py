"""Messages and their bodies, without a connection.

Reading order: ``message``, ``codecs`` with ``models`` (dataclasses, pydantic, msgspec),
``defaults`` and ``items`` (batch sessions),
``tracing`` (OpenTelemetry's context in headers), ``validation`` (checks of arguments),
``reasons`` and ``causes`` (texts of failures), ``delays`` (due times) and ``lifetimes``
(expiry) with ``broker_time``.
"""
