# SPDX-License-Identifier: Apache-2.0
"""D-Bus itself: a connection, who calls, whose turn it is, objects with interfaces.

Comes in: bytes of a bus, hostile. Goes out: calls of Python methods that are declared in ``interface``, answers and
signals, bounded by connection and by user. ``adapter`` alone speaks to the library; ``polkit`` says who may steer,
``callers`` who may see what is restricted. ``incoming`` cuts bytes into messages, ``turns`` says whose is next,
``service`` finds the method, ``standard`` has the interfaces of every service, ``errors`` what is refused, ``names``
what all is called; ``outgoing`` writes and ``backlog`` bounds what waits. Called by ``bus``.
"""
