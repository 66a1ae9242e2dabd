# SPDX-License-Identifier: Apache-2.0
"""The chart of a boot: what is in it, what its bars show, and that no name in it is obeyed."""

import html
import re
import stat
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest

from sysmon_tools import boot_scene, html_plot, sysmon
from sysmon_tools.boot_scene import BootProcess, BootScene, UseSpan, chosen, coalesced, in_tree
from sysmon_tools.startups import PHASES
from sysmond.base.clock import SECOND_NS
from sysmond.errors import UsageError
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from tests.support.browser import BROWSER, opened
from tests.support.earlyboot import CHAIN, FINISHED_S, FIRST_S, HOSTILE, HOSTILE_UNIT, JOB_S, LAST_S, SHORT, booted
from tests.support.longarchive import BOOT, BOOTED_NS
from tests.support.usage import one_line

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return booted(tmp_path_factory.mktemp("boot"))


def run(folders: Folders, *words: str) -> int:
    return sysmon.main(["bootchart", "--state-dir", folders.state, "--runtime-dir", folders.runtime, *words])


def look(
    folders: Folders, length_s: float | None = None, *, has_all: bool = False, is_by_start: bool = False
) -> BootScene:
    return boot_scene.look(Archive(folders), 0, length_s, has_all=has_all, is_by_start=is_by_start)


def process(pid: int, parent: int = 0, begin_s: float = 0.0, cpu_s: float = 1.0, moved: float = 0.0) -> BootProcess:
    return BootProcess(pid, parent, f"p{pid}", "", begin_s, None, cpu_s, moved)


# --- what is in it ---------------------------------------------------------------------------------


def test_children_are_below_their_parents_and_what_used_nothing_is_counted(folders: Folders) -> None:
    seen = look(folders)
    assert [(one.pid, one.depth) for one in seen.processes] == [(1, 0), (20, 1), (40, 2), (100, 2), (30, 1)]
    assert seen.left_out == (1, 0.0, 0.0)  # That is kthreadd.
    assert seen.host == "laptop<&>"
    assert (seen.start_s, seen.first_s, seen.end_s) == (-5.5, FIRST_S, LAST_S)
    assert seen.warnings == []


def test_all_are_there_where_that_is_wanted_and_in_order_of_their_begin(folders: Folders) -> None:
    seen = look(folders, has_all=True, is_by_start=True)
    assert len(seen.processes) == 6
    assert sum(one.number for one in seen.processes) == SHORT + 5
    assert seen.left_out.number == 0
    begins = [one.begin_s for one in seen.processes]
    assert begins == sorted(begins)
    assert {one.depth for one in seen.processes} == {0}


def test_what_a_process_used_is_where_it_used_it(folders: Folders) -> None:
    by_pid = {one.pid: one for one in look(folders, has_all=True).processes}
    # Nobody saw it before the first reading, which says what it had used by then.
    assert by_pid[1].uses[0] == pytest.approx(UseSpan(0.0, FIRST_S, 0.02, 0.0))
    assert by_pid[1].cpu_s == pytest.approx((LAST_S - 1) * 0.02)
    job = by_pid[40]
    assert (job.begin_s, job.end_s, job.cpu_s, job.moved_bytes) == (JOB_S.start, JOB_S.stop, 4.5, 250_000_000)
    assert [(use.begin_s, use.end_s) for use in job.uses] == [(second, second + 1) for second in JOB_S]
    assert [use.cpu for use in job.uses] == pytest.approx([0.9] * len(JOB_S))
    assert [use.moved for use in job.uses] == pytest.approx([50_000_000] * len(JOB_S))
    # No reading saw them: the records of their ends have all.
    short = by_pid[100]
    assert len(short.uses) == SHORT
    assert short.uses[0] == pytest.approx(UseSpan(short.begin_s, short.begin_s + 0.005, 0.2, 0.0))


