# SPDX-License-Identifier: Apache-2.0
"""The table ``edac``: errors by controller and module, older kernels, and garbage."""

import shutil
from pathlib import Path

import pytest
from sysmond_probes import edac

from sysmond.probe import ABSENT, Absence, Cause, Host, Sensitivity
from tests.support import sysfs

A, GIB = ABSENT, 2**30
CONTROLLERS = "sys/devices/system/edac/mc"


def test_a_server_with_ecc(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "server", "edac")
    where = "CPU_SrcID#0_MC#{}_Chan#{}_DIMM#0"
    assert dict(edac.read(Host(str(tmp_path)))) == {
        "mc0": (4295, 1, 3, 0, 64 * GIB, "skx:SKX IMC#0", A),
        "mc1": (0, 0, 0, 0, 32 * GIB, "skx:SKX IMC#1", A),
        "mc0:dimm0": (4292, 1, A, A, 32 * GIB, where.format(0, 0), "Registered-DDR4"),
        "mc0:dimm1": (0, 0, A, A, 32 * GIB, where.format(0, 1), "Registered-DDR4"),
        "mc1:dimm0": (0, 0, A, A, 32 * GIB, where.format(1, 0), "Registered-DDR4"),
    }


def test_an_older_kernel_counts_by_controller_alone_and_may_call_modules_ranks(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "server", "edac")
    module = tmp_path / CONTROLLERS / "mc1/dimm0"
    (module / "dimm_ce_count").unlink()
    (module / "dimm_ue_count").unlink()
    module.rename(module.with_name("rank0"))
    rows = dict(edac.read(Host(str(tmp_path))))
    assert "mc1:dimm0" not in rows
    assert rows["mc1:rank0"][:2] == (A, A)
    assert rows["mc1"][:2] == (0, 0)


def test_a_machine_without_it(tmp_path: Path) -> None:
    assert list(edac.read(Host(str(tmp_path)))) == []


@pytest.mark.parametrize("content", ["", "N/A", "1 2", "0x10"])
def test_garbage_costs_one_controller(content: str, tmp_path: Path) -> None:
    sysfs.build(tmp_path, "server", "edac")
    (tmp_path / CONTROLLERS / "mc0/ce_count").write_text(content)
    rows = dict(edac.read(Host(str(tmp_path))))
    assert isinstance(rows["mc0"], Absence)
    assert rows["mc0"].cause is Cause.PROBE_FAILED
    assert rows["mc1"][:2] == (0, 0)
    assert rows["mc0:dimm0"][0] == 4292


def test_names_are_made_fit_to_be_printed_and_sizes_have_a_bound(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "server", "edac")
    (tmp_path / CONTROLLERS / "mc0/dimm0/dimm_label").write_bytes(b"A\x1b[2J\n\xff\n")
    (tmp_path / CONTROLLERS / "mc0/dimm0/size").write_text("9" * 30)
    (tmp_path / CONTROLLERS / "mc1/ce_count").write_text("9" * 30)
    (tmp_path / CONTROLLERS / "mc1/dimm0/dimm_ce_count").write_text("-1")
    rows = dict(edac.read(Host(str(tmp_path))))
    assert rows["mc0:dimm0"][4:6] == (A, "A [2J \ufffd")
    assert (rows["mc1"][0], rows["mc1:dimm0"][0]) == (A, A)


def test_what_is_gone_in_mid_read_has_no_row(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "server", "edac")
    host = Host(str(tmp_path))
    assert host.names(f"/{CONTROLLERS}")
    shutil.rmtree(tmp_path / CONTROLLERS / "mc1")
    assert {name for name, _ in edac.read(host)} == {"mc0", "mc0:dimm0", "mc0:dimm1"}


def test_everybody_may_read_it() -> None:
    (probe,) = edac.sysmond_probes()
    assert probe.sensitivity is Sensitivity.PUBLIC
