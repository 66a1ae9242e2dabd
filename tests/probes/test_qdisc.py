# SPDX-License-Identifier: Apache-2.0
"""The table ``qdisc``: rows of structures, and the queues of this machine as tc prints them."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sysmond_probes import qdisc

from sysmond.probe import ABSENT, Host
from sysmond.sources import tc

NAMES = [metric.name for metric in qdisc.QDISC.metrics]


def test_one_of_fq_codel_below_a_class() -> None:
    fair = tc.FairQueue(1514, 1, 2, 3, 4, 5, 6, 7, 8)
    name, values = qdisc.row("eth0", tc.Qdisc(4, 0x10010, "fq_codel", 90, 91, 92, 93, 94, 95, 96, fair))
    assert name == "eth0:1:10"
    assert dict(zip(NAMES, values, strict=True)) == {
        "sent_bytes": 90,
        "packets": 91,
        "drops": 94,
        "overlimits": 96,
        "requeues": 95,
        "queued": 92,
        "backlog": 93,
        "ecn_marks": 2,
        "ce_marks": 6,
        "new_flows": 3,
        "overlimit_drops": 1,
        "memory_drops": 8,
        "memory": 7,
        "kind": "fq_codel",
    }


def test_a_root_without_fair_queues() -> None:
    name, values = qdisc.row("eth0", tc.Qdisc(4, tc.ROOT, "pfifo_fast", 1, 2, 3, 4, 5, 6, 7, None))
    assert (name, list(values[7:])) == ("eth0", [ABSENT] * 6 + ["pfifo_fast"])


def test_a_copied_tree_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="only the running kernel can be asked"):
        list(qdisc.read(Host(str(tmp_path))))


@pytest.fixture
def limited() -> Iterator[str]:
    """An interface whose queue is too short for what is sent, so that packets are dropped."""
    if os.geteuid() or not shutil.which("tc"):
        pytest.skip("needs root and tc")
    ends = ["sysmondq0", "type", "veth", "peer", "name", "sysmondq1"]
    if subprocess.run(["ip", "link", "add", *ends], capture_output=True, check=False, timeout=10).returncode:
        pytest.skip("this kernel has no veth")
    try:
        for end in ("sysmondq0", "sysmondq1"):
            subprocess.run(["ip", "link", "set", end, "up"], check=True, timeout=10)
        shaped = ["tbf", "rate", "8kbit", "burst", "1600", "limit", "1600"]
        subprocess.run(["tc", "qdisc", "replace", "dev", "sysmondq0", "root", *shaped], check=True, timeout=10)
        subprocess.run(["tc", "qdisc", "add", "dev", "sysmondq0", "ingress"], check=False, timeout=10)
        yield "sysmondq0"
    finally:
        subprocess.run(["ip", "link", "delete", "sysmondq0"], check=False, timeout=10)


def test_it_agrees_with_tc_on_this_machine(limited: str) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((limited, 0))
        for _ in range(10):
            try:
                sender.send(b"\xff" * 12 + b"\x88\xb5" + bytes(1000))
            except OSError:  # ENOBUFS: dropped, as is meant.
                continue
    before = shown(limited)
    found = {name.removeprefix(limited): values for name, values in qdisc.read(Host()) if name.startswith(limited)}
    after = shown(limited)
    assert before.keys() == found.keys() == after.keys()
    row = dict(zip(NAMES, found[""], strict=True))
    assert row["kind"] == "tbf"
    # The queue goes on trying to send between two readings.
    for name in ("drops", "overlimits"):
        assert 0 < before[""][name] <= int(row[name]) <= after[""][name]


def shown(interface: str) -> dict[str, dict[str, int]]:
    """The queues of an interface as tc prints them, by what their names end in."""
    command = ["tc", "-s", "-j", "qdisc", "show", "dev", interface]
    said = subprocess.run(command, capture_output=True, check=True, timeout=10)
    return {("" if "root" in queue else ":ingress"): queue for queue in json.loads(said.stdout)}
