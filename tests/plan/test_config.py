# SPDX-License-Identifier: Apache-2.0
"""Configuration: what files say, which of them wins, and one clear line for everything wrong."""

import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from sysmond.base.model import Lane, Sensitivity
from sysmond.errors import ConfigError
from sysmond.plan import config, config_keys, retention
from sysmond.plan.config import Config, ConfigFiles, Origin, ProbeSettings
from sysmond.plan.config_keys import KEYS, duration_ns, size_bytes
from sysmond.plan.plan import SamplerSettings

FILE = "/etc/sysmond/sysmond.yaml"


def read(folder: Path, *texts: str) -> Config:
    """Read texts as files that overrule each other."""
    files = []
    for number, text in enumerate(texts):
        files.append(str(folder / f"{number}.yaml"))
        Path(files[-1]).write_text(text, encoding="utf-8")
    return config.read(files)


def load(place: ConfigFiles) -> Config:
    return config.read(config.files(place))


def complaint(content: str | bytes) -> str:
    """What is said about a file: always one line, with the file in front."""
    with pytest.raises(ConfigError) as caught:
        config.parse(content if isinstance(content, bytes) else content.encode(), FILE)
    message = str(caught.value)
    assert message.startswith(f"{FILE}:")
    assert "\n" not in message
    return message.removeprefix(f"{FILE}:")


def test_without_files_the_defaults_hold() -> None:
    assert config.read([]) == Config()


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "sampler:\nprobes:\n", "probes: {}\n", "\ufeffprobes:\n"])
def test_an_empty_file_or_section_changes_nothing(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text)._replace(settings={}) == Config()


def test_every_key_reaches_its_setting(tmp_path: Path) -> None:
    whole = read(
        tmp_path,
        "sampler: {ring_size: 1MiB, priority: 0, battery_factor: 3}\n"
        "archive: {seal_interval: 60, flush_interval: 1.5h, ram_size: '2GB', pin_pressure_percent: 0,"
        " significant_bits: 8, share_percent: 20, free_percent: 5}\n"
        "incidents: {pins: 'unit failed, oom kill', bursts: none}\n"
        "tiers: {1s: {size: 1MB, age: 7d}, 10s: {size: 2MB, age: 0}, 1min: {size: 3MB, age: 1h},"
        " 5min: {size: 4MB, age: 5min}, event: {size: 9MB, age: 30d}, pins: {size: 0B}}\n"
        "records: {1s: {size: 5MB, age: 2d}, 10s: {size: 6MB, age: 0}, 1min: {size: 7MB, age: 1h},"
        " 5min: {size: 8MB, age: 0}}\n"
        "probes:\n"
        "  disk: {enabled: false, interval: 5s, lane: background, sensitivity: restricted, options: {a: yes, b: '1'}}\n"
        "  cpu:\n",
    )
    assert whole.sampler == (2**20, 0, 3, ())
    sizes, ages = [10**6, 2 * 10**6, 3 * 10**6, 4 * 10**6], [7 * 86400 * 10**9, 0, 3600 * 10**9, 300 * 10**9]
    records = [5 * 10**6, 6 * 10**6, 7 * 10**6, 8 * 10**6, 2 * 86400 * 10**9, 0, 3600 * 10**9, 0]
    events, kinds = (9 * 10**6, 30 * 86400 * 10**9), ("oom kill", "unit failed")
    assert whole.archiver == (60.0, 5400.0, 2 * 10**9, *sizes, *ages, 0, 0, kinds, 8, *records, *events, 20, 5)
    origin = Origin(str(tmp_path / "0.yaml"), 7)
    assert whole.probes["disk"] == ProbeSettings(
        origin, False, 5 * 10**9, Lane.BACKGROUND, Sensitivity.RESTRICTED, {"a": "yes", "b": "1"}
    )
    assert whole.probes["cpu"] == ProbeSettings(origin._replace(line=8))
    assert {re.sub(r"\.(disk|cpu|a|b)\b", ".*", ".".join(path)) for path in whole.settings} >= {
        ".".join(key.path) for key in KEYS
    }


