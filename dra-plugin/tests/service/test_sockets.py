"""Names of sockets, and what is left of dead ones."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hymcache.dra.service import sockets
from hypothesis import given
from hypothesis import strategies as st

POD = "11111111-2222-4333-8444-555555555555"


def paths(registry: str, plugin: str = "/var/lib/kubelet/plugins/hymcache.io", pod: str = POD) -> sockets.Sockets:
    return sockets.paths(driver="hymcache.io", registry_dir=Path(registry), plugin_dir=Path(plugin), pod_uid=pod)


def test_names_carry_the_pod() -> None:
    found = paths("/var/lib/kubelet/plugins_registry")
    assert found.registration.name == f"hymcache.io-{POD}-reg.sock"
    assert found.service.name == f"dra-{POD}.sock"
    assert paths("/r", pod="").registration.name == "hymcache.io-reg.sock"


@given(st.integers(1, 76), st.integers(1, 76), st.uuids().map(str))
def test_every_address_fits_and_generations_differ(registry: int, plugin: int, other: str) -> None:
    folders = "/" + "r" * registry, "/" + "p" * plugin
    one, two = paths(*folders), paths(*folders, pod=other)
    for path in (one.registration, one.service):
        assert len(str(path)) <= sockets.ADDRESS_BYTES_MAX
    assert one.registration != two.registration
    assert one.service != two.service


def test_folder_that_leaves_no_room_is_refused_with_its_length() -> None:
    with pytest.raises(ValueError, match="at most 107 bytes, this one 131"):
        paths("/" + "r" * 100)


def bind(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    return made


def test_only_dead_sockets_of_our_driver_are_removed(short_path: Path) -> None:
    registry, plugin = short_path / "r", short_path / "p"
    registry.mkdir()
    plugin.mkdir()
    own = paths(str(registry), str(plugin))
    for path in (
        own.registration,
        own.service,
        registry / "hymcache.io-dead-reg.sock",
        registry / "gpu.example.com-reg.sock",
        plugin / "dra-dead.sock",
    ):
        bind(path).close()
    with bind(registry / "hymcache.io-alive-reg.sock") as alive:
        alive.listen()
        removed = sockets.remove_stale(own, driver="hymcache.io")
        assert {path.name for path in removed} == {
            own.registration.name,
            own.service.name,
            "hymcache.io-dead-reg.sock",
            "dra-dead.sock",
        }
        assert {path.name for path in registry.iterdir()} == {"hymcache.io-alive-reg.sock", "gpu.example.com-reg.sock"}
