# SPDX-License-Identifier: Apache-2.0
"""From RAM to disk, and what becomes of it there: seal, flush, roll up, merge, forget.

Comes in: rings, and what the disk is doing. Goes out: files in RAM, later on the disk, later in tiers; orders that it
carries out (flush, pin, mark) over its control socket. The archiver itself (``main``) only waits and decides; every job
is a child that ends (``children``), so that numpy and h5py are in no memory for longer. Called by ``daemon``, which
starts it.

``watch`` and ``flushing`` decide when the disk is written to; ``seal_job``, ``rollup_job``, ``merge_job`` and
``retention_job`` work on files of both codings, of which ``coding`` says how they differ; ``weights`` has for the next
merge what this one learned of files; ``auto_pins`` keeps what
incidents look like, as far as ``pin_share`` lets it. ``disk_writes`` counts what went to the disk, and writes the
events of the daemon. By what ``boot_before`` notes, the next boot knows how this one ended, and its settings.
"""
