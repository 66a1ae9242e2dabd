# SPDX-License-Identifier: Apache-2.0
"""What the loader needs of libbpf.so.1: open an object, load one of its programs, attach and pin it.

Sources: libbpf's ``libbpf.h`` and ``btf.h``, of version 1.0 and later. Standard library only.
"""

import ctypes
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from sysmond.errors import Error

LIBRARY = "libbpf.so.1"
# Of the verifier's log of one program, of which the last lines matter.
LOG_BYTES = 4 * 1024 * 1024
BTF_KIND_FUNC = 12
BTF_KIND_TYPEDEF = 8

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "bpf_object__open_mem": (c_void_p, [c_char_p, c_size_t, c_void_p]),
    "bpf_object__load": (c_int, [c_void_p]),
    "bpf_object__close": (None, [c_void_p]),
    "bpf_object__next_program": (c_void_p, [c_void_p, c_void_p]),
    "bpf_object__next_map": (c_void_p, [c_void_p, c_void_p]),
    "bpf_program__name": (c_char_p, [c_void_p]),
    "bpf_program__section_name": (c_char_p, [c_void_p]),
    "bpf_program__set_autoload": (c_int, [c_void_p, c_bool]),
    "bpf_program__set_log_buf": (c_int, [c_void_p, c_char_p, c_size_t]),
    "bpf_program__attach": (c_void_p, [c_void_p]),
    "bpf_program__pin": (c_int, [c_void_p, c_char_p]),
    "bpf_link__pin": (c_int, [c_void_p, c_char_p]),
    "bpf_link__destroy": (c_int, [c_void_p]),
    "bpf_map__name": (c_char_p, [c_void_p]),
    "bpf_map__is_internal": (c_bool, [c_void_p]),
    "bpf_map__set_pin_path": (c_int, [c_void_p, c_char_p]),
    "bpf_map__set_max_entries": (c_int, [c_void_p, c_uint32]),
    "bpf_map__initial_value": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "bpf_map__btf_value_type_id": (c_uint32, [c_void_p]),
    "bpf_object__btf": (c_void_p, [c_void_p]),
    "btf__load_vmlinux_btf": (c_void_p, []),
    "btf__find_by_name_kind": (c_int, [c_void_p, c_char_p, c_uint32]),
    "btf__find_by_name": (c_int, [c_void_p, c_char_p]),
    "btf__type_by_id": (c_void_p, [c_void_p, c_uint32]),
    "btf__name_by_offset": (c_char_p, [c_void_p, c_uint32]),
    "btf__free": (None, [c_void_p]),
    "libbpf_set_print": (c_void_p, [c_void_p]),
}


class _Options(ctypes.Structure):
    """``struct bpf_object_open_opts``, as far as it is needed."""

    _fields_ = (
        ("sz", c_size_t),
        ("object_name", c_char_p),
        ("relaxed_maps", c_bool),
        ("pin_root_path", c_char_p),
        ("unused", c_uint32),
        ("kconfig", c_char_p),
        ("btf_custom_path", c_char_p),
    )


# enum libbpf_errno of bpf/libbpf.h, as far as an object may be at fault; strerror(3) knows none of them.
_FAILURES = {
    4000: "no valid ELF file",
    4001: "no object of BPF programs",
    4002: "its version section is wrong",
    4003: "it is of the other byte order",
    4005: "a relocation failed",
}


class BpfRefusedError(Error):
    """The kernel would not load, attach or pin a program. ``code``: the errno; ``log``: what the verifier said."""

    def __init__(self, what: str, code: int, log: str = "") -> None:
        why = _FAILURES.get(code) or os.strerror(code)
        super().__init__(f"{what}: {why}")
        self.code = code
        self.log = log


