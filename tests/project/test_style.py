# SPDX-License-Identifier: Apache-2.0
"""The yardsticks of the project, measured: openings, lengths, words, who speaks to which library, and to people."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from sysmond.sources import gps

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PRODUCT = ("sysmond", "sysmon_tools", "probes", "docs")

SPDX = "# SPDX-License-Identifier: Apache-2.0"
FUNCTION_LINES_MAX = 70
# Each of these says nothing about what a thing is or does.
EMPTY_WORDS = {"manager", "handler", "helper", "helpers", "data", "info", "util", "utils", "misc"}
# Each of these says what happened to a thing; a name that others see says what the thing is.
PARTICIPLES = {"told", "found", "each", "held", "taken", "kept"}
WELL_KNOWN = {"NotFoundError"}  # As D-Bus services call it.
# Spoken in one file each, so that one file changes when the library does.
ONE_FILE_LIBRARIES = {"dbus_fast", "h5py", "rich", "textual", "yaml"}

STREAMS = {f"sys.{name}" for name in ("stdout", "stderr", "__stdout__", "__stderr__")}
HARMLESS = {"encoding", "isatty", "fileno", "flush"}
SPEAKING_MODULES = {"curses", "faulthandler", "getpass", "logging", "pdb", "pprint", "syslog", "traceback", "warnings"}
SPEAKING_FUNCTIONS = {"print", "input", "breakpoint"}
TERMINALS = ("/dev/tty", "/dev/pts", "/dev/std", "/dev/console", "/dev/fd/1", "/dev/fd/2")
# Who may write past ``say`` and ``put`` of ``sysmond.base.terminal``, with what, and why that shows nothing unescaped.
SPEAKERS = {
    "sysmond/base/terminal.py": {"sys.stderr.write", "sys.stdout.write", "traceback"},
    "sysmond/bus/loop.py": {"logging"},  # Has what libraries log go to ``say``.
    "sysmond/bus/reader.py": {"sys.stdout"},  # JSON, for the process that started it.
    "sysmond/plan/plugins.py": {"sys.stderr"},  # What plugins print is their own, and they are root's.
    "sysmond/daemon/runner.py": {"/dev/tty"},  # Opened only to see whether there is one.
    "sysmond/daemon/live_view.py": {"os.write(1)"},  # Constant: puts the screen as it was.
    "sysmon_tools/output.py": {"sys.stdout.buffer"},  # What ``formats`` and ``rows`` made printable.
    "sysmon_tools/show.py": {"sys.stdout.write"},  # What rich drew of its ``Text``.
}

PROBE_LINES_MAX = 40
# Probes that are longer, and why nothing of them is better elsewhere.
LONGER_PROBES = {
    "cgroup": "three tables of both versions of cgroups; what they share is in sysmond/cgroups/",
    "cgroup_memory": "three tables of both versions of cgroups; what they share is in sysmond/cgroups/",
    "cpu": "two tables of one large file, read each second: parsed by hand, and looked up once",
    "exits": "switches between ways while it runs; the ways are in sysmond/tasks/ends/",
    "host": "eighteen columns of as many files, each with a form of its own",
    "pressure": "four files, read each second: parsed by hand, and missing ones are tried once",
}
DECLARING = re.compile(r"\b(?:Metric|Derived|Table)\b")
# What speaks a protocol or a C library is a source, not a probe; to look up a name is neither.
PROTOCOL_LIBRARIES = {"array", "ctypes", "fcntl", "mmap", "select", "socket", "subprocess"}
LOOKUPS = {"qdisc": {"socket"}}  # if_nameindex(3)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


def name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


class Defined(NamedTuple):
    """What a module gives a name: a function, a class or an argument, on which line, and on how many."""

    name: str
    line: int
    lines: int


class Outline(NamedTuple):
    """What most tests look at in a module: how it begins, what it defines, imports and spells."""

    opening: list[str]
    docstring: str
    functions: list[Defined]
    classes: list[Defined]
    arguments: list[Defined]
    imported: set[str]
    spelled: set[str]


@cache
def outline(path: Path) -> Outline:
    """Give that; a module is parsed once for all of them, and its tree, which is large, let go of."""
    module, opening = parse(path), path.read_text(encoding="utf-8").splitlines()[:2]
    made = Outline(opening, ast.get_docstring(module) or "", [], [], [], imported(module), set())
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                made.functions.append(defined(node.name, node))
            case ast.ClassDef():
                made.classes.append(defined(node.name, node))
            case ast.arg():
                made.arguments.append(defined(node.arg, node))
            case ast.Attribute(attr=spelling) | ast.Name(id=spelling):
                made.spelled.add(spelling)
            case _:
                pass
    return made


def defined(identifier: str, node: Function | ast.ClassDef | ast.arg) -> Defined:
    return Defined(identifier, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)


def outlines(*folders: str) -> Iterator[tuple[Path, Outline]]:
    paths = sources(*folders)
    assert len(paths) > 100
    return ((path, outline(path)) for path in paths)


def said_of(path: Path, found: Iterable[Defined]) -> list[str]:
    """Where each is, for whoever is to mend it."""
    return [f"{name(path)}:{each.line}: {each.name}" for each in found]


def assert_none(offences: list[str]) -> None:
    assert not offences, "\n".join(["", *offences])


def test_a_module_opens_with_its_licence_and_a_sentence() -> None:
    offences = []
    for path, module in outlines(*PRODUCT, "tests", "benchmarks"):
        lines = [line for line in module.opening if not line.startswith("#!")]
        if lines[:1] != [SPDX]:
            offences.append(f"{name(path)}:{len(module.opening) - len(lines) + 1}: no {SPDX!r}")
        opening = module.docstring.partition("\n\n")[0]
        if not re.match(r"\w.*[.:]$", opening, re.DOTALL):
            offences.append(f"{name(path)}:{len(module.opening)}: opens with {opening!r}, not with a sentence")
    assert_none(offences)


packages = [path.parent for path in sources("sysmond") if path.name == "__init__.py" and path.parent.name != "sysmond"]


@pytest.mark.parametrize("package", packages, ids=name)
def test_a_package_opens_with_what_is_in_each_of_its_modules(package: Path) -> None:
    opening = ast.get_docstring(parse(package / "__init__.py")) or ""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert {module for module in modules if f"``{module}``" not in opening} == set()


def test_a_function_fits_one_screen() -> None:
    assert_none(
        [
            f"{name(path)}:{each.line}: {each.name} has {each.lines} lines"
            for path, module in outlines(*PRODUCT)
            for each in module.functions
            if each.lines > FUNCTION_LINES_MAX
        ]
    )


def test_no_name_is_an_empty_word() -> None:
    offences = []
    for path, module in outlines(*PRODUCT, "tests", "benchmarks"):
        found = [
            each
            for each in (Defined(path.stem, 1, 1), *module.functions, *module.classes)
            if EMPTY_WORDS & set(words(each.name))
        ]
        if path.parts[-2] == "tests" or path.name.startswith("test_"):
            found = [each for each in found if not each.name.startswith("test_")]  # A test's name is a sentence.
        offences += said_of(path, found)
    assert_none(offences)


def test_a_public_class_is_called_as_no_other() -> None:
    """Within the product: a name leads a reader to one thing."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in sources("sysmond", "sysmon_tools", "probes"):
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(f"{name(path)}:{node.lineno}")
    assert len(homes) > 100
    assert {called: places for called, places in homes.items() if len(places) > 1} == {}


