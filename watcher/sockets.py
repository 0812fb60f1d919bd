"""Sockets of ours that others connect to: on the loopback, unless a host is named."""

from __future__ import annotations

import os
import re
import socket

from watcher.errors import UsageError

_LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[\w:.%]+\]|[^\[\]:]+):)?(?P<port>\d{1,5})")


def listening(address: str, option: str) -> socket.socket:
    """A socket that listens at `[HOST:]PORT`; a port of 0 is any free one.

    Bound here, so that a port in use is known before the start. Raises UsageError, which names the
    option.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise UsageError("give PORT, or HOST:PORT, such as 9464", option, address)
    host, port = (match["host"] or _LOOPBACK).strip("[]"), int(match["port"])
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        # socket.create_server adds words of its own; a name that is not found has no number.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror or str(error)
        text = f"can't listen there ({reason.lower()}); choose another"
        raise UsageError(text, option, address) from None


def url(made: socket.socket) -> str:
    """Its URL, for a browser or a scraper; without a path."""
    host, port = made.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
