# SPDX-License-Identifier: Apache-2.0
"""This machine as programs meet it: folders, files, locks, sockets, mounts, memory, the command line.

Comes in: paths, and what other users and programs left there, which is hostile until it was checked here. Goes out:
files that are ours, whole or an error; locks that are waited for within a bound; orders between parts and their
answers. Nothing here knows what is recorded. Called by every package that touches the system.

One place for each kind: ``folders`` says where we may write, ``note`` reads and writes small JSON files, ``listing``
says what files there are, ``lock`` who may go on, ``recorders`` whose archive is meant, ``control`` carries orders,
``notify`` tells the service manager how a part fares, ``lacking`` whoever else asks; ``commandline`` reads arguments,
``snapshot_file`` a part of an archive that somebody sent, and ``snapshot_note`` what that says of itself.
``mounts`` knows disks, ``supplies`` batteries, ``asleep`` devices that sleep; ``realtime``, ``memory`` and
``descriptors`` say how much a process may have of the machine, ``oom_score`` who goes when there is no memory left, and
``heap`` gives back what is needed no more.
"""
