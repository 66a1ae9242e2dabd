# SPDX-License-Identifier: Apache-2.0
"""The screen of ``sysmon``: what a machine does now, and what it did at any moment that is recorded.

Comes in: keys, and an archive, which is asked as anybody can. Goes out: lines. ``sysmon_tools.sysmon`` starts it.

- ``views``: what can be looked at, as a table of tables and columns.
- ``look``: where somebody looks, and where a key leads. Pure.
- ``keys``: which key does what, and what the help says of it.
- ``preferences``: the keys and columns that somebody prefers to ours, from a file.
- ``question``: asks the archive for what a look shows.
- ``trees``: puts rows below their parents. Pure.
- ``own_recorder``: samples while the screen is open, where nobody records.
- ``acting``: signals and priorities of processes, with the rights of who looks.
- ``subjects``: what a row stands for, where something is to be done to it.
- ``frozen``: what of the rows that are seen stands still, and by which control group.
- ``heap``: gives memory back that an answer took on its way.
- ``lines``: lines and a table for any program of textual, which know of no archive.
- ``app``: the program that puts them together.
"""
