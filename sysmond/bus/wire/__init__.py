# SPDX-License-Identifier: Apache-2.0
"""D-Bus itself: a connection, who calls, whose turn it is, objects with interfaces.

Comes in: bytes of a bus, hostile. Goes out: calls of Python methods that are declared in ``interface``, answers and
signals, bounded by connection and by user. ``adapter`` alone speaks to the library, at one of the ``addresses``;
``polkit`` says who may steer, ``callers`` knows each ``caller``, and who may see what is restricted. ``incoming`` cuts
bytes into messages, ``turns`` says whose is next, ``exports`` finds the method, with a bus or without, and ``service``
is on one. ``standard`` has the interfaces of every service, ``errors`` what is refused, ``values`` what has a type,
``names`` what all is called; ``outgoing`` writes and ``backlog`` bounds what waits. Called by ``bus``.
"""