def test_what_is_used_is_the_same_in_all_however_long_the_pieces_are(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def used(seen: BootScene) -> dict[int, float]:
        return {one.pid: sum(use.cpu * (use.end_s - use.begin_s) for use in one.uses) for one in seen.processes}

    fine = look(folders)
    monkeypatch.setattr(boot_scene, "PIECES_MAX", 7)
    coarse = look(folders)
    assert max(len(one.uses) for one in coarse.processes if one.number == 1) <= 8
    assert used(coarse) == pytest.approx(used(fine))
    assert used(fine) == pytest.approx({one.pid: one.cpu_s for one in fine.processes})


def test_phases_follow_each_other_around_the_start_of_the_kernel(folders: Folders) -> None:
    phases = look(folders).phases
    assert [phase.name for phase in phases] == list(PHASES)
    assert [phase.begin_s for phase in phases] == [-5.5, -1.5, 0.0, 2.0, 3.0]
    assert phases[-1].end_s == FINISHED_S


def test_units_say_when_they_began_were_active_ended_and_failed(folders: Folders) -> None:
    units = {unit.name: unit for unit in look(folders).units}
    cups = units["cups.service"]
    assert (cups.begin_s, cups.active_s, cups.length_s, cups.end_s) == (10.0, 16.0, 6.0, None)
    # Of many at once the event names each.
    assert (units["cron.service"].active_s, units["cron.service"].end_s) == (12.0, 30.0)
    assert units["dbus.service"].active_s == 12.0
    assert (units["broken.service"].end_s, units["broken.service"].trouble) == (14.0, "exit-code, status 1")
    assert list(units)[-1] == "dev-sda1.mount"  # Nobody knows when.


def test_units_of_the_record_say_when_they_began_and_whether_the_boot_waited_for_them(tmp_path: Path) -> None:
    detail = f"cups.service 6.000 s @10.000 s, dev-sda1.mount 0.250 s @4.500 s; chain: {CHAIN}"
    made = booted(tmp_path, detail=detail)
    units = {unit.name: unit for unit in look(made).units}
    mount, device = units["dev-sda1.mount"], units["dev-sda1.device"]
    assert (mount.begin_s, mount.active_s, mount.is_critical) == (4.5, 4.75, False)
    assert (device.begin_s, device.active_s, device.length_s) == (0.5, 3.5, 3.0)
    assert [name for name, unit in units.items() if unit.is_critical] == [
        "dev-sda1.device", "cups.service", "multi-user.target",
    ]  # fmt: skip
    assert run(made, "-o", str(tmp_path / "boot.svg")) == 0
    assert "took 6.00 s, active at 16.0 s, of the critical chain" in (tmp_path / "boot.svg").read_text()


def test_a_shorter_piece_has_less(folders: Folders) -> None:
    seen = look(folders, 12.0)
    assert seen.end_s == 12.0
    assert {unit.name for unit in seen.units} == {"cups.service", "dev-sda1.mount"}
    assert max(use.end_s for one in seen.processes for use in one.uses) <= 12.0


def test_those_that_used_most_have_the_room_and_bring_their_parents() -> None:
    everything = [
        process(1, cpu_s=0.0),
        process(2, 1, 1.0, cpu_s=0.0),
        process(3, 2, 2.0, cpu_s=9.0),
        process(4, 1, 3.0),
    ]
    shown, left_out = chosen(everything, 1, has_small=False)
    assert [one.pid for one in shown] == [1, 2, 3]
    assert (left_out.number, left_out.cpu_s) == (1, 1.0)


def test_short_ones_of_a_name_and_a_parent_are_one_row(folders: Folders) -> None:
    together = next(one for one in look(folders).processes if one.comm == "sed")
    assert together.number == SHORT
    assert together.cpu_s == pytest.approx(SHORT * 0.001)
    assert (together.begin_s, together.end_s) == pytest.approx((10.0, 10.395))
    short = [process(pid, parent, pid / 10, cpu_s=0.004)._replace(comm="sh", end_s=pid / 10 + 0.1)
             for pid, parent in ((2, 1), (3, 1), (4, 9), (5, 1), (6, 5))]  # fmt: skip
    rows = coalesced([process(1), *short, process(9, begin_s=0.1)])
    # Another parent, or children of its own: that is another row.
    assert {one.pid: one.number for one in rows} == {1: 1, 2: 2, 4: 1, 5: 1, 6: 1, 9: 1}
    # These used next to nothing also together.
    assert chosen(rows, 9, has_small=False)[1].number == 5
    assert chosen(rows, 9, has_small=False)[1].cpu_s == pytest.approx(0.008)


def test_a_number_that_was_used_again_makes_no_circle() -> None:
    everything = [process(5, 6, 1.0), process(6, 5, 2.0), process(5, 6, 3.0), process(7, 7, 4.0)]
    assert [(one.pid, one.begin_s, one.depth) for one in in_tree(everything)] == [
        (5, 1.0, 0), (6, 2.0, 1), (5, 3.0, 2), (7, 4.0, 0),
    ]  # fmt: skip


# --- as SVG ----------------------------------------------------------------------------------------


def test_a_file_is_well_formed_whatever_things_are_called(folders: Folders, tmp_path: Path) -> None:
    file = tmp_path / "boot.svg"
    assert run(folders, "-o", str(file)) == 0
    written = file.read_text(encoding="utf-8")
    root = ET.fromstring(written)  # noqa: S314  it is ours
    assert root.tag == f"{SVG}svg"
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg", "title", "style", "text", "g", "rect", "path", "line",
    }  # fmt: skip
    assert not re.search(r"[\x00-\x09\x0b-\x1f\ud800-\udfff]", written)
    assert not re.search(r"(?:href|src|url)\s*[=(]", written)
    said = "".join(root.itertext())
    assert HOSTILE in said
    assert HOSTILE_UNIT.replace("\x1b", r"\x1b").replace("\x07", r"\x07").replace("\udcff", r"\xff") in said
    assert stat.S_IMODE(file.stat().st_mode) & 0o044