def test_what_is_defined_or_taken_is_called_by_what_it_is() -> None:
    offences = []
    for path, module in outlines(*PRODUCT):
        named = [each for each in (*module.functions, *module.classes, *module.arguments)
                 if PARTICIPLES & set(words(each.name)) and each.name not in WELL_KNOWN]  # fmt: skip
        offences += said_of(path, named)
    assert_none(offences)


def words(identifier: str) -> list[str]:
    """Split an identifier: ``HttpInfo`` and ``http_info`` are the same two words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower().split("_")


def test_the_empty_words_are_found_in_both_spellings() -> None:
    assert words("DiskInfo") == ["disk", "info"]
    assert words("disk_info") == ["disk", "info"]


def test_a_foreign_library_is_spoken_in_one_file() -> None:
    speakers: defaultdict[str, set[str]] = defaultdict(set)
    for path in sources(*PRODUCT):
        for library in outline(path).imported & ONE_FILE_LIBRARIES:
            speakers[library].add(name(path))
    # Its widgets stand in any program of textual's; the screen is one of those.
    assert speakers.pop("textual") == {"sysmon_tools/screen/app.py", "sysmon_tools/screen/lines.py"}
    assert {library: files for library, files in speakers.items() if len(files) > 1} == {}


def imported(module: ast.Module) -> set[str]:
    packages: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            packages.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.add(node.module.partition(".")[0])
    return packages


def test_whoever_speaks_to_people_has_it_made_printable() -> None:
    """Say it with ``say`` or ``put`` of ``sysmond.base.terminal``, draw it with ``sysmon_tools.show``."""
    found = {name(path): spoken(parse(path)) for path in sources("sysmond", "sysmon_tools", "probes")}
    assert {path: ways for path, ways in found.items() if ways} == SPEAKERS


def spoken(module: ast.Module) -> set[str]:
    """Every way in which a module might write to a terminal past ``sysmond.base.terminal``."""
    found: set[str] = set()
    seen: set[ast.AST] = set()
    for node in ast.walk(module):  # Outer expressions come first.
        match node:
            case ast.Compare():  # ``sys.stdout is None``
                seen.update((node.left, *node.comparators))
            case ast.Attribute(value=ast.Attribute() as stream) if ast.unparse(stream) in STREAMS:
                seen.add(stream)
                found |= {ast.unparse(node)} if node.attr not in HARMLESS else set()
            case ast.Attribute() if node not in seen and ast.unparse(node) in STREAMS:
                found.add(ast.unparse(node))
            case ast.Import():
                found |= {each.name for each in node.names if each.name.partition(".")[0] in SPEAKING_MODULES}
            case ast.ImportFrom(module=origin):
                found |= {f"{origin}.{each.name}" for each in node.names} & {*STREAMS, "os.write"}
                found |= {str(origin)} if str(origin).partition(".")[0] in SPEAKING_MODULES else set()
            case ast.Constant(value=str(text)) if text.startswith(TERMINALS):
                found.add(text)
            case ast.Call():
                found |= called(node)
            case _:
                pass
    return found


def called(node: ast.Call) -> set[str]:
    function, first = ast.unparse(node.func), node.args[0] if node.args else ast.Constant(None)
    target = ast.unparse(first)
    if function in SPEAKING_FUNCTIONS:
        return {function}
    if function in {"sys.exit", "SystemExit"}:  # A text goes to standard error.
        is_text = isinstance(first, ast.JoinedStr) or isinstance(getattr(first, "value", None), str)
        return {f"{function}({target})"} if is_text else set()
    if function in {"os.write", "os.writev", "os.fdopen", "open"}:
        is_person = target in {"1", "2"} or (
            function.startswith("os.write") and any(word in target.lower() for word in ("err", "stdout", "terminal"))
        )
        return {f"{function}({target})"} if is_person else set()
    return set()


@pytest.mark.parametrize(
    ("source", "way"),
    [
        ("print('x')", "print"),
        ("import sys; sys.stderr.write('x')", "sys.stderr.write"),
        ("import sys; sys.stdout.buffer.write(b'x')", "sys.stdout.buffer"),
        ("import sys; json.dump(x, sys.stdout)", "sys.stdout"),
        ("out = sys.__stdout__", "sys.__stdout__"),
        ("from sys import stderr", "sys.stderr"),
        ("from os import write", "os.write"),
        ("os.write(2, b'x')", "os.write(2)"),
        ("os.write(self._stderr, b'x')", "os.write(self._stderr)"),
        ("open(1, 'w').write('x')", "open(1)"),
        ("open('/dev/tty', 'w').write('x')", "/dev/tty"),
        ("import logging.handlers", "logging.handlers"),
        ("from traceback import print_exc", "traceback"),
        ("sys.exit(f'{x}: no')", "sys.exit(f'{x}: no')"),
        ("raise SystemExit('no')", "SystemExit('no')"),
    ],
)
def test_every_way_round_it_is_found(source: str, way: str) -> None:
    assert spoken(ast.parse(source)) == {way}


def test_looking_at_a_stream_is_not_speaking() -> None:
    assert spoken(ast.parse("sys.stdout is None or sys.stdout.isatty(); sys.stderr.flush(); sys.exit(main())")) == set()


def probe_lines(path: Path) -> int:
    """Lines of code of a probe beside what it declares: of functions and classes, without what they say of themselves.

    Declarations are constants, functions that make metrics or columns, and the hook.
    """
    text, lines = path.read_text(encoding="utf-8"), set[int]()
    for node in parse(path).body:
        if not isinstance(node, Function | ast.ClassDef) or node.name == "sysmond_probes":
            continue
        if isinstance(node, Function) and node.returns and DECLARING.search(ast.unparse(node.returns)):
            continue
        said = {
            line
            for inner in ast.walk(node)
            if isinstance(inner, Function | ast.ClassDef) and ast.get_docstring(inner) is not None
            for line in range(inner.body[0].lineno, (inner.body[0].end_lineno or 0) + 1)
        }
        lines |= set(range(node.lineno, (node.end_lineno or 0) + 1)) - said
    written = [line.strip() for line in text.splitlines()]
    return sum(bool(written[line - 1]) and not written[line - 1].startswith("#") for line in lines)


@pytest.mark.parametrize("path", sources("probes"), ids=name)
def test_a_probe_is_short_beside_its_declarations(path: Path) -> None:
    """What speaks a protocol, or is more than reading text, has a module of its own in ``sysmond/sources/``."""
    lines = probe_lines(path)
    if path.stem in LONGER_PROBES:
        assert lines > PROBE_LINES_MAX, "it is short enough: take it off the list"
    else:
        assert lines <= PROBE_LINES_MAX
    assert outline(path).imported & PROTOCOL_LIBRARIES == LOOKUPS.get(path.stem, set())


def test_lines_of_a_probe_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "probe.py"
    path.write_text(
        "A = 1\n\ndef _time(name: str) -> Metric:\n    return counter(name)\n\n"
        'def read(host):\n    """Give.\n\n    More.\n    """\n    # Why.\n    for a in host:\n\n        yield a\n\n'
        'class B:\n    """Which."""\n\n    def c(self):\n        """What."""\n        return 1\n\n'
        "def sysmond_probes():\n    return []\n"
    )
    assert probe_lines(path) == len(["def read", "for", "yield", "class", "def c", "return"])


def test_nothing_speaks_to_a_network() -> None:
    """Sockets are of Unix and netlink, and nothing imports what would open another; a gpsd is of this machine."""
    modules = {"ftplib", "http", "imaplib", "poplib", "requests", "smtplib", "socketserver", "ssl", "urllib", "xmlrpc"}
    families = re.compile(r"AF_(?!UNIX$|NETLINK$)\w+|create_server|create_connection|start_server|open_connection")
    found = {}
    for path in sources("sysmond", "sysmon_tools", "probes"):
        module = outline(path)
        found[name(path)] = (module.imported & modules) | {word for word in module.spelled if families.fullmatch(word)}
    assert {path: ways for path, ways in found.items() if ways} == {"sysmond/sources/gps.py": {"create_connection"}}
    calls = [
        ast.unparse(node.args[0])
        for node in ast.walk(parse(REPOSITORY / "sysmond/sources/gps.py"))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("create_connection")
    ]
    assert (calls, gps.LOCALHOST) == (["(LOCALHOST, port)"], "127.0.0.1")


# How arrays are called in annotations, and what a docstring says of one: its type, or what it has one of each.
ARRAYS = {"Int64Array", "Float64Array", "BoolArray", "Array"}
ARRAY = re.compile(rf"\b(?:{'|'.join(ARRAYS)}|NDArray|ndarray)\b")
SHAPE = re.compile(r"\b(?:int64|float64|bool|int32|i1|S)\b|\[(?:series|row|key|n|…|tick|bucket|edge|reading)|shaped as")


def public_functions(module: ast.Module) -> Iterator[tuple[str, ast.FunctionDef, str]]:
    """Each with its name and its documentation; methods that a base has documented are left out."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, node, ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bases = {ast.unparse(base) for base in node.bases}
            for method in node.body:
                if not isinstance(method, ast.FunctionDef) or (bases - {"NamedTuple", "ABC", "Protocol"}):
                    continue
                if method.name == "__init__" or not method.name.startswith("_"):
                    doc = f"{ast.get_docstring(node)} {ast.get_docstring(method)}"
                    yield f"{node.name}.{method.name}", method, doc


def test_whoever_takes_or_gives_arrays_says_of_what_shape() -> None:
    silent, count = [], 0
    for path in sources("sysmond", "sysmon_tools", "probes"):
        module = parse(path)
        imported = {alias.name for node in ast.walk(module) if isinstance(node, ast.ImportFrom) for alias in node.names}
        if not ARRAYS & imported:
            continue  # ``Array`` is also what memory shared with the kernel is called.
        for function, node, doc in public_functions(module):
            annotations = [argument.annotation for argument in (*node.args.args, *node.args.kwonlyargs)]
            signature = " ".join(ast.unparse(each) for each in (*annotations, node.returns) if each is not None)
            if ARRAY.search(signature):
                count += 1
                if not SHAPE.search(doc):
                    silent.append(f"{name(path)}: {function}")
    assert count > 100
    assert silent == []
