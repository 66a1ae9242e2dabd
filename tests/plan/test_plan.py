# SPDX-License-Identifier: Apache-2.0
"""The plan: what is written is read back, damage is told apart, and there is always a plan to run."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.model import INTERVAL_MIN_NS, Lane, Sensitivity
from sysmond.errors import CorruptError, Error
from sysmond.plan import plan
from sysmond.plan.plan import ArchiverSettings, Plan, PlannedProbe, Refusal, SamplerSettings

SAMPLE = Plan(
    (PlannedProbe("disk", "sysmond_probes.disk", Lane.REALTIME, 1_000_000_000, Sensitivity.PUBLIC, True, {"a": 1}),),
    (Refusal("/etc/sysmond/probes/mine.py", "does not load"),),
    SamplerSettings(65536, 0),
    ArchiverSettings(1, 2.5, 3),
)

PLANS = st.builds(
    Plan,
    st.lists(
        st.builds(
            PlannedProbe,
            st.text(),
            st.text(),
            st.sampled_from(Lane),
            st.integers(INTERVAL_MIN_NS, plan.INTERVAL_MAX_NS),
            st.sampled_from(Sensitivity),
            st.booleans(),
            st.dictionaries(st.text(), st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text()),
            st.lists(st.text()).map(tuple),
            st.just(0) | st.integers(INTERVAL_MIN_NS, plan.INTERVAL_MAX_NS),
        )
    ).map(tuple),
    st.lists(st.builds(Refusal, st.text(), st.text())).map(tuple),
    st.builds(SamplerSettings, st.integers(), st.integers()),
    st.builds(ArchiverSettings, st.floats(0, 1e9), st.floats(0, 1e9), st.integers()),
)


@given(PLANS)
def test_a_plan_comes_back_as_it_was(original: Plan) -> None:
    decoded = plan.decode(plan.encode(original))
    assert decoded == original
    assert all(isinstance(probe.lane, Lane) for probe in decoded.probes)


@given(st.binary() | st.text().map(str.encode))
def test_what_is_no_plan_is_corrupt(content: bytes) -> None:
    with pytest.raises(CorruptError, match="^plan: "):
        plan.decode(content)


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda each: st.lists(each) | st.dictionaries(st.text(), each))
)
def test_json_of_another_shape_is_corrupt(value: Any) -> None:
    with pytest.raises(CorruptError, match="^plan: "):
        plan.decode(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 2, "version 2; expected 1"),
        (("probes", 0, "lane"), "fast", "'fast' is not a valid Lane"),
        (("probes", 0, "sensitivity"), "secret", "'secret' is not a valid Sensitivity"),
        (("probes", 0, "interval_ns"), 5, "disk: interval 5 ns is out of bounds"),
        (("probes", 0, "interval_ns"), "5", "interval_ns is '5'; expected int"),
        (("probes", 0, "table"), None, "table is None; expected str"),
        (("probes", 0, "enabled"), 1, "enabled is 1; expected bool"),
        (("probes", 0, "options"), [], r"options is \[\]; expected an object of texts, numbers and truths"),
        (("probes", 0, "options", "a"), [1], r"options is {'a': \[1\]}; expected an object of texts"),
        (("probes", 0), [], "plan: damaged"),
        (("probes",), 3, "plan: damaged"),
        (("sampler", "ring_bytes"), True, "ring_bytes is True; expected int"),
        (("sampler", "colour"), 1, "SamplerSettings has the fields ring_bytes, priority"),
        (("archiver", "ram_bytes"), 1.5, "ram_bytes is 1.5; expected int"),
        (("archiver", "seal_interval_s"), float("nan"), "seal_interval_s is nan; expected float"),
    ],
)
def test_one_wrong_value_is_named(path: tuple[str | int, ...], value: Any, message: str) -> None:
    fields = json.loads(plan.encode(SAMPLE))
    inner = fields
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(CorruptError, match=message):
        plan.decode(json.dumps(fields).encode())


def test_deep_nesting_is_corrupt() -> None:
    with pytest.raises(CorruptError):
        plan.decode(b"[" * 1_000_000)


def test_a_plan_is_put_in_place_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan.write(SAMPLE, str(path))
    assert plan.read(str(path)) == SAMPLE
    assert os.listdir(tmp_path) == ["plan.json"]


PRIVATE = SAMPLE._replace(
    probes=(
        *SAMPLE.probes,
        PlannedProbe("mail", "/etc/mail.py", Lane.BACKGROUND, 10**9, Sensitivity.RESTRICTED, True, {"token": "secret"}),
    )
)
RENEWED = PRIVATE._replace(
    probes=(SAMPLE.probes[0], PRIVATE.probes[1]._replace(interval_ns=2 * 10**9, options={"token": "renewed"}))
)


@pytest.fixture
def strict_umask() -> Iterator[None]:
    """A umask that would shut everything to all, were it asked."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("strict_umask")
