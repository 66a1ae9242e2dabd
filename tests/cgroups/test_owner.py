# SPDX-License-Identifier: Apache-2.0
"""Attribution: paths as runtimes and systemd make them, and paths that only look so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.cgroups.owner import Owner, owner

ID = "3f1c9ab7d24e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8"
OTHER = ID[::-1]
POD = "8f2a1c3e-7b6d-4a5f-9e8d-0123456789ab"
POD_IN_SLICE = POD.replace("-", "_")
STATIC_POD = "a3f29c4b5d6e7f8091a2b3c4d5e6f708"

SYSTEMD = {
    "/": Owner(),
    "/init.scope": Owner(unit="init.scope", slice="-.slice"),
    "/system.slice": Owner(slice="system.slice"),
    "/system.slice/ssh.service": Owner(unit="ssh.service", slice="system.slice"),
    "/system.slice/system-getty.slice/getty@tty1.service": Owner(unit="getty@tty1.service", slice="system-getty.slice"),
    "/system.slice/dev-disk-by\\x2dlabel-swap.swap": Owner(
        unit="dev-disk-by\\x2dlabel-swap.swap", slice="system.slice"
    ),
    "/system.slice/_cpu.service": Owner(unit="cpu.service", slice="system.slice"),
    "/system.slice/ssh.service/worker": Owner(unit="ssh.service", slice="system.slice"),
    "/user.slice/user-1000.slice/session-3.scope": Owner(unit="session-3.scope", slice="user-1000.slice", session="3"),
    "/user.slice/user-1000.slice/session-c2.scope": Owner(
        unit="session-c2.scope", slice="user-1000.slice", session="c2"
    ),
    "/user.slice/user-1000.slice/user@1000.service": Owner(unit="user@1000.service", slice="user-1000.slice"),
    "/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox-17.scope": Owner(
        unit="user@1000.service", user_unit="app-firefox-17.scope", slice="user-1000.slice"
    ),
    "/user.slice/user-1000.slice/user@1000.service/init.scope": Owner(
        unit="user@1000.service", user_unit="init.scope", slice="user-1000.slice"
    ),
    "/foreign/folder": Owner(),
}

CONTAINERS = {
    f"/system.slice/docker-{ID}.scope": Owner("docker", ID, unit=f"docker-{ID}.scope", slice="system.slice"),
    f"/docker/{ID}": Owner("docker", ID),
    f"/docker/{ID}/init": Owner("docker", ID),
    f"/machine.slice/libpod-{ID}.scope/container": Owner(
        "podman", ID, unit=f"libpod-{ID}.scope", slice="machine.slice"
    ),
    f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container": Owner(
        "podman", ID, unit="user@1000.service", user_unit=f"libpod-{ID}.scope", slice="user-1000.slice"
    ),
    f"/libpod_parent/libpod-{ID}": Owner("podman", ID),
    f"/system.slice/cri-containerd-{ID}.scope": Owner(
        "containerd", ID, unit=f"cri-containerd-{ID}.scope", slice="system.slice"
    ),
    f"/k8s.io/{ID}": Owner("containerd", ID),
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_IN_SLICE}.slice/cri-containerd-{ID}.scope": (
        Owner("containerd", ID, POD, f"cri-containerd-{ID}.scope", "", f"kubepods-burstable-pod{POD_IN_SLICE}.slice")
    ),
    f"/kubepods.slice/kubepods-pod{POD_IN_SLICE}.slice/crio-{ID}.scope": Owner(
        "cri-o", ID, POD, f"crio-{ID}.scope", "", f"kubepods-pod{POD_IN_SLICE}.slice"
    ),
    f"/kubepods/besteffort/pod{POD}/{ID}": Owner("oci", ID, POD),
    f"/kubepods/pod{STATIC_POD}/crio-{ID}": Owner("cri-o", ID, STATIC_POD),
    f"/kubepods/burstable/pod{POD}": Owner(pod=POD),
    f"/system.slice/containerd.service/kubepods-besteffort-pod{POD_IN_SLICE}.slice:cri-containerd:{ID}": Owner(
        "containerd", ID, POD, "containerd.service", "", "system.slice"
    ),
    f"/docker/{ID}/kubelet/kubepods/pod{POD}/{OTHER}": Owner("oci", OTHER, POD),
    "/lxc/web": Owner("lxc", "web"),
    "/lxc/101/ns/system.slice/ssh.service": Owner("lxc", "101"),
    "/lxc.payload/web": Owner("lxc", "web"),
    "/lxc.payload.web/system.slice": Owner("lxc", "web"),
    "/machine.slice/systemd-nspawn@my\\x2dbox.service/payload": Owner(
        "nspawn", "my-box", unit="systemd-nspawn@my\\x2dbox.service", slice="machine.slice"
    ),
}

# What only looks like a container: who looks after one, what has no id, an id that is none.
NO_CONTAINERS = (
    f"/machine.slice/libpod-conmon-{ID}.scope",
    f"/system.slice/crio-conmon-{ID}.scope",
    "/system.slice/docker.service",
    "/docker",
    "/docker/buildkit",
    "/lxc",
    "/lxc.monitor.web",
    "/lxc.payload.",
    f"/docker/{ID[:-1]}",
    f"/docker/{ID.upper()}",
    f"/docker/{ID}0",
    "/system.slice/docker-.scope",
    "/system.slice/docker-notanidatall.scope",
    "/system.slice/crio-0123.scope",
    "a:b:c",
)


@pytest.mark.parametrize(("path", "expected"), [*SYSTEMD.items(), *CONTAINERS.items()])
def test_a_path_tells_whom_it_belongs_to(path: str, expected: Owner) -> None:
    assert owner(path) == expected


@pytest.mark.parametrize("path", NO_CONTAINERS)
def test_what_only_looks_like_a_container_is_none(path: str) -> None:
    assert (owner(path).runtime, owner(path).container) == ("", "")


@given(st.text())
def test_any_text_has_an_answer(path: str) -> None:
    assert all(isinstance(part, str) for part in owner(path))


@pytest.mark.parametrize("name", ["systemd-nspawn@a\\x.service", "systemd-nspawn@\\xzz.service"])
def test_an_escape_that_is_none_stays(name: str) -> None:
    assert owner(f"/machine.slice/{name}").container == name[len("systemd-nspawn@") : -len(".service")]
