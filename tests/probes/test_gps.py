# SPDX-License-Identifier: Apache-2.0
"""The table ``gps``: a real gpsd on a pseudoterminal, sentences of NMEA, and what either may say that is wrong."""

import os
import shutil
import socket
import subprocess
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from operator import xor
from pathlib import Path
from threading import Thread

import pytest
from sysmond_probes import gps as probes

from sysmond.base.model import ABSENT, Absence, Cause, Sensitivity, check_table
from sysmond.probe import Host
from sysmond.sources import gps
from sysmond.sources.gps import Fix, Gpsd, Sentences, Serial, fields_of
from tests.support.waiting import HANG_S, wait_until

A = ABSENT
GPSD = shutil.which("gpsd") or shutil.which("gpsd", path="/usr/sbin")
# Degrees of 7 decimals: 48° and 7.038 minutes north, 11° and 31 minutes east.
NORTH, EAST = 481_173_000, 115_166_667
GGA = "GPGGA,123519.00,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,"
RMC = "GPRMC,123519.00,A,4807.038,N,01131.000,E,022.4,084.4,230394,,,A"
GSA = "GPGSA,A,3,04,05,,09,12,,,24,,,,,2.5,1.3,2.1"
GSV = "GPGSV,3,1,11,03,03,111,00,04,15,270,00,06,01,010,00,13,06,292,00"
HERE = Fix(3, NORTH, EAST, 545_400, 11_524, 8, 11, A)


def sentence(text: str) -> bytes:
    return f"${text}*{reduce(xor, text.encode(), 0):02X}\r\n".encode()


def heard(*lines: bytes) -> Fix:
    sentences = Sentences()
    for line in lines:
        sentences.take(line)
    return sentences.fix()


def read(host: Host, *, port: int = 1, device: str = "", speed: int = 0) -> dict[str, object]:
    return dict(probes.Receivers().read(host, port=port, device=device, speed=speed))


def test_the_table_is_well_formed_restricted_and_off() -> None:
    [probe] = probes.sysmond_probes()
    check_table(probe.table)
    assert (probe.sensitivity, probe.enabled) == (Sensitivity.RESTRICTED, False)
    assert len(Fix()) == len(probe.table.metrics)


def test_a_machine_without_receivers_has_none() -> None:
    with pytest.raises(OSError, match="no gpsd on port 1, and the option device names none"):
        read(Host())


# --- Sentences


def test_a_position_is_made_of_all_sentences() -> None:
    assert heard(*map(sentence, (GGA, GSA, GSV, RMC))) == HERE
    assert heard(*map(sentence, (RMC, GGA, GSA))) == HERE._replace(seen=A)


def test_each_sentence_alone_says_what_it_can() -> None:
    assert heard(sentence(RMC)) == Fix(2, NORTH, EAST, A, 11_524)
    assert heard(sentence(GGA)) == Fix(3, NORTH, EAST, 545_400, A, 8)
    assert heard(sentence(GSA)) == Fix(1)
    south = RMC.replace("N,", "S,").replace("E,", "W,")
    assert heard(sentence(south))[1:3] == (-NORTH, -EAST)


@pytest.mark.parametrize(
    "lines",
    [
        [GGA.replace("E,1,", "E,0,"), GSA, RMC],
        [GGA, GSA, RMC.replace(",A,4", ",V,4")],
        [GGA, GSA.replace("A,3", "A,1"), RMC],
        ["GPGGA,,,,,,0,,,,,,,,", "GPRMC,,V,,,,,,,,,,N"],
    ],
)
def test_without_a_fix_there_is_no_position(lines: list[str]) -> None:
    assert heard(*map(sentence, lines))[:5] == (1, A, A, A, A)


def test_the_newest_counts_and_of_one_moment_the_best_constellation() -> None:
    later = [each.replace("123519", "123520") for each in (GGA.replace("4807", "4907"), RMC.replace("4807", "4907"))]
    flat = GSA.replace("A,3", "A,2")
    lines = [GGA, GSA, RMC, later[0], flat, flat.replace("A,2", "A,1"), later[1]]
    assert heard(*map(sentence, lines))[:4] == (2, NORTH + 10_000_000, EAST, A)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"garbage",
        b"\xff" * 5000,
        sentence(GGA)[:-4] + b"00\r\n",  # A wrong checksum.
        sentence(GGA)[:30],  # Torn off.
        sentence(GGA)[30:],
        sentence(GGA).replace(b"*", b""),
        sentence("GPGGA,\x1b[31m"),
        sentence(""),
        b"$GPGGA*",
    ],
)
def test_what_is_no_sentence_says_nothing(line: bytes) -> None:
    assert fields_of(line) is None
    with pytest.raises(ValueError, match="no sentence of NMEA"):
        heard(line)