def test_options_of_restricted_probes_are_not_for_all(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan.write(PRIVATE, str(path))
    assert plan.read(str(path)) == PRIVATE
    assert b"secret" not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE(os.stat(plan.options_file(str(path))).st_mode) == 0o640
    plan.write(RENEWED, str(path))
    plan.write(SAMPLE, str(path))
    assert os.listdir(tmp_path) == ["plan.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="to give files to a group that is not ours takes root")
def test_options_are_for_the_group_of_the_parts_where_they_have_one(tmp_path: Path) -> None:
    parts = 64001
    os.chown(tmp_path, -1, parts)
    tmp_path.chmod(0o2755)
    path = tmp_path / "plan.json"
    plan.write(PRIVATE, str(path))
    status = os.stat(plan.options_file(str(path)))
    assert (status.st_gid, stat.S_IMODE(status.st_mode)) == (parts, 0o640)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read as another user")
def test_who_may_not_read_options_reads_the_plan_without() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.chmod(folder, 0o755)  # noqa: S103  so that another user gets as far as the files
        plan.write(PRIVATE, f"{folder}/plan.json")
        script = "import os, sys; from sysmond.plan import plan; os.setgroups([]); os.setresgid(1, 1, 1)"
        script += "; os.setresuid(1, 1, 1); print([each.options for each in plan.read(sys.argv[1]).probes])"
        done = subprocess.run([sys.executable, "-c", script, f"{folder}/plan.json"], capture_output=True, check=True)
    assert done.stdout == b"[{'a': 1}, {}]\n"


@pytest.mark.parametrize("replaced", range(3))
def test_whenever_the_power_fails_plan_and_options_belong_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: int
) -> None:
    path, replace = str(tmp_path / "plan.json"), os.rename
    plan.write(PRIVATE, path)
    left = replaced

    def fail(*names: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        nonlocal left
        if not left:
            raise OSError("off")
        left -= 1
        replace(*names, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", fail)
    with suppress(OSError):
        plan.write(RENEWED, path)
    monkeypatch.undo()
    assert plan.read(path) == (PRIVATE if replaced < 2 else RENEWED)


def test_a_plan_whose_options_are_gone_or_damaged_is_none(tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    plan.write(PRIVATE, path)
    beside = Path(plan.options_file(path))
    content = beside.read_bytes()
    beside.write_bytes(content.replace(b"secret", b"secreT"))
    with pytest.raises(CorruptError, match="options.json: damaged"):
        plan.read(path)
    beside.unlink()
    with pytest.raises(CorruptError, match="options.json: lacks the options of mail"):
        plan.read(path)
    beside.write_bytes(content)
    assert plan.read(path) == PRIVATE


def test_a_plan_of_before_with_options_for_all_is_kept_anew(tmp_path: Path) -> None:
    current, kept = tmp_path / "plan.json", tmp_path / "kept.json"
    plan.write(PRIVATE, str(current))
    kept.write_bytes(plan.encode(PRIVATE))
    assert plan.read(str(kept)) == PRIVATE
    plan.keep(str(current), str(kept))
    assert b"secret" not in kept.read_bytes()
    assert plan.read(str(kept)) == PRIVATE


def test_a_plan_that_is_too_large_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PLAN_BYTES_MAX", 10)
    plan.write(SAMPLE, str(tmp_path / "plan.json"))
    with pytest.raises(CorruptError, match="larger than 10 bytes"):
        plan.read(str(tmp_path / "plan.json"))


def test_the_first_valid_plan_is_taken_and_the_others_are_explained(tmp_path: Path) -> None:
    current, last_good = str(tmp_path / "current"), str(tmp_path / "last")
    plan.write(SAMPLE, last_good)
    Path(current).write_bytes(b"{")
    taken, reasons = plan.first_valid([current, str(tmp_path / "absent"), last_good])
    assert taken == SAMPLE
    assert len(reasons) == 2
    assert current in reasons[0]
    assert reasons[1] == f"plan: {tmp_path}/absent: No such file or directory"


def test_without_any_plan_the_public_probes_of_our_own_run() -> None:
    taken, reasons = plan.first_valid([])
    assert (taken, reasons) == (plan.builtin(), [])
    assert taken.refused == ()
    assert {"cpu", "memory", "disk"} <= {probe.table for probe in taken.probes}
    assert {probe.sensitivity for probe in taken.probes} == {Sensitivity.PUBLIC}
    assert plan.decode(plan.encode(taken)) == taken


def test_a_broken_probe_of_our_own_does_not_take_the_others_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sysmond_probes.cpu", None)
    taken = plan.builtin()
    assert [refusal.plugin for refusal in taken.refused] == ["sysmond_probes.cpu"]
    assert "memory" in {probe.table for probe in taken.probes}


def test_the_fallback_needs_neither_pluggy_nor_yaml() -> None:
    code = (
        "import sys; from sysmond.plan import plan; plan.builtin(); "
        "print(*({'pluggy', 'yaml', 'importlib.metadata', 'pathlib'} & set(sys.modules)))"
    )
    program = [sys.executable, "-c", code]
    assert subprocess.run(program, check=True, capture_output=True, text=True).stdout == "\n"


def test_a_plugin_in_a_file_is_imported_without_leaving_byte_code(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n")
    module = plan.import_plugin(str(path))
    assert (module.Pair(1).a, module.__file__) == (1, str(path))
    assert os.listdir(tmp_path) == ["mine.py"]
    with pytest.raises(Error, match="has no function sysmond_probes"):
        plan.offered_probes(module)
    path.write_text("raise KeyError('no')")
    with pytest.raises(KeyError):
        plan.import_plugin(str(path))
    assert "sysmond_local_mine" not in sys.modules