def test_it_says_host_boot_phases_and_how_many_are_not_shown(folders: Folders, tmp_path: Path) -> None:
    file = tmp_path / "boot.svg"
    assert run(folders, "-b", BOOT[:8], "--utc", "-o", str(file)) == 0
    said = [element.text or "" for element in ET.parse(file).iter(f"{SVG}text")]  # noqa: S314  it is ours
    assert said[0] == f"laptop<&>, boot 0 ({BOOT[:8]}), recorded since 2025-03-01T11:00:05Z, kernel 6.12.9"
    assert (
        said[1] == "started in 25.5 s: firmware 4.00 s, loader 1.50 s, kernel 2.00 s, initrd 1.00 s, userspace 17.0 s"
    )
    assert said[-1] == "1 more, of which none used more than 0 s of a processor and 0 B of disk"
    assert f"sed × {SHORT}  40.0 ms" in said


def test_a_bar_is_as_long_as_its_process_and_as_full_as_it_was_busy(folders: Folders, tmp_path: Path) -> None:
    file = tmp_path / "boot.svg"
    assert run(folders, "-o", str(file)) == 0
    rows = {group[0].text or "": group for group in ET.parse(file).iter(f"{SVG}g")}  # noqa: S314  it is ours
    job = next(group for said, group in rows.items() if said.startswith("fsck"))
    bar = next(job.iter(f"{SVG}rect"))
    width = 880 * len(JOB_S) / (LAST_S + 5.5)
    assert float(bar.get("width", "")) == pytest.approx(width, abs=0.2)
    paths = {element.get("class"): element.get("d", "") for element in job.iter(f"{SVG}path")}
    assert paths["p"].count("M") == paths["m"].count("M") == len(JOB_S)
    cups = next(group for said, group in rows.items() if said.startswith("cups.service"))
    assert [rect.get("class") for rect in cups.iter(f"{SVG}rect")] == ["a", "w"]


def test_it_goes_to_a_pipe(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders) == 0
    assert ET.fromstring(capsys.readouterr().out).tag == f"{SVG}svg"  # noqa: S314  it is ours