class Libbpf:
    """The library, its messages switched off: ``BpfRefusedError`` has their content."""

    def __init__(self) -> None:
        """Load it.

        :raises Error: where there is none, or one before version 1.0.
        """
        try:
            self._library = ctypes.CDLL(LIBRARY, use_errno=True)
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(self._library, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as missing:
            raise Error(f"{LIBRARY} is not installed ({missing}); it is in the package libbpf1") from None
        self._library.libbpf_set_print(None)

    def call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  as the C function has it
        """Call a function of the library.

        :raises BpfRefusedError: where it gives a negative number, or no pointer and an errno.
        """
        ctypes.set_errno(0)
        result = getattr(self._library, function)(*arguments)
        if isinstance(result, int) and -4095 <= result < 0:  # noqa: PLR2004  MAX_ERRNO
            raise BpfRefusedError(function, -result)
        if result is None and _SIGNATURES[function][0] is c_void_p and ctypes.get_errno():
            raise BpfRefusedError(function, ctypes.get_errno())
        return result

    @contextmanager
    def object(self, content: bytes, types: str = "") -> Iterator["Object"]:
        """Open an object file, and close it at the end; what was pinned stays.

        ``types``: the BTF to which its programs are fitted, where that is not to be the kernel's own.

        :raises BpfRefusedError: where it is no object of BPF programs.
        """
        path = os.fsencode(types) or None
        options = _Options(ctypes.sizeof(_Options), btf_custom_path=path)
        pointer = self.call("bpf_object__open_mem", content, len(content), byref(options))
        try:
            yield Object(self, pointer)
        finally:
            self._library.bpf_object__close(pointer)

    def knows(self, names: dict[str, int]) -> dict[str, bool]:
        """Whether the running kernel's BTF has each name of a kind.

        :raises BpfRefusedError: where the kernel has no BTF.
        """
        btf = self.call("btf__load_vmlinux_btf")
        try:
            return {
                name: self._library.btf__find_by_name_kind(btf, name.encode(), kind) >= 0
                for name, kind in names.items()
            }
        finally:
            self._library.btf__free(btf)


class Object:
    """An open object file: its programs and maps, by name."""

    def __init__(self, library: Libbpf, pointer: int) -> None:
        self._library = library
        self._pointer = pointer
        self.programs = dict(self._all("program"))
        self.maps = dict(self._all("map"))

    def _all(self, kind: str) -> Iterator[tuple[str, int]]:
        pointer = None
        while pointer := self._library.call(f"bpf_object__next_{kind}", self._pointer, pointer):
            yield self._library.call(f"bpf_{kind}__name", pointer).decode(), pointer

    def load(
        self,
        programs: Collection[str],
        folder: str,
        lengths: dict[str, int],
        constants: dict[str, int],
        log_bytes: int = LOG_BYTES,
    ) -> None:
        """Load some programs, with the maps of the object, which are pinned in ``folder``, or reused from there.

        ``lengths``: entries of maps, by name; ``constants``: values of the programs' constants, by name.

        :raises BpfRefusedError: where the kernel refuses one of them, and so all; it says why where it is but one.
        """
        call = self._library.call
        for name, pointer in self.programs.items():
            call("bpf_program__set_autoload", pointer, name in programs)
        for name, pointer in self.maps.items():
            if name in lengths:
                call("bpf_map__set_max_entries", pointer, lengths[name])
            if not call("bpf_map__is_internal", pointer):
                call("bpf_map__set_pin_path", pointer, f"{folder}/{name}".encode())
            elif name.endswith(".rodata"):
                self._set(pointer, constants)
        log = ctypes.create_string_buffer(log_bytes if len(programs) == 1 else 1)
        if len(programs) == 1:
            call("bpf_program__set_log_buf", self.programs[min(programs)], log, log_bytes)
        try:
            call("bpf_object__load", self._pointer)
        except BpfRefusedError as refused:
            raise BpfRefusedError(", ".join(programs), refused.code, log.value.decode("utf-8", "replace")) from None

    def _set(self, pointer: int, constants: dict[str, int]) -> None:
        """Write constants to their places, which the BTF of the object has."""
        call = self._library.call
        size = c_size_t()
        start = call("bpf_map__initial_value", pointer, byref(size))
        btf = call("bpf_object__btf", self._pointer)
        section = call("btf__type_by_id", btf, call("bpf_map__btf_value_type_id", pointer))
        count = c_uint32.from_address(section + 4).value & 0xFFFF
        for number in range(count):
            # struct btf_var_secinfo: type, offset, size; that type is a variable with a name.
            kind, offset, width = (
                c_uint32.from_address(section + 12 + 12 * number + 4 * field).value for field in range(3)
            )
            name = call("btf__name_by_offset", btf, c_uint32.from_address(call("btf__type_by_id", btf, kind)).value)
            if name.decode() in constants:
                place = {4: c_uint32, 8: c_uint64}[width].from_address(start + offset)
                place.value = constants[name.decode()]

    def pin(self, program: str, path: str) -> None:
        """Pin a loaded program; attach it first, and pin the link, where it is of a kind that is attached.

        :raises BpfRefusedError: where the kernel refuses either.
        """
        call = self._library.call
        pointer = self.programs[program]
        if call("bpf_program__section_name", pointer) == b"syscall":
            call("bpf_program__pin", pointer, path.encode())
            return
        link = call("bpf_program__attach", pointer)
        try:
            call("bpf_link__pin", link, path.encode())
        finally:
            call("bpf_link__destroy", link)  # The pin keeps it attached.