def test_later_files_win_key_by_key(tmp_path: Path) -> None:
    whole = read(
        tmp_path,
        "sampler: {priority: 1, ring_size: 1MiB}\nprobes: {cpu: {interval: 2s, enabled: false}}",
        "sampler: {priority: 2}\nprobes: {cpu: {enabled: true}}",
    )
    assert whole.sampler == SamplerSettings(2**20, 2, 2)
    assert (whole.probes["cpu"].enabled, whole.probes["cpu"].interval_ns) == (True, 2 * 10**9)
    assert whole.settings["sampler", "priority"].origin == (str(tmp_path / "1.yaml"), 1)
    assert whole.settings["sampler", "ring_size"].origin == (str(tmp_path / "0.yaml"), 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("samplr:\n", "1: samplr: no such key; did you mean sampler?"),
        ("\nsampler:\n  prioritty: 3\n", "3: sampler.prioritty: no such key; did you mean priority?"),
        ("zzz: 1\n", "1: zzz: no such key; expected sampler, archive, incidents, tiers, records, probes"),
        ("probes: {cpu: {intervall: 1}}", "1: probes.cpu.intervall: no such key; did you mean interval?"),
        ("interval: 1s\n", "1: interval: no such key; did you mean probes.TABLE.interval?"),
        ("sampler:\n  interval: 1s\n", "2: sampler.interval: no such key; did you mean probes.TABLE.interval?"),
        ("sampler:\n  intervall: 1s\n", "2: sampler.intervall: no such key; did you mean probes.TABLE.interval?"),
        ("ram_size: 1MiB\n", "1: ram_size: no such key; did you mean archive.ram_size?"),
        ("pins: 1MiB\n", "1: pins: no such key; did you mean incidents.pins or tiers.pins?"),
        ("age: 1d\n", "1: age: no such key; did you mean tiers.1s.age, tiers.10s.age, tiers.1min.age or 6 more?"),
        ("archive: {sampler: 1}\n", "1: archive.sampler: no such key; did you mean sampler?"),
        ("1: 2\n", "1: 1: no such key; expected sampler, archive, incidents, tiers, records, probes"),
        ("'a\\nb': 2\n", "1: 'a\\\\nb': no such key; expected sampler, archive, incidents, tiers, records, probes"),
        (
            "sampler:\n  priority: 1\n  priority: 2\n",
            "3: sampler.priority: given twice, first in line 2; expected once",
        ),
        ("probes: {}\nprobes: {}\n", "2: probes: given twice, first in line 1; expected once"),
        ("probes:\n  cpu: 5s\n", "2: probes.cpu: '5s' is not a section; expected lines of 'key: value'"),
        ("[1, 2]\n", "1: the file: a list is not a section; expected lines of 'key: value'"),
        ("just words\n", "1: the file: 'just words' is not a section; expected lines of 'key: value'"),
        ("? [a]\n: b\n", "1: the file: a list is not a name"),
        (
            "sampler: !!set {priority: 1}\n",
            "1: sampler: a section tagged 'tag:yaml.org,2002:set' is not a section; expected lines of 'key: value'",
        ),
        ("sampler: {priority: ten}", "1: sampler.priority: 'ten' is wrong; expected a whole number"),
        ("sampler: {priority: 1.5}", "1: sampler.priority: '1.5' is wrong; expected a whole number"),
        ("sampler: {priority: 010}", "1: sampler.priority: '010' is wrong; expected a whole number"),
        ("sampler: {priority: 100}", "1: sampler.priority: '100' is out of bounds; expected 0 to 99"),
        ("sampler: {priority: -1}", "1: sampler.priority: '-1' is out of bounds; expected 0 to 99"),
        ("sampler: {priority: }", "1: sampler.priority: no value; expected a whole number"),
        ("sampler: {priority: [1]}", "1: sampler.priority: a list is wrong; expected a whole number"),
        ("sampler: {priority: !!binary 1}", "1: sampler.priority: '1' is wrong; expected a whole number"),
        (
            "sampler: {ring_size: 16}",
            "1: sampler.ring_size: '16' is wrong; expected a size such as 512KiB, 16MiB or 1GiB",
        ),
        ("sampler: {ring_size: 1KiB}", "1: sampler.ring_size: '1KiB' is out of bounds; expected 64KiB to 1GiB"),
        (
            "archive: {seal_interval: 5 parsecs}",
            "1: archive.seal_interval: '5 parsecs' is wrong; expected a duration such as 500ms, 5s, 10min or 1h",
        ),
        ("archive: {seal_interval: 2h}", "1: archive.seal_interval: '2h' is out of bounds; expected 1s to 1h"),
        ("probes: {cpu: {interval: 1us}}", "1: probes.cpu.interval: '1us' is out of bounds; expected 10ms to 24h"),
        ("probes: {cpu: {enabled: 'true'}}", "1: probes.cpu.enabled: 'true' is wrong; expected true or false"),
        ("probes: {cpu: {enabled: 1}}", "1: probes.cpu.enabled: '1' is wrong; expected true or false"),
        ("probes: {cpu: {enabled: !!bool maybe}}", "1: probes.cpu.enabled: 'maybe' is wrong; expected true or false"),
        (
            "probes: {cpu: {options: {a: [1]}}}",
            "1: probes.cpu.options.a: a list is wrong; expected true, false, a number or a text",
        ),
        ("probes: {cpu: {lane: fast}}", "1: probes.cpu.lane: 'fast' is wrong; expected realtime or background"),
        (
            "probes: {cpu: {sensitivity: secret}}",
            "1: probes.cpu.sensitivity: 'secret' is wrong; expected public or restricted",
        ),
        ("a: &x 1\nb: *x\n", "2: not valid YAML: an alias; expected the value itself"),
        ("sampler:\n\tpriority: 1\n", "2: not valid YAML: a line begins with a tab; expected spaces"),
        ("sampler: {priority: 1\n", "2: not valid YAML: expected ',' or '}', but got '<stream end>'"),
        ("a: 1\n---\nb: 2\n", "2: not valid YAML: but found another document"),
        ("\n\na: '\a'\n", "3: not valid YAML: the character U+0007 is not allowed"),
        ('\n"\\UFFFFFFFF": 1\n', "2: not valid YAML: an escape or a version is out of range"),
        ("[" * 100, f"1: not valid YAML: nested too deeply; expected at most {config.NESTING_MAX} levels"),
    ],
)
def test_everything_wrong_is_one_line_that_says_what_would_be_right(text: str, message: str) -> None:
    assert complaint(text) == message


