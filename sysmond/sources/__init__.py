# SPDX-License-Identifier: Apache-2.0
"""Sources that are more than a text file: what speaks a protocol, or a C library, or is shared by several probes.

Comes in: a ``Host``, device folders, answers of the kernel, of libraries and of other programs; all hostile. Goes out:
rows, or parsed values in the units of the table, of a single device an absence with its reason. Called by the probes,
by ``tasks.ends`` (``netlink``) and by ``archiver`` (``logind``, ``settings``); the other parts of sysmond do not import
these. Standard library only.

Sensors: ``hwmon`` with ``libsensors`` (labels) and ``bus_address`` (names), ``thermal``, ``iio`` with ``iio_buffer``
(vibration) and ``iio_orientation``. Graphics: ``drm``, ``drm_clients`` (by process), ``nvml`` (NVIDIA). Disks:
``smart_disks`` says when, ``smartctl`` asks; ``statvfs`` asks file systems. Networks by ``netlink``: ``nl80211``,
``wireless`` and ``wifi_connections``, ``tc`` (queues), ``rtnetlink`` (addresses); ``ethtool`` by ioctl. People:
``evdev`` (input), ``logind``. ``gps`` reads a receiver.
What happened: ``kmsg`` (the kernel's messages), ``dpkg_log`` (packages), ``unit_files`` by ``inotify`` (what systemd
starts, and how), ``stalls`` (pressure), ``forks`` (storms), ``units`` (systemd) with ``unit_states``, and with
``startup`` and ``critical_chain`` (how long a boot took, and what it waited for), ``sessions``, ``wtmp`` and
``wtmpdb`` (people), ``settings``, ``crash_records`` (how a boot ended). D-Bus is spoken by ``sd_bus``;
``bus_signals`` hears services.
``unread`` turns an error of one device into an absence; ``wraps`` counts on where counters of 32 bits wrap.

What sleeps is left alone. A suspended device is recognised by ``Host.is_asleep`` (``sysmond/probe.py``), which a
source here, or the probe that calls it, asks before it reads one. ``disk_use`` says whether somebody else keeps a disk
awake, and ``slots`` how seldom a device is asked, so that it may fall asleep in between, or since it answers slowly.
"""
