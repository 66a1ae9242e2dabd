# SPDX-License-Identifier: Apache-2.0
"""From where on the values of a series are larger: one step, found among noise and outliers; nothing is trained.

Whether there is a step at all, ranks say, which know no outliers: the largest standardised sum of ranks of what is
behind a place (Mann and Whitney 1947, at each place as Pettitt 1979). Where it is, the likelihood says, with values
that are far above their level counted as such: one boot in ten takes half as long again, for reasons of its own.
"""

import numpy as np

from sysmond.base.result import NDArray

Floats = NDArray[np.float64]

# Fewer on one side than these are no level.
SIDE_MIN = 5
VALUES_MIN = 14  # Of fewer the ranks cannot be sure.
# From here on there is a step: without one, in 3 of 100 series of 60 values.
SURE_MIN = 3.0
_ROUNDS = 4
_OUTLIER_SPREADS = 3.0
_TO_DEVIATION = 1.4826  # A median of absolute deviations, of normal values.
_SPREAD_MIN = 1e-3
_ANYTHING = 1e-4


def sureness(values: Floats) -> float:
    """How sure it is that values become larger somewhere: float64[value] to standard deviations; 0.0 for too few."""
    return float(_rise(values).max()) if len(values) >= VALUES_MIN else 0.0


def step_at(values: Floats) -> int:
    """Which value, float64[value] and all above 0, is the first of the larger ones; there must be enough of them."""
    logs = np.log(values)
    places = _places(len(logs))
    place = int(places[int(np.argmax(_rise(logs)))])
    for _ in range(_ROUNDS):
        before, place = place, _likeliest(logs, place, places)
        if place == before:
            break
    return place


def _rise(values: Floats) -> Floats:
    """By how much ranks are larger from each place on: float64[value] to float64[place], in standard deviations."""
    number = len(values)
    before = _places(number)
    _, indexes, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[indexes]  # Equal ones share theirs.
    deviation = np.sqrt(before * (number - before) * (number + 1) / 12)
    rise: Floats = (before * (number + 1) / 2 - np.cumsum(ranks)[before - 1]) / deviation
    return rise


def _places(number: int) -> NDArray[np.int64]:
    return np.arange(SIDE_MIN, number - SIDE_MIN + 1)


def _likeliest(logs: Floats, place: int, places: NDArray[np.int64]) -> int:
    """The likeliest place, with levels, spread and outliers as they are where it was thought to be."""
    sides = logs[:place], logs[place:]
    beyond = np.concatenate([side - np.median(side) for side in sides])
    spread = max(_TO_DEVIATION * float(np.median(np.abs(beyond))), _SPREAD_MIN)
    is_outlier = beyond > _OUTLIER_SPREADS * spread
    outliers = beyond[is_outlier]
    centre, width = _OUTLIER_SPREADS * spread + spread, 2 * spread
    if len(outliers) > 1:
        centre = float(np.median(outliers))
        width = max(spread, _TO_DEVIATION * float(np.median(np.abs(outliers - centre))))
    share = max(len(outliers), 1) / len(logs)

    def likelihoods(level: float) -> Floats:
        at = logs - level
        usual = (1 - share) * np.exp(-0.5 * (at / spread) ** 2) / spread
        odd = share * np.exp(-0.5 * ((at - centre) / width) ** 2) / width
        return np.cumsum(np.log(usual + odd + _ANYTHING / spread))

    low, high = (
        likelihoods(float(np.median(side[~odd])))
        for side, odd in zip(sides, (is_outlier[:place], is_outlier[place:]), strict=True)
    )
    return int(places[int(np.argmax(low[places - 1] + high[-1] - high[places - 1]))])
