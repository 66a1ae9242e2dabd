# SPDX-License-Identifier: Apache-2.0
"""Wi-Fi by simulated radios (mac80211_hwsim) and a real access point (hostapd): what is recorded, beside iw.

For the lab (``make lab``): it loads a module and moves a radio into another network namespace.
"""

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.ground import Ground, number
from tests.lab.sensed import LATE_NS, run, sensing
from tests.support.waiting import wait_until

STATION, NAMESPACE, CONFIG = "wlan1", "lab-ap", Path("/run/lab-hostapd.conf")
NETWORK = "lab"
MHZ, MBIT = 10**6, 10**6
# These grow while one looks.
COUNTED = ("received_packets", "sent_packets", "retries", "failures")
RADIOS = Path("/sys/kernel/debug/ieee80211")


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with sensing(("wifi", "wifi_channel", "wifi_connection", "wifi_ssid")) as ground:
        yield ground


@pytest.fixture(scope="module")
def connected(ground: Ground) -> Iterator[Ground]:
    """A station and its access point, which come while it records."""
    run("modprobe", "mac80211_hwsim", "radios=2")
    wait_until(Path(f"/sys/class/net/{STATION}").exists)
    run("ip", "netns", "add", NAMESPACE)
    CONFIG.write_text(f"interface=wlan0\ndriver=nl80211\nssid={NETWORK}\nchannel=6\nhw_mode=g\n")
    radio = Path("/sys/class/net/wlan0/phy80211").resolve().name
    run("iw", "phy", radio, "set", "netns", "name", NAMESPACE)
    inside = ["ip", "netns", "exec", NAMESPACE]
    run(*inside, "ip", "address", "add", "10.9.7.1/24", "dev", "wlan0")
    with subprocess.Popen([*inside, "hostapd", str(CONFIG)], stdout=subprocess.DEVNULL) as hostapd:
        run("ip", "link", "set", STATION, "up")
        run("ip", "address", "add", "10.9.7.2/24", "dev", STATION)
        wait_until(lambda: NETWORK in run("iw", "dev", STATION, "scan"))
        run("iw", "dev", STATION, "connect", NETWORK)
        wait_until(lambda: "Connected" in run("iw", "dev", STATION, "link"))
        yield ground
        hostapd.terminate()
    run("ip", "netns", "delete", NAMESPACE)
    run("modprobe", "--remove", "mac80211_hwsim")


def printed() -> dict[str, object]:
    """What iw prints, in units of the table."""
    dump, info = run("iw", "dev", STATION, "station", "dump"), run("iw", "dev", STATION, "info")
    told = dict(re.findall(r"^\t([a-z ]+):\s*(-?[\d.]+)", dump, re.MULTILINE))
    channel = re.search(r"channel (\d+) \((\d+) MHz\), width: (\d+) MHz", info)
    assert channel
    return {
        "signal": int(told["signal"]),
        "received_packets": int(told["rx packets"]),
        "sent_packets": int(told["tx packets"]),
        "retries": int(told["tx retries"]),
        "failures": int(told["tx failed"]),
        "send_rate": round(float(told["tx bitrate"]) * MBIT),
        "channel": int(channel[1]),
        "frequency": int(channel[2]) * MHZ,
        "width": int(channel[3]) * MHZ,
        "stations": 1,
        "type": "managed",
    }


def test_wifi_is_what_iw_prints(connected: Ground) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        for _ in range(20):
            sending.sendto(bytes(100), ("10.9.7.1", 9))
    connected.comes_to("wifi", STATION, lambda: {name: printed()[name] for name in printed() if name not in COUNTED})


def test_wifi_counts_what_iw_counts(connected: Ground) -> None:
    before, begin_ns = printed(), time.time_ns()
    wait_until(lambda: len(connected.rows("wifi", STATION, begin_ns)) > 1)
    row, after = connected.rows("wifi", STATION, begin_ns)[0].cells, printed()
    for name in COUNTED:
        assert int(str(before[name])) <= number(row[name]) <= int(str(after[name]))


def test_wifi_signal_is_the_one_that_is_set(connected: Ground) -> None:
    power = re.search(r"txpower (\d+)\.00 dBm", run("ip", "netns", "exec", NAMESPACE, "iw", "dev", "wlan0", "info"))
    assert power
    for signal in (-77, -51):
        for radio in RADIOS.glob("phy*/hwsim/rx_rssi"):
            radio.write_text(str(signal % 2**64))
        # The simulation adds the power of the sender.
        wanted = {"signal": signal + int(power[1])}
        connected.comes_to("wifi", STATION, lambda wanted=wanted: wanted)  # type: ignore[misc]
        assert printed()["signal"] == wanted["signal"]


def test_wifi_has_the_name_of_its_network_where_it_was_asked_for(connected: Ground) -> None:
    connected.comes_to("wifi_ssid", STATION, lambda: {"ssid": NETWORK})


def test_wifi_that_is_disconnected_has_no_signal_and_that_is_counted(connected: Ground) -> None:
    connected.comes_to("wifi_connection", STATION, lambda: {"connected": 1, "disconnected": 0})
    run("iw", "dev", STATION, "disconnect")
    connected.comes_to("wifi_connection", STATION, lambda: {"connected": 1, "disconnected": 1})
    gone_ns = time.time_ns() + LATE_NS
    wait_until(lambda: connected.rows("load", "", gone_ns + 4 * LATE_NS))
    assert {row.cells["signal"] for row in connected.rows("wifi", STATION, gone_ns)} <= {None}
