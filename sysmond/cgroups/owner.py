# SPDX-License-Identifier: Apache-2.0
"""The owner of a control group, by its path alone: container, pod, systemd unit, slice, session.

Sources: systemd's ``CONTROL_GROUP_INTERFACE`` and systemd.unit(5); how docker, containerd, CRI-O, podman, kubelet
and LXC name the cgroups that they make, with systemd as their cgroup driver and without. Pure, and without
regular expressions: it is called for every cgroup, and perhaps for every process.
"""

from typing import NamedTuple

DOCKER, CONTAINERD, CRIO, PODMAN, LXC, NSPAWN = "docker", "containerd", "cri-o", "podman", "lxc", "nspawn"
# The runtime of a container whose path does not name it; its name is that of an OCI container.
OCI = "oci"

_HEX = frozenset("0123456789abcdef")
_ID_LENGTH = 64
_ID_LENGTH_MIN = 12  # The short form, in which some tools name scopes.
# What stands before the id of a container, in a scope of systemd or in a folder made without it.
_PREFIXES = {
    "docker-": DOCKER,
    "cri-containerd-": CONTAINERD,
    "containerd-": CONTAINERD,
    "nerdctl-": CONTAINERD,
    "crio-": CRIO,
    "libpod-": PODMAN,
}
# Folders in which a runtime without systemd puts its containers.
_FOLDERS = {"docker": DOCKER, "libpod_parent": PODMAN, "k8s.io": CONTAINERD, "containerd": CONTAINERD}
_UNITS = (".service", ".scope", ".mount", ".socket", ".swap")
_ROOT_SLICE = "-.slice"


class Owner(NamedTuple):
    """The owner of a cgroup; fields that do not apply are empty.

    ``runtime``: docker, containerd, cri-o, podman, lxc, nspawn, or oci where the path does not name it.
    ``container``: its id, or its name where the runtime uses names. ``pod``: UID of the pod of Kubernetes.
    ``unit``, ``slice``: of the system's systemd. ``user_unit``: of the systemd of a user. ``session``: of logind.
    """

    runtime: str = ""
    container: str = ""
    pod: str = ""
    unit: str = ""
    user_unit: str = ""
    slice: str = ""
    session: str = ""


def owner(path: str) -> Owner:
    """Name the owner of a cgroup; of nested containers the innermost counts.

    ``path``: as in /proc/PID/cgroup, from the root of the hierarchy: ``/system.slice/ssh.service``.
    """
    names = [_plain(name) for name in path.split("/") if name]
    runtime, container, pod = _container(names)
    return Owner(runtime, container, pod, *_units(names))


def _plain(name: str) -> str:
    """Undo systemd's escape of names that would clash with the kernel's own files."""
    return name.removeprefix("_")


def _container(names: list[str]) -> tuple[str, str, str]:
    runtime = container = pod = folder = ""
    for before, name in zip(["", *names], names, strict=False):
        pod = _pod(name) or pod
        matched = _lxc(before, name) or _nspawn(name) or _oci(name, folder)
        if matched:
            runtime, container = matched
        # Containers inside a container may have another runtime.
        folder = "" if matched else _FOLDERS.get(name, folder)
    return runtime, container, pod


def _oci(name: str, folder: str) -> tuple[str, str] | None:
    if name.count(":") == 2:  # noqa: PLR2004  slice:prefix:id, where systemd's notation meets a driver without systemd.
        name = name.split(":", 1)[1].replace(":", "-")
    name = name.removesuffix(".scope")
    for prefix, runtime in _PREFIXES.items():
        if name.startswith(prefix):
            ident = name[len(prefix) :]
            return (runtime, ident) if len(ident) >= _ID_LENGTH_MIN and _HEX.issuperset(ident) else None
    if len(name) == _ID_LENGTH and _HEX.issuperset(name):
        return folder or OCI, name
    return None


def _lxc(before: str, name: str) -> tuple[str, str] | None:
    if name.startswith("lxc.payload.") and name != "lxc.payload.":
        return LXC, name.removeprefix("lxc.payload.")
    return (LXC, name) if before in {"lxc", "lxc.payload"} else None


def _nspawn(name: str) -> tuple[str, str] | None:
    if name.startswith("systemd-nspawn@") and name.endswith(".service"):
        return NSPAWN, _unescaped(name[len("systemd-nspawn@") : -len(".service")])
    return None


def _pod(name: str) -> str:
    """The UID in ``podUID`` below /kubepods, or in ``kubepods-burstable-podUID.slice`` with its dashes written so."""
    if name.startswith("pod") and _is_uid(name[3:]):
        return name[3:]
    if name.startswith("kubepods") and "-pod" in name and ".slice" in name:
        uid = name.partition(".slice")[0].rpartition("-pod")[2]
        return uid.replace("_", "-") if _is_uid(uid) else ""
    return ""


def _is_uid(text: str) -> bool:
    # 36 characters with dashes; that of a static pod is a hash of 32.
    return len(text) in {32, 36} and _HEX.issuperset(text.replace("-", "").replace("_", ""))


def _units(names: list[str]) -> tuple[str, str, str, str]:
    """Unit, user unit, slice and session, as systemd reads a path: slices, a unit, and what the unit does below."""
    depth = 0
    while depth < len(names) and names[depth].endswith(".slice"):
        depth += 1
    around, below = (names[depth - 1] if depth else ""), names[depth:]
    unit = below[0] if below and below[0].endswith(_UNITS) else ""
    if unit and not around:
        around = _ROOT_SLICE
    user_unit = session = ""
    if unit.startswith("user@"):
        inner = [name for name in below[1:] if not name.endswith(".slice")]
        user_unit = inner[0] if inner and inner[0].endswith(_UNITS) else ""
    elif unit.startswith("session-") and unit.endswith(".scope"):
        session = unit[len("session-") : -len(".scope")]
    return unit, user_unit, around, session


def _unescaped(name: str) -> str:
    """Undo systemd's escapes, as that of a dash; other text stays as it is."""
    first, *rest = name.split("\\x")
    parts = [first]
    for part in rest:
        digits = part[:2].lower()
        known = len(digits) == 2 and _HEX.issuperset(digits)  # noqa: PLR2004  a byte is two digits.
        parts.append(chr(int(digits, 16)) + part[2:] if known else f"\\x{part}")
    return "".join(parts)
