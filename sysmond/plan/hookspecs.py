# SPDX-License-Identifier: Apache-2.0
"""Hook specifications: everything that a plugin may implement, and nothing else.

A plugin is a module. Its functions that bear these names and are marked with
``sysmond.probe.hookimpl`` are called once, by the resolver; the part that runs a probe later calls
``sysmond_probes`` again, in its own process. ``docs/probes.md`` is the tutorial.
"""

import pluggy

from sysmond.probe import API_VERSION, Probe

__all__ = ["API_VERSION", "PROJECT", "sysmond_api_version", "sysmond_probes"]

PROJECT = "sysmond"

_hookspec = pluggy.HookspecMarker(PROJECT)


@_hookspec
def sysmond_probes() -> list[Probe]:  # type: ignore[empty-body]  # a specification has no body
    """Offer probes: values made without reading anything; the machine is looked at when a probe is read.

    Every plugin has this one. An empty list is right where the plugin has nothing to offer.
    """


@_hookspec
def sysmond_api_version() -> int:  # type: ignore[empty-body]  # a specification has no body
    """Say for which ``sysmond.probe.API_VERSION`` the plugin was written; without this hook, for 1.

    Version 2 knows what tables declare about answers. A plugin of a version that this sysmond does not know is refused,
    before any other of its hooks is called.
    """
