# SPDX-License-Identifier: Apache-2.0
"""One connection to a bus: which bus an address means, and what becomes of many callers."""

import asyncio

import pytest

from sysmond.bus.wire.adapter import Call, Connection
from sysmond.bus.wire.errors import UnavailableError
from sysmond.bus.wire.names import ERROR
from sysmond.bus.wire.values import clean
from tests.support import onbus
from tests.support.onbus import a_bus, a_recorder, answer, python

pytestmark = onbus.pytestmark


def name_on(address: str) -> str:
    def ignore(_: Call) -> None:
        pass

    async def connect() -> str:
        connection = await Connection.connect(address, ignore, ignore)
        name = connection.name
        connection.close()
        return name

    return asyncio.run(connect())


def test_an_address_and_the_names_of_the_two_buses_lead_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_bus() as bus:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", bus.address)
        assert [name_on(address).startswith(":1.") for address in ("system", "session", bus.address)] == [True] * 3
        monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS")
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(bus.folder))
        assert name_on("session").startswith(":1.")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp:host=localhost,port=1", "not on this machine"),
        ("unix:path=/nowhere/bus;tcp:host=localhost,port=1", "not on this machine"),
        ("unix:path=/nowhere/bus", "/nowhere/bus"),
        ("unix:", "unix:"),
        ("nonsense:", "not on this machine"),
        ("session", "no bus is known"),
    ],
)
def test_what_is_no_bus_here_is_one_line(monkeypatch: pytest.MonkeyPatch, address: str, why: str) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(UnavailableError, match=why) as refused:
        name_on(address)
    assert "\n" not in str(refused.value)


def test_texts_that_dbus_cannot_carry_are_made_such() -> None:
    assert clean("a\0b\udcffc€") == "a?b?c€"


MANY = """
from jeepney.io.blocking import Proxy
connections = [connect() for _ in range(300)]
first = [call(connection, "GetStatus", "a{sv}", {})[0]["version"][0] for connection in connections]
again = [call(connection, "GetStatus", "a{sv}", {})[0]["clients"][1] for connection in connections]
print(json.dumps([len(first), max(again)]))
"""
ALL_AT_ONCE = """
from jeepney import new_method_call
connections = [connect() for _ in range(10)]
for connection in connections:
    call(connection, "GetStatus", "a{sv}", {})
for connection in connections:
    for _ in range(30):
        connection.send(new_method_call(MANAGER, "ListPins", "a{sv}", ({},)))
outcomes = {}
for connection in connections:
    for _ in range(30):
        reply = connection.receive(timeout=60)
        name = next((value for key, value in reply.header.fields.items() if key.name == "error_name"), "answered")
        outcomes[name] = outcomes.get(name, 0) + 1
print(json.dumps([outcomes, call(connections[0], "GetStatus", "a{sv}", {})[0]["calls_under_way"][1]]))
"""


def test_more_callers_than_are_remembered_are_all_answered_and_calls_of_one_user_are_bounded() -> None:
    with a_bus() as bus, a_recorder(bus):
        count, clients = python(bus, MANY)
        assert count == 300
        assert clients <= 256
        outcomes, under_way = python(bus, ALL_AT_ONCE)
        assert sum(outcomes.values()) == 300
        assert outcomes.keys() == {"answered", f"{ERROR}.TooMuch"}
        assert under_way <= 1
        assert answer(bus, "GetStatus", "a{sv}", "0")
