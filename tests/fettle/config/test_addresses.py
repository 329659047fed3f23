"""Addresses to listen on."""

import pytest

from fettle.config import ListenAddress
from fettle.model import SettingsError


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("[::1]", True), ("localhost", True)]
    + [(host, False) for host in ("", "[::]", "0.0.0.0", "192.0.2.7", "fettle.example")],
)
def test_an_address_is_loopback_if_only_this_host_reaches_it(host: str, loopback: bool) -> None:
    assert ListenAddress.parse(f"{host}:8088", "--flag").loopback is loopback


@pytest.mark.parametrize("text", ["8088", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "[::1]"])
def test_an_address_without_a_port_is_refused_with_the_flag_that_gives_it(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--flag .*: write HOST:PORT"):
        ListenAddress.parse(text, "--flag")
