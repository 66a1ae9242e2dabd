# SPDX-License-Identifier: Apache-2.0
"""Series: one value a step of each metric of each instance, out of the rows or buckets that answer a question best.

Comes in: which series, over which time, at which step. Goes out: arrays of float64, a value a step, with the gaps
between them. Called by ``answers.wide``, and by whatever lays series beside each other.

``query`` joins the boots on one axis in UTC. Which tier answers ``which_tier`` says, ``reading`` gets its buckets, and
``rates`` makes of counters, gauges and states what was asked for: means, extremes, percentiles. ``derived`` computes
series from others by formulas, ``gaps`` says why something is missing, ``explain`` how a number came about.
"""
