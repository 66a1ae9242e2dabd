# SPDX-License-Identifier: Apache-2.0
"""What debian/ says agrees with the project; ``make check-package`` builds and installs it."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from sysmond import __version__

PREFIXES = {"numpy": "1:"}
"""Epochs of Debian, by package."""
NAMES = {"pyyaml": "yaml"}


def paragraph(control: str, name: str) -> str:
    (found,) = (part for part in control.split("\n\n") if re.search(f"^(Source|Package): {name}$", part, re.MULTILINE))
    return found


def test_all_say_the_same_version(repository: Path) -> None:
    newest = re.match(r"sysmond \((\S+)\) ", (repository / "debian/changelog").read_text())
    assert newest
    assert newest[1] == __version__
    versions = re.findall(r"^## \[?(\d\S*?)\]? ", (repository / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == __version__


def test_packages_need_what_the_project_needs(repository: Path) -> None:
    control = (repository / "debian/control").read_text()
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    for line in project["project"]["dependencies"]:
        requirement = Requirement(line)
        package = f"python3-{NAMES.get(requirement.name, requirement.name)}"
        for bound in requirement.specifier:
            sign = {"<": "<<"}.get(bound.operator, bound.operator)
            wanted = f" {package} ({sign} {PREFIXES.get(requirement.name, '')}{bound.version}),"
            assert wanted in paragraph(control, "python3-sysmond"), wanted
    (tool,) = project["build-system"]["requires"]
    assert f"python3-setuptools (>= {tool.partition('>=')[2]})" in control


def test_no_file_of_the_package_names_another_interpreter(repository: Path) -> None:
    assert "#!/usr/bin/python3 -I," in (repository / "debian/rules").read_text()
    for unit in (repository / "etc/systemd").rglob("*.*"):
        for line in re.findall(r"^Exec\w+=.*@PYTHON@.*", unit.read_text(), re.MULTILINE):
            assert "@PYTHON@ -I " in line, f"{unit.name}: {line}"


def test_every_user_of_a_unit_is_made(repository: Path) -> None:
    made = re.findall(r"^[ug] (\S+)", (repository / "etc/sysusers.d/sysmond.conf").read_text(), re.MULTILINE)
    for unit in (repository / "etc/systemd/system").iterdir():
        wanted = re.findall(r"^(?:User|Group|SupplementaryGroups)=(\S+)$", unit.read_text(), re.MULTILINE)
        assert {name for name in wanted if name.startswith("sysmond")} <= set(made), unit.name
