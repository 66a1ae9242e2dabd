# SPDX-License-Identifier: Apache-2.0
"""How an interface is declared: Python methods with D-Bus signatures, and the XML that describes them.

::

    class Steering(Interface):
        NAME = names.MANAGER
        ended = Signal("why:s")

        @method("name:s interval_ns:t options:a{sv}", "was_ns:t", action="configure")
        async def set_interval(self, request: CallContext, name: str, interval_ns: int, options: Options) -> int:
            \"\"\"Sample a probe at another interval.\"\"\"

        @prop("s", changes=Changes.NEVER)
        def version(self) -> str:
            \"\"\"The version of sysmond.\"\"\"

Names on the bus are those of Python in camel case. A method takes the request (who calls) and its arguments, may be
plain, ``async``, or a generator that gives way to others wherever it yields, and returns nothing, the one value, or a
tuple of as many as it declares; an ``h`` is a descriptor, which belongs to the bus part from then on. Several classes
of one ``NAME`` at one path are one interface.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, TypeVar

from sysmond.bus.wire.caller import Caller
from sysmond.bus.wire.errors import InvalidArgumentError
from sysmond.bus.wire.values import ANSWER_BYTES_MAX, Variant
from sysmond.errors import nearest

DOCTYPE = (
    '<!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN"\n'
    '"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">'
)

Options = Mapping[str, Variant]

_T = TypeVar("_T")
Pieces = Generator[None, None, _T]
"""What gives way to other users' calls after each piece of its work, and then gives a value."""

_F = TypeVar("_F", bound=Callable[..., Any])
_DECLARED = "bus_declared"
WHOLE_BYTES_MAX = 4 * 1024 * 1024
"""Of an answer that tells of all there is, and grows with the probes that somebody has installed."""

_EMITS = "org.freedesktop.DBus.Property.EmitsChangedSignal"


class CallContext(NamedTuple):
    """Who calls, at which object, and whether polkit may ask a person about it."""

    caller: Caller
    path: str
    may_ask: bool = False


class Changes(StrEnum):
    """What PropertiesChanged tells of a property, as D-Bus spells it."""

    NEVER = "const"
    EMITTED = "true"
    INVALIDATED = "invalidates"
    SILENT = "false"


class Argument(NamedTuple):
    """One argument of a method or a signal."""

    name: str
    signature: str


class Method(NamedTuple):
    """A declared method. ``action``: of polkit, that the caller needs; empty: none. ``bytes_max``: of its answer."""

    name: str
    takes: tuple[Argument, ...]
    gives: tuple[Argument, ...]
    action: str
    doc: str
    function: Callable[..., Any]
    bytes_max: int

    @property
    def signature(self) -> str:
        """What it takes, as one signature."""
        return "".join(argument.signature for argument in self.takes)

    @property
    def answer(self) -> str:
        """What it gives, as one signature."""
        return "".join(argument.signature for argument in self.gives)


class Property(NamedTuple):
    """A declared property. ``setter``: the name of the method of the class that takes a new value; empty: none.

    ``is_for_caller``: its value depends on who asks; a signal, which all may hear, has what everybody may know.
    """

    name: str
    signature: str
    changes: Changes
    setter: str
    doc: str
    function: Callable[..., Any]
    is_for_caller: bool = False

    def value(self, implementation: "Interface", caller: Caller | None) -> Any:  # noqa: ANN401  as it is declared
        """Its value as this caller may know it; as everybody may without one."""
        if self.is_for_caller:
            return self.function(implementation, is_restricted=caller is not None and caller.is_restricted)
        return self.function(implementation)


class Signal:
    """A declared signal; its class attribute's name, in camel case, is its name on the bus."""

    def __init__(self, arguments: str = "", doc: str = "") -> None:
        """``arguments``: as of a method."""
        self.arguments = _arguments(arguments)
        self.signature = "".join(argument.signature for argument in self.arguments)
        self.doc = doc
        self.name = ""
        self.interface = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = camel(name)
        self.interface = getattr(owner, "NAME", "")


class Interface:
    """Base of all interfaces; ``NAME`` is its name on the bus."""

    NAME: ClassVar[str] = ""
    METHODS: ClassVar[dict[str, Method]] = {}
    PROPERTIES: ClassVar[dict[str, Property]] = {}
    SIGNALS: ClassVar[dict[str, Signal]] = {}

    def __init_subclass__(cls) -> None:
        """Collect what the class declares, in order."""
        there = [getattr(member, _DECLARED, member) for member in vars(cls).values()]
        cls.METHODS = cls.METHODS | {member.name: member for member in there if isinstance(member, Method)}
        cls.PROPERTIES = cls.PROPERTIES | {member.name: member for member in there if isinstance(member, Property)}
        cls.SIGNALS = cls.SIGNALS | {member.name: member for member in there if isinstance(member, Signal)}