def test_a_long_value_is_cut_short() -> None:
    assert len(complaint(f"sampler: {{priority: {'x' * 10_000}}}")) < 150


def test_bytes_that_are_not_utf8_are_found() -> None:
    assert complaint(b"# fine\n# not \xff\n") == "2: byte 0xff is not UTF-8; expected UTF-8"


def test_a_bomb_of_aliases_is_refused() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    assert "an alias" in complaint(bomb)


def test_a_file_that_is_too_large_is_refused_unread() -> None:
    with pytest.raises(ConfigError, match="/dev/zero: larger than 262144 bytes"):
        config.read(["/dev/zero"])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=f"^{path}: {reason}; expected a file that can be read$"):
            load(ConfigFiles((str(path),), str(tmp_path / "d")))
    with pytest.raises(ConfigError, match="not a path; expected a file that can be read"):
        config.read(["a\0b"])


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch(mode=0)
    with pytest.raises(ConfigError, match="file: Permission denied"):
        config.read([str(tmp_path / "file")])


def test_a_pipe_is_read_and_never_waited_for(tmp_path: Path) -> None:
    pipe = str(tmp_path / "pipe.yaml")
    os.mkfifo(pipe)
    assert config.read([pipe]) == Config()
    readable, writable = os.pipe()

    def write_late() -> None:
        with open(writable, "wb") as stream:
            stream.write(b"sampler: {priority: 3}")

    threading.Timer(0.05, write_late).start()
    assert config.read([f"/dev/fd/{readable}"]).sampler.priority == 3
    os.close(readable)


