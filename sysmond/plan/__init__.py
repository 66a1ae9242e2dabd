# SPDX-License-Identifier: Apache-2.0
"""What is recorded: configuration and plugins go in, one plan comes out, which the parts follow.

Comes in: ``/etc/sysmond``, the drop-ins that ``sysmonctl`` writes, plugins by their entry points. Goes out:
``plan.json`` with every probe, its interval, lane and options, and ``catalogue.json`` with every table. Only
``resolver``, a program of its own that ends, reads YAML and imports pluggy; the parts read the plan and nothing else.
Called by ``daemon`` (which starts the resolver), by the parts, and by ``commands``.

``config`` reads YAML into settings, ``written_settings`` is the drop-in, ``settings`` what the command line said.
``plugins`` finds and loads plugins, of which ``hookspecs`` says what they may have. ``plan`` is what the parts read,
``plan_cache`` uses that of an earlier start again, and ``catalogue`` is what people ask. ``config_keys`` declares every
key once: its type, bounds, default and document. ``retention`` says which files are forgotten to stay within the
budgets that are planned; ``archiver.retention_job`` forgets them.
"""
