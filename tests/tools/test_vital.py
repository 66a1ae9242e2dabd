# SPDX-License-Identifier: Apache-2.0
"""What must not be frozen, and whom a control group means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmon_tools.targets import GroupTarget, target_of
from sysmon_tools.vital import VITAL, Presence, why_not

USER = "/user.slice/user-1000.slice"
APPS = f"{USER}/user@1000.service/app.slice"
# A desktop: we are in a shell in a terminal; a second terminal shows tmux; somebody is here by ssh.
DESKTOP = (
    Presence(1, 0, "systemd", "/init.scope"),
    Presence(2, 0, "kthreadd", "/"),
    Presence(10, 1, "dbus-broker", "/system.slice/dbus.service"),
    Presence(11, 1, "systemd-logind", "/system.slice/systemd-logind.service"),
    Presence(12, 1, "polkitd", "/system.slice/polkit.service"),
    Presence(13, 1, "systemd-journal", "/system.slice/systemd-journald.service"),
    Presence(14, 1, "sshd", "/system.slice/ssh.service"),
    Presence(15, 1, "nginx", "/system.slice/nginx.service"),
    Presence(16, 15, "nginx", "/system.slice/nginx.service/worker"),
    Presence(17, 1, "backup", "/backup.slice/backup.service"),
    Presence(18, 1, "python3", "/recorder.slice/sysmond-sampler.service"),
    Presence(29, 20, "python3", f"{APPS}/sysmond.service"),
    Presence(20, 1, "systemd", f"{USER}/user@1000.service/init.scope"),
    Presence(21, 20, "gnome-shell", f"{USER}/user@1000.service/session.slice/org.gnome.Shell.service"),
    Presence(22, 20, "ptyxis", f"{APPS}/ptyxis.service"),
    Presence(23, 22, "bash", f"{APPS}/ptyxis-spawn-1.scope"),
    Presence(24, 23, "sysmon", f"{APPS}/ptyxis-spawn-1.scope"),
    Presence(25, 20, "foot", f"{APPS}/foot.scope"),
    Presence(26, 25, "tmux: client", f"{APPS}/foot.scope"),
    Presence(27, 20, "firefox", f"{APPS}/firefox.scope"),
    Presence(28, 27, "Web Content", f"{APPS}/firefox.scope/web"),
    Presence(30, 14, "sshd-session", f"{USER}/session-4.scope"),
    Presence(31, 30, "bash", f"{USER}/session-4.scope"),
)
OWN = 24


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/", "it is the root"),
        ("", "it is the root"),
        ("/init.scope", r"process 1 \(systemd\)"),
        ("/system.slice", r"process 10 \(dbus-broker\) is in it: D-Bus"),
        ("/system.slice/systemd-logind.service", r"\(systemd-logind\)"),
        ("/system.slice/polkit.service/", r"\(polkitd\)"),
        ("/system.slice/systemd-journald.service", r"\(systemd-journal\)"),
        ("/system.slice/ssh.service", r"process 14 \(sshd\)"),
        ("/recorder.slice", r"process 18 \(python3\) is in it: it records this machine"),
        ("/recorder.slice/sysmond-sampler.service", r"process 18 \(python3\) is in it: it records this machine"),
        (f"{APPS}/sysmond.service", r"process 29 \(python3\) is in it: it records this machine"),
        (f"{USER}/session-4.scope", r"process 30 \(sshd-session\)"),
        ("/user.slice", r"process 20 \(systemd\) is in it"),
        (f"{USER}/user@1000.service/session.slice", r"process 21 \(gnome-shell\) is in it: a display server"),
        (APPS, r"process 22 \(ptyxis\) is in it: you are here through it"),
        (f"{APPS}/ptyxis-spawn-1.scope", r"process 23 \(bash\) is in it: you are here through it"),
        (f"{APPS}/foot.scope", r"process 25 \(foot\) is in it: you are here through it"),
    ],
)
def test_what_must_go_on_is_not_frozen_nor_what_it_is_in(path: str, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        assert why_not(path, DESKTOP, OWN) == ""


@pytest.mark.parametrize(
    "path", ["/system.slice/nginx.service", "/backup.slice", f"{APPS}/firefox.scope", "/system.slice/ssh.serv"]
)
def test_what_nobody_needs_to_come_back_may_be_frozen(path: str) -> None:
    assert why_not(path, DESKTOP, OWN) == ""


def test_what_has_a_display_is_not_frozen_whatever_it_is_called() -> None:
    path = f"{APPS}/firefox.scope"
    assert why_not(path, DESKTOP, OWN, {28}).startswith("process 28 (Web Content) is in it: it has a display")
    assert why_not(path, DESKTOP, OWN, {15, 999}) == ""


def test_where_not_all_processes_are_seen_nothing_is_frozen() -> None:
    assert "hidepid" in why_not("/backup.slice", DESKTOP[1:], OWN)
    assert "hidepid" in why_not("/backup.slice", DESKTOP, 4711)


def test_names_are_as_the_kernel_cuts_them() -> None:
    assert {len(name) <= 15 for name in VITAL} == {True}
    assert "systemd-journal" in VITAL


CGROUPS = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["sh", "sshd", "tmux: client"]), CGROUPS), max_size=8),
       CGROUPS)  # fmt: skip
def test_nothing_that_is_refused_may_be_frozen_with_what_is_around_it(
    others: list[tuple[int, str, str]], path: str
) -> None:
    """Whatever the parents are, also each other."""
    processes = [
        Presence(1, 0, "systemd", "/init.scope"),
        *(Presence(pid, parent, comm, cgroup) for pid, (parent, comm, cgroup) in enumerate(others, 2)),
        Presence(OWN, 2, "sysmon", "/a/b"),
    ]
    above = path.rpartition("/")[0] or "/"
    if why_not(path, processes, OWN):
        assert why_not(above, processes, OWN)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/system.slice/nginx.service", ("nginx.service", None)),
        ("/system.slice", ("system.slice", None)),
        ("/init.scope", ("init.scope", None)),
        ("/system.slice/system-getty.slice/getty@tty1.service", ("getty@tty1.service", None)),
        ("/user.slice/user-1000.slice/session-2.scope", ("session-2.scope", None)),
        (f"{USER}/user@1000.service", ("user@1000.service", None)),
        (APPS, ("app.slice", 1000)),
        (f"{APPS}/firefox.scope", ("firefox.scope", 1000)),
        (f"{APPS}/firefox.scope/web", ("", None)),
        ("/system.slice/docker-0123456789ab.scope/init.scope", ("", None)),
        ("/docker/0123456789ab", ("", None)),
        ("/lxc/user@1000.service/x.scope", ("", None)),
        ("/", ("", None)),
    ],
)
def test_a_control_group_means_the_unit_whose_own_it_is(path: str, meant: tuple[str, int | None]) -> None:
    assert target_of(path) == GroupTarget(meant[0], path, meant[1])
