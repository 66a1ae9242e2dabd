# SPDX-License-Identifier: Apache-2.0
"""What everything else stands on: tables and their metrics, clocks and time, names of series, words for a terminal.

Comes in: numbers, texts and paths that others read. Goes out: values and types that know nothing of files, parts or
probes, and functions of them. Nothing here opens a file but the clock (the number of this boot) and the terminal.
Called by every package.

``model`` has what a probe declares, ``clock`` this machine's time since boot, ``wall_clock`` what time of day that was
while the clock was set, ``timespec`` times as people write them, ``calendar_times`` those that take a calendar,
``paths`` the names of series, ``event_kinds`` who may record which event, ``eased_pace`` how much more seldom something
slow is asked. Numbers: ``counters`` is the rule of what a fall of one means,
``significant`` takes digits off.
Answers: ``result`` is what they are made of, ``statistic`` names what may be asked; ``declared_answers`` is what a
table says of them, ``derived_columns`` which follow from others, by a ``formula``, ``column_groups`` which have one
word together. People: ``arguments`` checks what callers of the library give, ``terminal`` makes text printable,
``allowance`` bounds how often somebody may ask.
"""
