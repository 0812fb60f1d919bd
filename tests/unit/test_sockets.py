"""Where our own servers listen: on the loopback, unless a host is named."""

import socket

import pytest

from watcher.errors import UsageError
from watcher.sockets import listening, url


@pytest.mark.parametrize("address", ["0", "127.0.0.1:0", "localhost:0"])
def test_it_is_on_the_loopback_at_a_free_port(address: str) -> None:
    with listening(address, "metrics_port") as made:
        host, port = made.getsockname()[:2]
        assert host in ("127.0.0.1", "::1")
        assert url(made).endswith(f":{port}")
        socket.create_connection((host, port)).close()


@pytest.mark.parametrize("address", ["x", "1.2.3.4", "70000", ":1", "a:b:1"])
def test_what_is_no_address_is_refused_by_its_option(address: str) -> None:
    with pytest.raises(UsageError, match="give PORT, or HOST:PORT") as caught:
        listening(address, "metrics_port")
    assert caught.value.option == "metrics_port"


def test_a_port_in_use_is_said() -> None:
    with listening("0", "metrics_port") as made:
        taken = str(made.getsockname()[1])
        with pytest.raises(UsageError, match=r"can't listen there .*choose another"):
            listening(taken, "metrics_port")
