#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sets up .venv: Python, the packages that locks/ names, by their hashes, the project as a strict editable install.
#
# Quick when there is nothing to do. A strict editable install links every file by itself (this
# is what lets type checkers see sysmond_probes), so a new file needs the links made anew.
set -eu
cd "$(dirname "$0")/.."

VENV=.venv
LOG=$VENV/setup.log
OLDER_DBUS=dbus-fast-2.44
SUITABLE='import sys; sys.exit(sys.version_info < (3, 11))'
CAN_MAKE_VENV='import ensurepip, venv'

fail() {
    echo "setup: $*" >&2
    exit 1
}

# The first Python that is new enough; a name on PATH alone proves nothing.
find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if "$candidate" -c "$SUITABLE" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# What belongs to the machine is for its owner to install.
need_packages() {
    fail "$1; on Debian and Ubuntu: apt-get install $2; elsewhere Python 3.11 or later with venv"
}

# Without clang there is nothing to load, without libbpf nothing that loads.
missing_for_bpf() {
    command -v clang >/dev/null || printf ' clang llvm'
    "$VENV/bin/python" -I -c 'import ctypes; ctypes.CDLL("libbpf.so.1")' 2>/dev/null || printf ' libbpf1'
}

say_how_processes_are_read() {
    missing=$(missing_for_bpf)
    [ -z "$missing" ] || echo "setup: processes are read from /proc; to read them by BPF: apt-get install$missing, then make bpf"
}

# Runs pip with its output in a log.
pip_install() {
    "$VENV/bin/python" -m pip --disable-pip-version-check install --quiet --no-input "$@" >>"$LOG" 2>&1
}

# What is built here is built by what is locked, too: not in an environment of its own, with packages of its own.
install_locked() {
    pip_install --no-build-isolation --require-hashes --requirement "locks/$1.txt" || {
        cause=$(grep -m 1 '^ERROR: ' "$LOG" | cut -c 1-160)
        rm -f "$VENV/made-from"
        fail "pip could not install locks/$1.txt (${cause:-no error named}); is a package registry reachable? $LOG has the rest"
    }
}

# What the build leaves beside the sources is found first by programs started here, and grows old.
drop_build_metadata() {
    rm -rf sysmond.egg-info
}

# setuptools reads its configuration from the project: no isolated build, so no network for new links.
link_project() {
    pip_install --no-build-isolation --no-deps --config-settings editable_mode=strict --editable . ||
        fail "the project could not be linked into $VENV; $LOG has the rest"
    drop_build_metadata
}

# Where no registry has it, the tests that need it say so.
add_older_dbus() {
    [ -d "$VENV/$OLDER_DBUS" ] || pip_install --retries 1 --timeout 10 --no-deps --target "$VENV/$OLDER_DBUS" \
        --require-hashes --requirement locks/older-dbus.txt || true
}

# Two at once would pull each other's links away. Where there is no flock, nobody waits.
if command -v flock >/dev/null; then
    exec 9<"$0"
    flock 9
fi

# What the environment was made from, and in which folder: scripts in it carry absolute paths.
wanted_packages=$(pwd -P; cksum locks/*.txt tools/setup.sh)
wanted_links=$(find sysmond sysmon_tools probes -name '*.py' -o -name py.typed | LC_ALL=C sort)
# Compiled by what, where there is a compiler, the BPF programs are linked as well.
wanted_links=$(echo "$wanted_links"; cksum bpf/* setup.py pyproject.toml; command -v clang llvm-strip || true)

if [ "$(cat "$VENV/made-from" 2>/dev/null)" != "$wanted_packages" ] || ! "$VENV/bin/python" -c "$SUITABLE" 2>/dev/null; then
    python=$(find_python) || {
        need_packages 'no Python 3.11 or later found' 'python3 python3-venv'
        python=$(find_python) || fail 'the Python of this distribution is older than 3.11; install a newer one'
    }
    if ! "$python" -c "$CAN_MAKE_VENV" 2>/dev/null; then
        need_packages "$python cannot make virtual environments" \
            "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    fi
    # An environment that was moved, or whose Python is gone, is of no use; any other is brought up to date.
    if [ "$(head -n 1 "$VENV/made-from" 2>/dev/null)" != "$(pwd -P)" ] || ! "$VENV/bin/python" -c "$SUITABLE" 2>/dev/null; then
        echo "setup: making $VENV with $python"
        "$python" -m venv --clear "$VENV" || fail "$python could not make $VENV"
    else
        echo "setup: bringing $VENV up to date"
    fi
    rm -f "$VENV/made-from" "$VENV/linked"
    : >"$LOG"
    rm -rf "${VENV:?}/$OLDER_DBUS"
    echo 'setup: installing locked packages, which takes a minute or more'
    install_locked build
    install_locked dev
    echo 'setup: building and linking the project'
    link_project
    echo "$wanted_links" >"$VENV/linked"
    echo "$wanted_packages" >"$VENV/made-from"
    say_how_processes_are_read
elif [ ! -d build ] || [ "$(cat "$VENV/linked" 2>/dev/null)" != "$wanted_links" ]; then
    : >"$LOG"
    link_project
    echo "$wanted_links" >"$VENV/linked"
    say_how_processes_are_read
fi
add_older_dbus
if [ "${1:-}" = bpf ]; then
    missing=$(missing_for_bpf)
    [ -z "$missing" ] || fail "no BPF without$missing: apt-get install$missing, then make bpf"
    for source in bpf/*.bpf.c; do
        name=$(basename "$source" .c).o
        [ -e "sysmond/tasks/bpf/x86/$name" ] || fail "bpf: $source: clang refuses it; clang -target bpf -c $source says why"
    done
    echo 'bpf: compiled, and libbpf is there'
fi