@pytest.mark.parametrize(
    "place", ["9907.038,N,01131.000,E", "4807.038,N,19131.000,E", "4867.038,N,99131.0,E", ",,,", "x,N,y,E"]
)
def test_a_place_that_is_none_is_absent(place: str) -> None:
    told = heard(sentence(f"GPGGA,1,{place},1,08,0.9,545.4,M,,M,,"))
    assert A in told[1:3]
    assert told[3:] == (545_400, A, 8, A, A)


def test_numbers_without_end_are_absent() -> None:
    assert heard(sentence(f"GPGGA,1,,,,,1,{'9' * 30},0.9,{'9' * 30},M,,M,,"))[3:6] == (A, A, A)


# --- A serial device


@contextmanager
def a_line() -> Iterator[tuple[int, str]]:
    """A pseudoterminal: where to write what a receiver says, and its name."""
    ours, theirs = os.openpty()
    name = os.ttyname(theirs)
    tty.setraw(theirs)
    try:
        yield ours, name
    finally:
        os.close(theirs)
        os.close(ours)


def test_a_device_is_listened_to_between_readings() -> None:
    serial = Serial()
    with a_line() as (receiver, name):
        os.write(receiver, sentence(RMC.replace("4807", "4907")))  # Said before anybody listened.
        assert serial.fix(name, 9600) == Fix()
        for _ in range(10):
            os.write(receiver, b"".join(map(sentence, (GGA, GSA, GSV, RMC))))
        assert serial.fix(name, 9600) == HERE
        with pytest.raises(ValueError, match="no sentence of NMEA since"):
            serial.fix(name, 9600)
        assert serial.is_open
        assert not os.get_blocking(serial._descriptor)
        serial.close()
        assert not serial.is_open


def test_more_than_is_of_use_costs_what_is_old() -> None:
    serial = Serial()
    with a_line() as (receiver, name):
        serial.fix(name, 0)
        noise = Thread(target=os.write, args=(receiver, b"~" * 3000 + b"\n" + sentence(GGA)))
        noise.start()
        noise.join()
        assert serial.fix(name, 0).latitude == NORTH
        serial.close()


def test_a_receiver_that_is_pulled_out_is_gone_and_may_come_again() -> None:
    host, receivers = Host(), probes.Receivers()
    with a_line() as (_, name):
        assert dict(receivers.read(host, port=1, device=name, speed=0)) == {name: Fix()}
    with pytest.raises(OSError, match="Input/output error|hung up"):
        dict(receivers.read(host, port=1, device=name, speed=0))
    with pytest.raises(FileNotFoundError):
        dict(receivers.read(host, port=1, device=name, speed=0))
    host.close()


def test_what_is_no_serial_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(sentence(GGA))
    os.mkfifo(tmp_path / "pipe")
    for path in ("file", "pipe"):
        serial = Serial()
        with pytest.raises(ValueError, match="expected a serial device"):
            serial.fix(f"{tmp_path}/{path}", 0)
        assert not serial.is_open
    with a_line() as (_, name), pytest.raises(ValueError, match="a speed of 1234; expected one such as 4800"):
        Serial().fix(name, 1234)


def test_a_device_that_sleeps_is_not_opened(tmp_path: Path) -> None:
    device = tmp_path / "sys/devices/usb1/1-1/ttyUSB0"
    device.mkdir(parents=True)
    (device.parent / "power").mkdir()
    (device.parent / "power/runtime_status").write_text("suspended\n")
    (tmp_path / "sys/class/tty/ttyUSB0").mkdir(parents=True)
    (tmp_path / "sys/class/tty/ttyUSB0/device").symlink_to(device)
    assert read(Host(str(tmp_path)), device="/dev/ttyUSB0") == {"/dev/ttyUSB0": Absence(Cause.ASLEEP)}


# --- gpsd