def method(
    takes: str = "", gives: str = "", *, action: str = "", bytes_max: int = ANSWER_BYTES_MAX
) -> Callable[[_F], _F]:
    """Declare a method: arguments as ``"name:s options:a{sv}"``. ``action``: what polkit is asked for."""

    def declare(function: _F) -> _F:
        name, doc = camel(function.__name__), _first_line(function)
        declared = Method(name, _arguments(takes), _arguments(gives), action, doc, function, bytes_max)
        setattr(function, _DECLARED, declared)
        return function

    return declare


def prop(
    signature: str, *, changes: Changes = Changes.SILENT, setter: str = "", is_for_caller: bool = False
) -> Callable[[_F], _F]:
    """Declare a property, given by this method; ``setter`` names another that takes a new value.

    ``is_for_caller``: the method has a keyword ``is_restricted``: whether who asks may see what is restricted.
    """

    def declare(function: _F) -> _F:
        name, doc = camel(function.__name__), _first_line(function)
        declared = Property(name, signature, changes, setter, doc, function, is_for_caller)
        setattr(function, _DECLARED, declared)
        return function

    return declare


def ours(prefix: str) -> dict[str, list[type[Interface]]]:
    """All declared interfaces whose name begins so, with the classes that each is made of."""
    classes: dict[str, list[type[Interface]]] = {}
    for kind in Interface.__subclasses__():
        if kind.NAME.startswith(prefix):
            classes.setdefault(kind.NAME, []).append(kind)
    return dict(sorted(classes.items()))


def read_options(options: Options, known: Mapping[str, str]) -> dict[str, Any]:
    """Give the values of options: ``known`` names each with its signature.

    :raises InvalidArgumentError: for an unknown option, or one of another type.
    """
    values = {}
    for name, value in options.items():
        if name not in known:
            right = f"expected {', '.join(sorted(known))}" if known else "there are none"
            raise InvalidArgumentError(f"option {name[:80]!r}: not known{nearest(name[:80], known, right)}")
        if value.signature != known[name]:
            raise InvalidArgumentError(f"option {name!r}: type {value.signature}; expected {known[name]}")
        values[name] = value.value
    return values


def camel(name: str) -> str:
    """Spell a name of Python as one on the bus: ``set_interval`` is ``SetInterval``."""
    return "".join(word.capitalize() for word in name.split("_"))


def xml(interfaces: Iterable[type[Interface]], *, documented: bool = False) -> list[str]:
    """Describe one interface, which these classes are together, as lines of introspection XML.

    Members are in the order of their names: which class declares them is nobody else's business.
    """
    classes = list(interfaces)
    lines = [f'  <interface name="{classes[0].NAME}">']
    members = [(name, declared) for kind in classes for name, declared in kind.METHODS.items()]
    for name, called in sorted(members):
        lines += _comment(called.doc if documented else "", called.action)
        lines.append(f'    <method name="{name}">')
        lines += [_xml_argument(one, ' direction="in"') for one in called.takes]
        lines += [_xml_argument(one, ' direction="out"') for one in called.gives]
        lines.append("    </method>")
    signals = {name: signal for kind in classes for name, signal in kind.SIGNALS.items()}
    for name, signal in sorted(signals.items()):
        lines += _comment(signal.doc if documented else "")
        lines.append(f'    <signal name="{name}">')
        lines += [_xml_argument(one) for one in signal.arguments]
        lines.append("    </signal>")
    values = {name: value for kind in classes for name, value in kind.PROPERTIES.items()}
    for name, value in sorted(values.items()):
        access = "readwrite" if value.setter else "read"
        lines += _comment(value.doc if documented else "")
        lines.append(f'    <property name="{name}" type="{value.signature}" access="{access}">')
        lines.append(f'      <annotation name="{_EMITS}" value="{value.changes}"/>')
        lines.append("    </property>")
    return [*lines, "  </interface>"]


def document(interfaces: Iterable[type[Interface]]) -> str:
    """Spell the file of one interface, as it is installed."""
    head = f"<!-- SPDX-License-Identifier: Apache-2.0 -->\n{DOCTYPE}\n<node>"
    return "\n".join([head, *xml(interfaces, documented=True), "</node>", ""])


def _xml_argument(argument: Argument, direction: str = "") -> str:
    return f'      <arg name="{argument.name}" type="{argument.signature}"{direction}/>'


def _comment(doc: str, action: str = "") -> list[str]:
    """A line of documentation, in which XML forbids two hyphens."""
    needs = f" Needs the action {action}." if action and doc else ""
    return [f"    <!-- {(doc + needs).replace('--', '–')} -->"] if doc else []


def _arguments(text: str) -> tuple[Argument, ...]:
    return tuple(Argument(*argument.split(":")) for argument in text.split())


def _first_line(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").partition("\n")[0].replace("``", "`")