def test_files_of_the_machine_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vendor, folder = tmp_path / "vendor.yaml", tmp_path / "etc"
    monkeypatch.setattr(config, "VENDOR_FILE", str(vendor))
    monkeypatch.setattr(config, "SYSTEM_FOLDER", str(folder))

    def found(file: str | None = None) -> list[str]:
        return config.files(config.place(file=file, user=False, environ={}, uid=0))

    assert found() == []
    (folder / "conf.d").mkdir(parents=True)
    paths = [vendor, folder / "sysmond.yaml", folder / "conf.d/10-a.yaml", folder / "conf.d/9-b.yaml"]
    for priority, path in enumerate(paths):
        path.write_text(f"sampler: {{priority: {priority}}}")
    for other in ("note.txt", ".hidden.yaml", "old.yaml~"):
        (folder / "conf.d" / other).write_text("wrong")
    assert found() == [str(path) for path in paths]
    assert config.read(found()).sampler.priority == 3
    assert found(str(vendor)) == [str(vendor)]  # Of the others none counts any more,
    (tmp_path / "vendor.yaml.d").mkdir()
    (tmp_path / "vendor.yaml.d/a.yaml").write_text("sampler: {priority: 9}")
    assert config.read(found(str(vendor))).sampler.priority == 9  # but its own drop-ins do.
    monkeypatch.setattr(config, "FILES_MAX", 1)
    with pytest.raises(ConfigError, match=r"conf\.d: 2 files; expected at most 1"):
        found()


def test_files_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "VENDOR_FILE", str(tmp_path / "none"))
    own = tmp_path / "sysmond"
    own.mkdir()
    (own / "sysmond.yaml").write_text("sampler: {priority: 4}")
    (own / "conf.d").touch()
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    place = config.place(file=None, user=True, environ=environ, uid=0)
    with pytest.raises(ConfigError, match=r"conf\.d: Not a directory"):
        load(place)
    (own / "conf.d").unlink()
    assert load(place).sampler.priority == 4


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("5", 5_000_000_000),
        ("0.1", 100_000_000),
        ("500ms", 500_000_000),
        ("1h30m", 5400_000_000_000),
        ("1h 30min", 5400_000_000_000),
        ("7d", 604800_000_000_000),
        ("0.000001s", 1000),
    ],
)
def test_durations(text: str, ns: int) -> None:
    assert duration_ns(text) == ns


