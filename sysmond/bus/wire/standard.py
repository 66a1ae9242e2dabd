# SPDX-License-Identifier: Apache-2.0
"""The interfaces that every service on D-Bus has: Peer, Introspectable, Properties, ObjectManager.

Source: D-Bus specification, "Standard Interfaces".
"""

from collections.abc import Iterator
from typing import Any, Protocol

from sysmond.bus.wire.caller import Caller
from sysmond.bus.wire.errors import ForeignCallError
from sysmond.bus.wire.interface import WHOLE_BYTES_MAX, CallContext, Interface, Property, Signal, method
from sysmond.bus.wire.values import Variant

DBUS = "org.freedesktop.DBus"


class ObjectService(Protocol):
    """The service, as these interfaces see it: the objects, and who may change them."""

    def interfaces(self, path: str) -> dict[str, list[Interface]]:
        """The interfaces at a path; nothing where there is no object."""

    def managed(self) -> Iterator[tuple[str, dict[str, list[Interface]]]]:
        """The objects that the ObjectManager tells of."""

    def describe(self, path: str, caller: Caller) -> str:
        """Introspection XML of a path."""

    def changed(self, path: str, implementation: Interface, *names: str) -> None:
        """Tell whoever listens that properties changed."""

    async def authorize(self, request: CallContext, action: str) -> None:
        """Return where the caller may do that."""


class Peer(Interface):
    """Whether somebody is there, and on which machine."""

    NAME = f"{DBUS}.Peer"

    @method()
    def ping(self, request: CallContext) -> None:
        """Answer."""

    @method("", "machine_uuid:s")
    def get_machine_id(self, request: CallContext) -> str:  # noqa: ARG002  everybody may know
        """The id of this machine, as in /etc/machine-id."""
        for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
            try:
                with open(path, encoding="ascii") as file:
                    return file.read(64).strip()
            except OSError:
                continue
        raise ForeignCallError("FileNotFound", "/etc/machine-id is not there")


class Introspectable(Interface):
    """What an object is and what lies below it."""

    NAME = f"{DBUS}.Introspectable"

    def __init__(self, service: ObjectService) -> None:
        """``service``: whose objects are described."""
        self._service = service

    @method("", "xml_data:s")
    def introspect(self, request: CallContext) -> str:
        """The interfaces of the object and the names of those below."""
        return self._service.describe(request.path, request.caller)


class Properties(Interface):
    """The properties of all interfaces of an object."""

    NAME = f"{DBUS}.Properties"
    properties_changed = Signal("interface_name:s changed_properties:a{sv} invalidated_properties:as")

    def __init__(self, service: ObjectService) -> None:
        """``service``: whose objects' properties these are."""
        self._service = service

    @method("interface_name:s property_name:s", "value:v")
    def get(self, request: CallContext, interface: str, name: str) -> Variant:
        """One property."""
        implementation, declared = self._find(request.path, interface, name)
        return Variant(declared.signature, declared.value(implementation, request.caller))

    @method("interface_name:s", "properties:a{sv}")
    def get_all(self, request: CallContext, interface: str) -> dict[str, Variant]:
        """All properties of an interface, or of all interfaces where its name is empty."""
        there = self._service.interfaces(request.path)
        if interface and interface not in there:
            raise ForeignCallError("UnknownInterface", f"{request.path} has no interface {interface[:255]!r}")
        return {
            name: value
            for known, implementations in there.items()
            if not interface or known == interface
            for name, value in values_of(implementations, request.caller).items()
        }

    @method("interface_name:s property_name:s value:v")
    async def set(self, request: CallContext, interface: str, name: str, value: Variant) -> None:
        """Change a property, which most cannot be."""
        implementation, declared = self._find(request.path, interface, name)
        if not declared.setter:
            raise ForeignCallError("PropertyReadOnly", f"{interface}.{name} can be read alone")
        if value.signature != declared.signature:
            raise ForeignCallError("InvalidArgs", f"{name}: type {value.signature}; expected {declared.signature}")
        await self._service.authorize(request, "configure")
        getattr(implementation, declared.setter)(value.value)
        self._service.changed(request.path, implementation, declared.name)

    def _find(self, path: str, interface: str, name: str) -> tuple[Interface, Property]:
        there = self._service.interfaces(path)
        if interface and interface not in there:
            raise ForeignCallError("UnknownInterface", f"{path} has no interface {interface[:255]!r}")
        for known, implementations in there.items():
            for implementation in implementations if not interface or known == interface else ():
                if name in implementation.PROPERTIES:
                    return implementation, implementation.PROPERTIES[name]
        raise ForeignCallError("UnknownProperty", f"{path} has no property {name[:255]!r}")


class Objects(Interface):
    """The objects below this one."""

    NAME = f"{DBUS}.ObjectManager"
    interfaces_added = Signal("object_path:o interfaces_and_properties:a{sa{sv}}")
    interfaces_removed = Signal("object_path:o interfaces:as")

    def __init__(self, service: ObjectService) -> None:
        """``service``: whose objects these are."""
        self._service = service

    @method("", "objects:a{oa{sa{sv}}}", bytes_max=WHOLE_BYTES_MAX)
    def get_managed_objects(self, request: CallContext) -> dict[str, Any]:
        """All objects with all properties."""
        return {path: values_by_interface(there, request.caller) for path, there in self._service.managed()}


def values_of(implementations: list[Interface], caller: Caller | None = None) -> dict[str, Variant]:
    """The properties of one interface, as this caller may know them; as everybody may without one."""
    return {
        declared.name: Variant(declared.signature, declared.value(implementation, caller))
        for implementation in implementations
        for declared in implementation.PROPERTIES.values()
    }


def values_by_interface(
    there: dict[str, list[Interface]], caller: Caller | None = None
) -> dict[str, dict[str, Variant]]:
    """The properties of an object, by the name of the interface; ``caller``: as of ``values_of``."""
    return {name: values_of(implementations, caller) for name, implementations in there.items()}
