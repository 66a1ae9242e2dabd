# SPDX-License-Identifier: Apache-2.0
"""What ``sysmond COMMAND`` does beside recording: orders to a recorder, and work on its files.

Comes in: arguments, a runtime folder, a state folder. Goes out: lines of text or JSON, and an exit code. ``orders``
asks parts that run, ``pins`` protects spans of time, ``upkeep`` has what takes longer: ``fsck`` checks files and sets
damaged ones aside; ``selftest`` kills a recorder of its own again and again and looks at what is left, and at copies
that ``tamper`` damaged; ``try_probe`` reads a probe once, for who writes one; ``service`` writes the units of who
installed by pip, and removes them. Called by ``sysmond.__main__``; ``sysmonctl`` comes by the same way.
"""