def test_a_snapshot_has_it_too(folders: Folders, tmp_path: Path) -> None:
    file, chart = str(tmp_path / "boot.sysmon"), tmp_path / "boot.svg"
    place = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
    begin_s = BOOTED_NS // SECOND_NS
    assert sysmon.main(["snapshot", *place, f"--from=@{begin_s}", f"--to=@{begin_s + LAST_S}", "-o", file]) == 0
    assert sysmon.main(["bootchart", "--state-dir", file, "-o", str(chart)]) == 0
    assert "cups.service" in chart.read_text(encoding="utf-8")


def test_one_for_strangers_names_nobody(folders: Folders, tmp_path: Path) -> None:
    file, chart = str(tmp_path / "boot.sysmon"), tmp_path / "boot.svg"
    place = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
    begin_s = BOOTED_NS // SECOND_NS
    span = [f"--from=@{begin_s}", f"--to=@{begin_s + LAST_S}"]
    assert sysmon.main(["snapshot", *place, *span, "--anonymize", "-o", file]) == 0
    assert sysmon.main(["bootchart", "--state-dir", file, "-o", str(chart)]) == 0
    written = chart.read_text(encoding="utf-8")
    assert "program-" in written
    assert not {name for name in ("cups", "cron", "fsck", "laptop", "script") if name in written}
    # What many units were called at once is left out: that is no unit without a name.
    texts = ["".join(element.itertext()).strip() for element in ET.fromstring(written).iter(f"{SVG}g")]  # noqa: S314  as above
    assert all(texts)
    assert not any(text.startswith(":") for text in texts)


# --- what cannot be drawn --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-b", "-3", "-o", "x.svg"], "boot '-3': only one boot is recorded"),
        (["-b", "abcdef", "-o", "x.svg"], "boot 'abcdef': no such boot"),
        (["-o", "x.png"], "x.png: a chart is SVG or HTML"),
        (["--first", "soon", "-o", "x.svg"], "soon"),
        (["--first", "2h", "-o", "x.svg"], "--first 2h: expected at most 1h"),
        (["--sort", "name", "-o", "x.svg"], "name"),
    ],
)
def test_wrong_usage_is_one_line(
    folders: Folders, capsys: pytest.CaptureFixture[str], words: Sequence[str], said: str
) -> None:
    assert run(folders, *words) == UsageError.exit_code
    assert said in one_line(capsys)


