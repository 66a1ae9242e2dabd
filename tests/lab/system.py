# SPDX-License-Identifier: Apache-2.0
"""Arrays, mapped devices, NFS, nodes of memory, queues, sessions: what is recorded, beside what tools print.

For the lab (``make lab``): it makes loop devices, mounts, and changes network interfaces.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.ground import Ground, number
from tests.lab.sensed import run, sensing
from tests.support.waiting import wait_until

TABLES = ("md", "md_member", "device_mapper", "nfs_mount", "nfs", "numa", "qdisc", "login")
MIB = 1 << 20
KIB = 1 << 10
NODES = Path("/sys/devices/system/node")


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with sensing(TABLES) as ground:
        yield ground


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[list[str]]:
    made = []
    for number_ in range(3):
        with (tmp_path / f"{number_}.img").open("wb") as file:
            file.truncate(32 * MIB)
        made.append(run("losetup", "--find", "--show", str(tmp_path / f"{number_}.img")).strip())
    yield made
    for device in made:
        run("losetup", "--detach", device)


def test_md_is_what_mdadm_prints(ground: Ground, loops: list[str]) -> None:
    first, second, _ = loops
    words = ["--level=1", "--raid-devices=2", "--metadata=1.2", "--assume-clean", "--run"]
    run("mdadm", "--create", "/dev/md/lab", *words, first, second)
    try:
        name = os.path.basename(os.path.realpath("/dev/md/lab"))
        ground.comes_to("md", name, lambda: {"devices": 2, "missing": 0, "level": "raid1", "sync_action": "idle"})
        failed = f"{name}:{os.path.basename(second)}"
        ground.comes_to("md_member", failed, lambda: {"state": "in_sync", "slot": 1, "errors": 0})
        run("mdadm", "/dev/md/lab", "--fail", second)
        detail = dict(
            [part.strip() for part in line.split(":", 1)]
            for line in run("mdadm", "--detail", "/dev/md/lab").splitlines()
            if " : " in line
        )
        assert (detail["Active Devices"], detail["Failed Devices"], detail["Raid Level"]) == ("1", "1", "raid1")
        ground.comes_to("md", name, lambda: {"devices": 2, "missing": 1, "level": "raid1"})
        ground.comes_to("md_member", failed, lambda: {"state": "faulty", "slot": None})
    finally:
        run("mdadm", "--stop", "/dev/md/lab")


def test_mapper_has_the_names_and_states_of_dmsetup(ground: Ground, loops: list[str]) -> None:
    run("dmsetup", "create", "lab-linear", "--table", f"0 2048 linear {loops[0]} 0")
    try:
        device = os.path.basename(os.path.realpath("/dev/mapper/lab-linear"))
        ground.comes_to("device_mapper", device, lambda: {"name": "lab-linear", "suspended": 0})
        run("dmsetup", "suspend", "lab-linear")
        assert "SUSPENDED" in run("dmsetup", "info", "lab-linear")
        ground.comes_to("device_mapper", device, lambda: {"name": "lab-linear", "suspended": 1})
        run("dmsetup", "resume", "lab-linear")
        ground.comes_to("device_mapper", device, lambda: {"suspended": 0})
    finally:
        run("dmsetup", "remove", "lab-linear")


def serve_nfs() -> None:
    """Serve NFS of version 4 alone, which needs no portmapper: that is masked here, and systemd cancels the unit."""
    run("modprobe", "nfsd")
    if not Path("/proc/fs/nfsd/threads").exists():
        run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    run("rpc.mountd", "--no-nfs-version", "3")
    run("rpc.nfsd", "--no-nfs-version", "3", "2")


def test_nfs_counts_what_is_read_and_written(ground: Ground, tmp_path: Path) -> None:
    shared, mounted = tmp_path / "shared", tmp_path / "mounted"
    shared.mkdir()
    mounted.mkdir()
    run("mount", "-t", "tmpfs", "shared", str(shared))
    try:
        serve_nfs()
        run("exportfs", "-o", "rw,no_root_squash,insecure,fsid=0,async", f"127.0.0.1:{shared}")
        run("mount", "-t", "nfs4", "-o", "noac,lookupcache=none", "127.0.0.1:/", str(mounted))
        try:
            (mounted / "file").write_bytes(bytes(MIB))
            subprocess.run(["sync"], check=True)
            wait_until(lambda: ground.last("nfs_mount", str(mounted)), ground.recorder.said)

            def told() -> dict[str, int]:
                text = Path("/proc/self/mountstats").read_text().partition(f"mounted on {mounted} ")[2]
                line = next(line for line in text.splitlines() if line.strip().startswith("bytes:"))
                return dict(
                    zip(
                        ("read", "write", "dread", "dwrite", "sread", "swrite"),
                        map(int, line.split()[1:7]),
                        strict=True,
                    )
                )

            assert told()["swrite"] >= MIB

            def agrees() -> bool:
                cells = ground.last("nfs_mount", str(mounted)).values()
                return told()["swrite"] in cells

            wait_until(agrees, lambda: (told(), ground.last("nfs_mount", str(mounted))))
        finally:
            run("umount", str(mounted))
            run("exportfs", "-ua")
            run("rpc.nfsd", "0")
    finally:
        run("umount", str(shared))


def test_numa_nodes_are_those_of_the_kernel(ground: Ground) -> None:
    def told(node: str) -> dict[str, int]:
        memory = [line.split()[2:4] for line in (NODES / node / "meminfo").read_text().splitlines()]
        counted = [line.split() for line in (NODES / node / "numastat").read_text().splitlines()]
        sizes = {name.rstrip(":"): int(value) * KIB for name, value in memory}
        return {"total": sizes["MemTotal"], **{name: int(value) for name, value in counted}}

    nodes = sorted(each.name for each in NODES.glob("node[0-9]*"))
    assert nodes == ["node0", "node1"]
    for node in nodes:
        before, begin_ns = told(node), time.time_ns()
        wait_until(lambda node=node, since=begin_ns: len(ground.rows("numa", node, since)) > 1)  # type: ignore[misc]
        row, after = ground.rows("numa", node, begin_ns)[0].cells, told(node)
        assert row["total"] == before["total"]
        for ours, theirs in (("hit", "numa_hit"), ("local", "local_node"), ("other", "other_node")):
            assert before[theirs] <= number(row[ours]) <= after[theirs]


def test_queue_of_fq_codel_is_what_tc_prints(ground: Ground) -> None:
    run("ip", "link", "add", "lab0", "type", "veth", "peer", "name", "lab1")
    try:
        for name in ("lab0", "lab1"):
            run("ip", "link", "set", name, "up")
        run("ip", "address", "add", "10.9.8.1/24", "dev", "lab0")
        run("ip", "neighbour", "add", "10.9.8.2", "lladdr", "02:00:00:00:00:09", "dev", "lab0")
        # A slow queue below which packets wait, so that its own laws come to work.
        run(
            "tc",
            "qdisc",
            "add",
            "dev",
            "lab0",
            "root",
            "handle",
            "1:",
            "tbf",
            "rate",
            "64kbit",
            "burst",
            "2kb",
            "limit",
            "10mb",
        )
        run("tc", "qdisc", "add", "dev", "lab0", "parent", "1:1", "fq_codel", "limit", "20", "flows", "8")
        subprocess.run(
            [
                "python3",
                "-c",
                "import socket; s = socket.socket(2, 2)\nfor n in range(400): s.sendto(bytes(900), ('10.9.8.2', 9))",
            ],
            check=True,
        )

        def told() -> dict[str, int]:
            queues = json.loads(run("tc", "-s", "-j", "qdisc", "show", "dev", "lab0"))
            (fair,) = (each for each in queues if each["kind"] == "fq_codel")
            return {
                "packets": fair["packets"], "drops": fair["drops"], "overlimit_drops": fair["drop_overlimit"],
                "new_flows": fair["new_flow_count"], "ecn_marks": fair["ecn_mark"], "queued": fair["qlen"],
            }  # fmt: skip

        assert told()["drops"] > 0
        wait_until(lambda: told()["queued"] == 0)
        ground.comes_to("qdisc", "lab0:1:1", told)
    finally:
        run("ip", "link", "delete", "lab0")


def test_login_is_who_loginctl_lists(ground: Ground) -> None:
    """The console logs root in by itself."""

    def sessions() -> list[str]:
        names = [line.split()[0] for line in run("loginctl", "list-sessions", "--no-legend").splitlines()]
        classes = [run("loginctl", "show-session", "--value", "--property=Class", name).strip() for name in names]
        return [each for each in classes if each.startswith("user")]

    wait_until(sessions)
    ground.comes_to("login", "", lambda: {"sessions": len(sessions()), "remote_sessions": 0, "users": 1})