@contextmanager
def a_gpsd(says: bytes, *, hangs_up: bool = False) -> Iterator[int]:
    """Something at a port of this machine that says this to everybody."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                try:
                    client.sendall(says)
                    while not hangs_up and client.recv(4096):
                        pass
                except OSError:
                    return

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(HANG_S)


POLL = (
    b'{"class":"POLL","time":"2026-01-01T00:00:00.000Z","active":2,"tpv":[{"class":"TPV","device":"/dev/ttyACM0",'
    b'"mode":3,"ept":0.005,"lat":-48.1173,"lon":11.516666667,"altHAE":592.3,"altMSL":545.4,"speed":11.524},'
    b'{"class":"TPV","device":"/dev/pps0","mode":1}],"sky":[{"class":"SKY","device":"/dev/ttyACM0","satellites":'
    b'[{"PRN":4,"used":true},{"PRN":5,"used":true},{"PRN":6,"used":false}]}]}\n'
)


def test_gpsd_tells_of_every_receiver() -> None:
    version = b'{"class":"VERSION","release":"3.25"}\n'
    devices = b'{"class":"DEVICES","devices":[{"path":"/dev/ttyACM0"},{"path":"/dev/gps7"}]}\n'
    with a_gpsd(version + devices + POLL) as port:
        gpsd = Gpsd()
        assert gpsd.fixes(port) == {
            "/dev/ttyACM0": Fix(3, -NORTH, EAST, 545_400, 11_524, 2, 3, 5_000_000),
            "/dev/gps7": Fix(),
            "/dev/pps0": Fix(1),
        }
        gpsd.close()


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        (b"garbage\n", "expected an object"),
        (b"[1]\n", "expected an object"),
        (b'{"class":NaN}\n', "expected an object"),
        (b"[" * 100_000 + b"\n", "expected an object"),
        (b"x" * 300_000, "more than 262144 bytes"),
        (b"{}\n" * 100_000, "more than 262144 bytes"),
    ],
)
def test_what_is_no_answer_is_a_failure_and_nothing_stays_open(says: bytes, problem: str) -> None:
    with a_gpsd(says) as port:
        gpsd = Gpsd()
        with pytest.raises(ValueError, match=problem):
            gpsd.fixes(port)
        assert gpsd._socket is None


def test_a_gpsd_that_hangs_or_hangs_up_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gps, "WAIT_S", 0.05)
    with a_gpsd(b'{"class":"VERSION"}\n') as port, pytest.raises(TimeoutError):
        Gpsd().fixes(port)
    monkeypatch.undo()
    with a_gpsd(b"", hangs_up=True) as port, pytest.raises(ConnectionError):
        Gpsd().fixes(port)


@pytest.mark.parametrize(
    "told",
    [
        b'"lat":91,"lon":181',
        b'"lat":"48","lon":true',
        b'"lat":1e999999999,"lon":-1e999999999',
        b'"lat":null,"lon":[1]',
        b'"lat":' + b"9" * 4000 + b',"lon":{}',
    ],
)
def test_a_gpsd_that_lies_is_not_believed(told: bytes) -> None:
    answer = (
        b'{"class":"POLL","tpv":[7,{"device":"\\u001b[31mx","mode":3,' + told + b',"alt":1e-999999999}],"sky":{}}\n'
    )
    with a_gpsd(answer) as port:
        gpsd = Gpsd()
        assert gpsd.fixes(port) == {"[31mx": Fix(3, A, A, 0)}
        gpsd.close()


def test_receivers_are_as_many_as_are_of_use() -> None:
    devices = b",".join(b'{"path":"/dev/gps%d"}' % number for number in range(1000))
    with a_gpsd(b'{"class":"DEVICES","devices":[' + devices + b']}\n{"class":"POLL"}\n') as port:
        gpsd = Gpsd()
        assert len(gpsd.fixes(port)) == gps.RECEIVERS_MAX
        gpsd.close()


@pytest.mark.skipif(GPSD is None, reason="no gpsd here")
def test_a_real_gpsd_tells_what_its_receiver_says() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with a_line() as (receiver, name):
        os.chmod(name, 0o666)  # noqa: S103  gpsd gives up its privileges
        command = [str(GPSD), "-N", "-b", "-S", str(port), name]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            host, receivers, second = Host(), probes.Receivers(), 0
            rows: dict[str, object] = {}

            def is_found() -> bool:
                nonlocal second, rows
                second += 1
                for each in (RMC, GGA, GSA):
                    os.write(receiver, sentence(each.replace("123519", f"1235{second % 60:02}")))
                try:
                    rows = dict(receivers.read(host, port=port, device="", speed=0))
                except OSError:  # It does not listen yet.
                    return False
                return any(isinstance(row, Fix) and row.mode == 3 for row in rows.values())

            wait_until(is_found, lambda: rows)
            process.kill()  # Told to end, it may wait for ever for what it wrote to be read.
            host.close()
    [(called, row)] = rows.items()
    assert called == name
    assert isinstance(row, Fix)
    assert row[:5] == HERE[:5]