def test_a_boot_without_early_rows_is_one_line(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "boot.svg"
    assert run(folders, "--first", "3s", "-o", str(file)) == 1
    assert one_line(capsys) == (
        "sysmon: boot 0: no processes are recorded for its first 3 s; recording began 5 s after it did\n"
    )
    assert run(booted(tmp_path / "bare", has_rows=False), "-o", str(file)) == 1
    assert one_line(capsys) == "sysmon: boot 0: no processes are recorded for its first 1 min\n"
    assert not file.exists()


def test_a_boot_that_nobody_measured_is_drawn_as_well(tmp_path: Path) -> None:
    seen = look(booted(tmp_path, startup=""))
    assert seen.phases == []
    assert seen.start_s == 0.0
    assert seen.end_s == LAST_S


# --- in a browser ----------------------------------------------------------------------------------


def page_of(folders: Folders, tmp_path: Path) -> Path:
    file = tmp_path / "boot.html"
    assert run(folders, "--utc", "-o", str(file)) == 0
    return file


def test_a_page_loads_nothing_and_runs_its_own_script_alone(folders: Folders, tmp_path: Path) -> None:
    page = page_of(folders, tmp_path).read_text(encoding="utf-8")
    assert page.count("<script") == page.count("</script") == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\ud800-\udfff]", page)
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"<[^>]*\s(?:href|src|style|on\w+)=", page.partition("<script>")[0])
    policy = re.search(r'content="([^"]*)"', page)
    assert policy
    for element in ("script", "style"):
        content = page.partition(f"<{element}>")[2].partition(f"</{element}>")[0]
        assert html_plot.hash_of(content) in html.unescape(policy[1])
    assert "unsafe" not in policy[1]


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_a_page_zooms_and_moves_by_keys_pointer_and_buttons(folders: Folders, tmp_path: Path) -> None:
    def seen() -> list[float]:
        left, _, width, _ = map(float, page.ask("bars.getAttribute('viewBox')").split())
        return [left, left + width]

    with opened(page_of(folders, tmp_path).as_uri(), tmp_path) as page:
        whole = seen()
        assert whole == [-5500, LAST_S * 1000]
        assert "10 s" in page.ask("axis.innerText")
        left, top, width = page.ask("(r => [r.left, r.top, r.width])(bars.getBoundingClientRect())")
        page.press("+")
        middle = seen()
        assert middle[1] - middle[0] == pytest.approx((whole[1] - whole[0]) / 2)
        page.press("ArrowRight")
        assert seen()[0] == pytest.approx(middle[0] + (middle[1] - middle[0]) / 4)
        page.press("0")
        assert seen() == whole
        page.wheel(left + width / 4, top + 5, -100, has_control=True)
        closer = seen()
        assert closer[1] - closer[0] == pytest.approx((whole[1] - whole[0]) * 0.8)
        # What is under the pointer stays there.
        assert closer[0] + (closer[1] - closer[0]) / 4 == pytest.approx(whole[0] + (whole[1] - whole[0]) / 4, rel=0.01)
        page.drag((left + width / 2, top + 5), (left + width / 2 + 30, top + 5))
        moved = seen()
        assert moved[0] == pytest.approx(closer[0] - 30 / width * (closer[1] - closer[0]))
        page.ask("closer.click()")
        assert seen()[1] - seen()[0] < moved[1] - moved[0]
        page.ask("all.click()")
        assert seen() == whole


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_fingers_move_a_page_and_zoom_it(folders: Folders, tmp_path: Path) -> None:
    def seen() -> list[float]:
        left, _, width, _ = map(float, page.ask("bars.getAttribute('viewBox')").split())
        return [left, left + width]

    def at(part: float) -> tuple[float, float]:
        return left + width * part, top + 5

    with opened(page_of(folders, tmp_path).as_uri() + "#5-9", tmp_path) as page:
        left, top, width = page.ask("(r => [r.left, r.top, r.width])(bars.getBoundingClientRect())")
        page.touch(at(0.5))
        page.touch(at(0.25))
        assert seen() == pytest.approx([6000, 10_000], rel=0.01)
        page.touch()
        page.touch(at(0.25), at(0.75))
        page.touch(at(0.0), at(1.0))
        assert seen() == pytest.approx([7000, 9000], rel=0.01)
        page.touch(at(0.9), at(0.1))  # They have passed each other, which says nothing.
        assert 0 < seen()[1] - seen()[0] <= LAST_S * 1000 + 5500
        page.touch()
        assert page.ask("told.textContent") == ""


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_a_page_shows_hostile_names_as_text_that_can_be_selected(folders: Folders, tmp_path: Path) -> None:
    with opened(page_of(folders, tmp_path).as_uri() + "#9-16", tmp_path) as page:
        assert page.ask("bars.getAttribute('viewBox')").startswith("9000 0 7000 ")
        assert page.ask("document.scripts.length") == 1
        named = page.ask("[...document.querySelectorAll('#names div')].map(one => one.firstChild?.textContent.trim())")
        assert HOSTILE in named
        assert r"fsck\x07" in named
        page.ask("getSelection().selectAllChildren(names)")
        assert HOSTILE in page.ask("getSelection().toString()")
        # A name is beside its bar.
        place = "one => one.getBoundingClientRect().top"
        name = "[...document.querySelectorAll('#names div')].find(one => one.textContent.startsWith('fsck'))"
        bar = "document.querySelector('#bars path.m').parentNode"
        assert abs(page.ask(f"({place})({name}) - ({place})({bar})")) <= 3
        x, y = page.ask(
            "(r => [r.left + r.width / 2, r.top + 6])(document.querySelector('#bars path.m').getBoundingClientRect())"
        )
        page.drag((x, y), (x, y))
        assert page.ask("told.textContent").startswith(r"fsck\x07, process 40 of 20, from 10.0 s to 15.0 s: 4.50 s")