@pytest.mark.parametrize(
    "text", ["", " ", "s", "-1s", "1:30", "5S", "1 2", "1e3", "٣s", "1h-3m", "5secs", "1" * 16, "5s5"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        duration_ns(text)


def test_sizes() -> None:
    assert [size_bytes(text) for text in ("1B", "1.5 KiB", "2kB", "1TiB")] == [1, 1536, 2000, 2**40]
    for text in ("", "1", "1K", "1kib", "-1B", "1MiBB"):
        with pytest.raises(ValueError, match=f"^{text}$"):
            size_bytes(text)


def test_every_key_has_a_valid_default_and_documentation() -> None:
    for key in KEYS:
        assert key.doc.endswith(".")
        for text in filter(None, (key.default, key.low, key.high)):
            key.kind.parse(text)
        assert bool(key.low) == bool(key.high)
    given_defaults = {key.path: key.kind.parse(key.default) for key in KEYS if key.path[0] != "probes"}
    sampler, archiver = Config().sampler, Config().archiver
    assert given_defaults == {
        ("sampler", "ring_size"): sampler.ring_bytes,
        ("sampler", "priority"): sampler.priority,
        ("sampler", "battery_factor"): sampler.battery_factor,
        ("archive", "seal_interval"): archiver.seal_interval_s * 10**9,
        ("archive", "flush_interval"): archiver.flush_interval_s * 10**9,
        ("archive", "ram_size"): archiver.ram_bytes,
        ("archive", "share_percent"): archiver.share_percent,
        ("archive", "free_percent"): archiver.free_percent,
        ("records", "1s", "size"): archiver.records_size_1s_bytes,
        ("records", "10s", "size"): archiver.records_size_10s_bytes,
        ("records", "1min", "size"): archiver.records_size_1min_bytes,
        ("records", "5min", "size"): archiver.records_size_5min_bytes,
        ("records", "1s", "age"): archiver.records_age_1s_ns,
        ("records", "10s", "age"): archiver.records_age_10s_ns,
        ("records", "1min", "age"): archiver.records_age_1min_ns,
        ("records", "5min", "age"): archiver.records_age_5min_ns,
        ("tiers", "1s", "size"): archiver.size_1s_bytes,
        ("tiers", "10s", "size"): archiver.size_10s_bytes,
        ("tiers", "1min", "size"): archiver.size_1min_bytes,
        ("tiers", "5min", "size"): archiver.size_5min_bytes,
        ("tiers", "1s", "age"): archiver.age_1s_ns,
        ("tiers", "10s", "age"): archiver.age_10s_ns,
        ("tiers", "1min", "age"): archiver.age_1min_ns,
        ("tiers", "5min", "age"): archiver.age_5min_ns,
        ("tiers", "event", "size"): archiver.size_event_bytes,
        ("tiers", "event", "age"): archiver.age_event_ns,
        ("tiers", "pins", "size"): archiver.pins_bytes,
        ("archive", "pin_pressure_percent"): archiver.pin_pressure_percent,
        ("incidents", "pins"): archiver.pin_kinds,
        ("incidents", "bursts"): sampler.burst_kinds,
        ("archive", "significant_bits"): archiver.significant_bits,
    }


def test_a_tier_that_cannot_hold_names_the_smallest_that_works() -> None:
    assert complaint("tiers: {1s: {size: 1kB}}") == (
        "1: tiers.1s.size: '1kB' is out of bounds; expected 512KiB to 1TiB"
    )
    for text in ("-1", "299s"):
        assert complaint(f"tiers: {{5min: {{age: {text}}}}}") == (
            f"1: tiers.5min.age: '{text}' is wrong; expected 0 for any age, or a duration of 5min or more"
        )
    assert set(config_keys.TIERS) == set(retention.TIERS_NS)
    assert size_bytes("512KiB") == retention.BUDGET_BYTES_MIN


def uncommented(text: str) -> str:
    """Take away the '#' right before a key; prose has a space after it."""
    return re.sub(r"^( *)#(?=[a-z_]+:)", r"\1", text, flags=re.MULTILINE)


def test_the_installed_file_says_just_the_defaults(repository: Path) -> None:
    text = (repository / "etc/sysmond.yaml").read_text(encoding="utf-8")
    assert config.read([str(repository / "etc/sysmond.yaml")])._replace(settings={}) == Config()
    settings = config.parse(uncommented(text).encode(), FILE)
    leaves = {path: setting.value for path, setting in settings.items() if setting.value is not None}
    anys = {1: config_keys.ANY, 3: config_keys.ANY}  # How a probe is called, and what it offers.
    assert {
        tuple(anys.get(at, name) if path[0] == "probes" else name for at, name in enumerate(path)) for path in leaves
    } == {key.path for key in KEYS}
    for key in KEYS:
        if key.path[0] != "probes":
            assert leaves[key.path] == key.kind.parse(key.default)
        for bound in filter(None, (key.low, key.high)):
            assert bound in text


# Text that is nearly right finds more than noise does.
WORDS = st.sampled_from(
    [
        *"[]{}:,-?*&!|>'\"%@#\n \t\\\0\x85\ufeff",
        *("probes", "sampler", "cpu", "priority", "interval", ": ", "\n  ", "---", "<<", "5s", "true", "~"),
        *("!!python/object:os.system", "%YAML 1.1\n", "\\UFFFFFFFF", "9" * 5000, "&a ", "*a "),
    ]
)


def verdict(content: bytes) -> str:
    """What is said about a file; nothing where it is right."""
    try:
        config.parse(content, FILE)
    except ConfigError as wrong:
        return str(wrong)
    return ""


@given(st.text() | st.lists(WORDS | st.text(max_size=3), max_size=40).map("".join))
@example("%YAML 1." + "1" * 5000 + "\n--- a")
@example('"\\UFFFFFFFF"')
@example("? " * 2000)
@example("- " * 2000)
@example("!<" * 100)
def test_any_text_is_right_or_has_one_line(text: str) -> None:
    assert re.fullmatch(rf"({FILE}:[^\n\r]+)?", verdict(text.encode("utf-8", "surrogatepass")))


@given(st.binary())
def test_any_bytes_are_right_or_have_one_line(content: bytes) -> None:
    assert re.fullmatch(rf"({FILE}:[^\n\r]+)?", verdict(content))


SCHEMA = config_keys.schema()
CHECKER = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_one_and_describes_every_key(repository: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads((repository / "etc/sysmond.schema.json").read_text(encoding="utf-8")) == SCHEMA
    for key in KEYS:
        branch = SCHEMA
        for name in key.path:
            branch = branch["additionalProperties"] if name == config_keys.ANY else branch["properties"][name]
        assert branch["description"].startswith(key.doc)


@pytest.mark.parametrize(
    "text", ["{}", "sampler:\nprobes:\n  cpu:\n", "probes: {a: {options: {x: 1, y: true, z: no!}}}"]
)
def test_the_schema_accepts_what_is_right(text: str, repository: Path) -> None:
    installed = (repository / "etc/sysmond.yaml").read_text(encoding="utf-8")
    document = (repository / "docs/configuration.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```yaml\n(.*?)^```", document, re.DOTALL | re.MULTILINE)
    assert examples
    for each in (text, installed, uncommented(installed), *examples):
        config.parse(each.encode(), FILE)
        CHECKER.validate(yaml.safe_load(each) or {})


def lengths(kind: st.SearchStrategy[int], units: list[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda number, unit, gap: f"{number}{gap}{unit}", kind, st.sampled_from(units), st.sampled_from(["", " "])
    )


NUMBERS = st.integers(-2, 10**6) | st.floats(0, 1e6, allow_nan=False) | st.integers().map(str)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    config_keys.SIZE.right: lengths(st.integers(0, 2000), [*config_keys._SIZE_UNITS_BYTES]) | NUMBERS,
    config_keys.INTEGER.right: st.integers(-5, 105) | st.integers(-5, 105).map(str) | NUMBERS,
    config_keys.BOOLEAN.right: st.booleans() | st.sampled_from(["true", "yes", 1]),
    config_keys.LANE.right: st.sampled_from([*map(str, Lane), "fast"]),
    config_keys.SENSITIVITY.right: st.sampled_from([*map(str, Sensitivity), "secret"]),
    config_keys.OPTION.right: st.booleans() | NUMBERS | st.text(st.characters(categories=["L", "N", "P"]), min_size=1),
}
DURATIONS = (
    st.lists(lengths(st.integers(0, 2000), [*config_keys._TIME_UNITS_NS]), min_size=1, max_size=3).map("".join)
    | NUMBERS
)
STRANGE: st.SearchStrategy[Any] = (
    st.none() | st.just([]) | st.just({}) | st.just({"a": 1}) | st.just("!") | st.just("5 parsecs")
)


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """A file with some keys, most of them right."""
    whole: dict[str, Any] = {}
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=4, unique_by=lambda key: key.path)):
        branch = whole
        for name in key.path[:-1]:
            branch = branch.setdefault("cpu" if name == config_keys.ANY else name, {})
        last = "depth" if key.path[-1] == config_keys.ANY else key.path[-1]
        branch[draw(st.just(last) if draw(st.booleans()) else st.sampled_from([last, f"{last}x"]))] = draw(
            VALUES.get(key.kind.right, DURATIONS) if draw(st.integers(0, 4)) else STRANGE
        )
    return whole


@given(files())
def test_what_the_parser_accepts_the_schema_accepts(file: dict[str, Any]) -> None:
    if not verdict(yaml.safe_dump(file).encode()):
        CHECKER.validate(file)


@pytest.mark.parametrize(
    "text",
    [
        "samplr: {}",
        "sampler: {prio: 1}",
        "sampler: 5",
        "sampler: [1]",
        "sampler: {priority: ten}",
        "sampler: {priority: 1.5}",
        "sampler: {priority: 100}",
        "sampler: {priority: -1}",
        "sampler: {ring_size: 16}",
        "sampler: {ring_size: 16 parsecs}",
        "archive: {seal_interval: 5 parsecs}",
        "archive: {seal_interval: -5}",
        "archive: {seal_interval: }",
        "tiers: {2s: {size: 1MB}}",
        "tiers: {1s: {age: for ever}}",
        "probes: [cpu]",
        "probes: {cpu: 5s}",
        "probes: {cpu: {intervall: 5s}}",
        "probes: {cpu: {enabled: 'true'}}",
        "probes: {cpu: {enabled: 1}}",
        "probes: {cpu: {lane: fast}}",
        "probes: {cpu: {sensitivity: secret}}",
        "probes: {cpu: {options: 5}}",
        "probes: {cpu: {options: {a: [1]}}}",
    ],
)
def test_what_is_typically_wrong_both_refuse(text: str) -> None:
    assert complaint(text)
    assert not CHECKER.is_valid(yaml.safe_load(text))
