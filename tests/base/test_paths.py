# SPDX-License-Identifier: Apache-2.0
"""Paths of series: what they mean, and what a wrong one says."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base import paths
from sysmond.base.model import series_path
from sysmond.errors import UsageError

SERIES = [
    ("cpu", "user", "cpu0"),
    ("cpu", "user", "total"),
    ("cpu", "system", "cpu0"),
    ("cpu", "system", "total"),
    ("memory", "available", ""),
    ("disk", "read_bytes", "sda"),
    ("disk", "read_bytes", "sda1"),
    ("filesystem", "used", "/"),
    ("filesystem", "used", "/home"),
    ("filesystem", "used", "/srv/user@host/[a]"),
]


def chosen(*texts: str, state_dir: str | None = "/var/lib/sysmond") -> list[str]:
    patterns = [paths.parse(text, state_dir) for text in texts]
    return [series_path(*one) for one in paths.select(patterns, SERIES)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu", ["cpu/user@cpu0", "cpu/user@total", "cpu/system@cpu0", "cpu/system@total"]),
        ("cpu/user", ["cpu/user@cpu0", "cpu/user@total"]),
        ("cpu@total", ["cpu/user@total", "cpu/system@total"]),
        ("cpu/*@cpu?", ["cpu/user@cpu0", "cpu/system@cpu0"]),
        ("disk/*@sda", ["disk/read_bytes@sda"]),
        ("disk/*@sda*", ["disk/read_bytes@sda", "disk/read_bytes@sda1"]),
        ("*/us*@*o*", ["cpu/user@total", "filesystem/used@/home", "filesystem/used@/srv/user@host/[a]"]),
        ("cpu/us?r@total", ["cpu/user@total"]),
        ("memory", ["memory/available"]),
        ("memory/available@", ["memory/available"]),
        ("filesystem/used@/home", ["filesystem/used@/home"]),
        ("filesystem/used@/*", ["filesystem/used@/", "filesystem/used@/home", "filesystem/used@/srv/user@host/[a]"]),
        ("filesystem/used@/srv/user@host/[a]", ["filesystem/used@/srv/user@host/[a]"]),
        ("/var/lib/sysmond/cpu/user@total", ["cpu/user@total"]),
        ("/var/lib/sysmond//memory", ["memory/available"]),
        ("/var/lib/sysmond/filesystem/used@/home", ["filesystem/used@/home"]),
    ],
)
def test_a_path_means_these_series(text: str, expected: list[str]) -> None:
    assert chosen(text) == expected


def test_an_absolute_path_of_the_state_folder_itself_is_everything() -> None:
    everything = [series_path(*one) for one in SERIES]
    assert chosen("/var/lib/sysmond") == chosen("/var/lib/sysmond/") == chosen("*") == everything


def test_the_prefix_is_removed_before_the_first_at_sign_splits() -> None:
    assert chosen("/home/me@work/state/cpu/user@total", state_dir="/home/me@work/state/") == ["cpu/user@total"]


def test_an_instance_that_looks_like_the_state_folder_is_left_alone() -> None:
    pattern = paths.parse("filesystem/used@/var/lib/sysmond", "/var/lib/sysmond")
    assert pattern.instance == "/var/lib/sysmond"


def test_order_is_that_of_the_patterns_and_nothing_comes_twice() -> None:
    assert chosen("memory", "cpu@total", "cpu/user") == [
        "memory/available",
        "cpu/user@total",
        "cpu/system@total",
        "cpu/user@cpu0",
    ]


@pytest.mark.parametrize(
    "text", ["", "@", "@sda", "/", "cpu/", "cpu//user", "cpu/user/x", "/etc/passwd", "/var/lib/sysmond2/cpu"]
)
def test_what_is_no_path_says_so_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="; expected table") as caught:
        paths.parse(text, "/var/lib/sysmond")
    assert f"path {text!r}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memroy/available", "there is no table 'memroy'; did you mean memory?"),
        ("cpu/usr@total", "there is no metric 'cpu/usr'; did you mean cpu/user?"),
        ("disk/*@sdb", "path 'disk/*@sdb': no such instance; did you mean sda?"),
        ("xyzzy", "there is no table 'xyzzy'; there are cpu, disk, filesystem, memory"),
        ("filesystem/used@/[h]ome", "path 'filesystem/used@/[h]ome': no such instance; did you mean /home?"),
        ("cpu/user@", "path 'cpu/user@': no such instance; there are cpu0, total"),
    ],
)
def test_what_matches_nothing_names_the_nearest(text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen("cpu", text)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("xyz", "there is no table 'xyz'; 'sysmon-extract --list' lists all 9"),
        ("t1/xyz", "there is no metric 't1/xyz'; 'sysmon-extract --list t1' lists all 9"),
        ("t*/xyz", "there is no metric 't*/xyz'; 'sysmon-extract --list' lists all 9"),
        ("t1/m1@xyz", "path 't1/m1@xyz': no such instance; 'sysmon-extract --list t1/m1 --instances' lists all 9"),
        ("t1@xyz", "path 't1@xyz': no such instance; 'sysmon-extract --list t1 --instances' lists all 9"),
    ],
)
def test_where_nothing_is_near_of_many_only_what_lists_them_is_named(text: str, expected: str) -> None:
    many = [(f"t{table}", f"m{metric}", f"i{number}") for table, metric, number in product(range(9), repeat=3)]
    with pytest.raises(UsageError) as caught:
        paths.select([paths.parse(text)], many)
    assert str(caught.value) == expected


PARTS = st.text("ab/@.[]*?\n", max_size=8)


@given(PARTS, PARTS)
def test_only_star_and_question_mark_are_wildcards(pattern: str, instance: str) -> None:
    meant = paths.matches(paths.Pattern("", "cpu", "user", pattern), "cpu", "user", instance)
    assert meant == glob(pattern, instance)


def glob(pattern: str, text: str) -> bool:
    """Match by the definition."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return glob(pattern[1:], text) or (bool(text) and glob(pattern, text[1:]))
    return bool(text) and pattern[0] in {"?", text[0]} and glob(pattern[1:], text[1:])


