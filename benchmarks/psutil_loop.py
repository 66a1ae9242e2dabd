# SPDX-License-Identifier: Apache-2.0
"""A naive monitor, as psutil's users write them: each second all processes with what htop shows, as a line of JSON."""

import json
import sys
import time

import psutil  # type: ignore[import-untyped,import-not-found,unused-ignore]

ATTRIBUTES = (
    "pid",
    "ppid",
    "name",
    "username",
    "status",
    "create_time",
    "cpu_times",
    "memory_info",
    "num_threads",
    "io_counters",
    "num_ctx_switches",
)


def main(path: str) -> None:
    """Write until killed."""
    due_s = time.monotonic()
    with open(path, "a", encoding="utf-8") as file:
        while True:
            json.dump([process.info for process in psutil.process_iter(ATTRIBUTES)], file)
            file.write("\n")
            file.flush()
            due_s = max(due_s + 1, time.monotonic())
            time.sleep(max(0.0, due_s - time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1])
