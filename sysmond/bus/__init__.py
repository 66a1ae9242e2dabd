# SPDX-License-Identifier: Apache-2.0
"""The bus part: sysmond on D-Bus. docs/design/0003-control.md says what it does and what it may.

Comes in: calls of anybody on the bus; the newest values of rings. Goes out: values,
history, subscriptions, objects of probes; orders to the other parts, for whom polkit allows. It is a part of its own
and carries neither numpy nor h5py: ``readers`` answers history by processes that end. Called by ``daemon``, which
starts ``main``, which is the ``loop``; ``direct`` is for who asks where there is no bus.

What clients see: ``status``, ``steering`` and ``holds`` are the Manager, ``probes`` an object each, ``latest``,
``reader`` (the process to which ``readers`` hands a ``question``), ``subscriptions`` and ``events`` are values;
``offer_state`` puts together what needs no event loop, ``offer`` all. How it reaches others: ``parts`` (orders),
``commands`` (children that end); ``part`` is what all modules here share. ``wire`` is D-Bus itself and knows nothing of
what is recorded.
"""