@given(st.sampled_from(["cpu", "disk"]), st.sampled_from(["user", "read"]), st.text(max_size=12))
def test_every_series_is_meant_by_its_own_path(table: str, metric: str, instance: str) -> None:
    text = series_path(table, metric, instance)
    assert paths.matches(paths.parse(text), table, metric, instance)


def test_many_stars_are_quick_to_fail() -> None:
    pattern = paths.Pattern("", "cpu", "user", "*a" * 500 + "b")
    assert not paths.matches(pattern, "cpu", "user", "a" * 5000)


@pytest.mark.parametrize(
    ("boot", "found"),
    [(0, "cc"), ("-1", "ab12"), ("-2", "aa"), ("c", "cc"), ("AB-1", "ab12"), ("a-a", "aa")],
)
def test_a_boot_is_found_by_its_beginning_or_counted_back(boot: str | int, found: str) -> None:
    assert paths.find_boot(boot, ["aa", "ab12", "cc"]) == found


@pytest.mark.parametrize("boot", ["", "a", "-3", 1, "\u00b2", "-", "--", "ab123"])
def test_what_is_no_boot_or_several_is_refused(boot: str | int) -> None:
    with pytest.raises(UsageError, match="boots are recorded|no such boot"):
        paths.find_boot(boot, ["aa", "ab12", "cc"])


def test_metrics_are_held_against_a_pattern_only_where_their_table_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    series = [(f"table{number}", f"metric{other}", "x") for number in range(50) for other in range(20)]
    asked: list[tuple[str, str]] = []
    plain = paths.Matcher.metric

    def metric(matcher: paths.Matcher, table: str, name: str) -> bool:
        asked.append((table, name))
        return plain(matcher, table, name)

    monkeypatch.setattr(paths.Matcher, "metric", metric)
    chosen = paths.select([paths.parse("table7/metric3"), paths.parse("table7/late")], series, derived=lambda: [
        ("table7", "late", "x"), ("table8", "late", "x")])  # fmt: skip
    assert chosen == [("table7", "metric3", "x"), ("table7", "late", "x")]
    assert {table for table, _ in asked} == {"table7"}
