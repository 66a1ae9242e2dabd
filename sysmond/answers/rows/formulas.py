# SPDX-License-Identifier: Apache-2.0
"""Formulas of derived columns over arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sysmond.base.formula import Formula, Numbers, Operand
from sysmond.base.result import Float64Array, NDArray


def computed(read: Formula, values: Mapping[Operand, Float64Array], length: int) -> Float64Array:
    """What a formula makes of arrays, float64[length]; NaN where that is no number."""
    with np.errstate(all="ignore"):
        result = np.broadcast_to(np.asarray(read.evaluate(values, _ARRAYS), np.float64), length)
        return np.where(np.isfinite(result), result, np.nan)


def _divided(left: NDArray[Any] | float, right: NDArray[Any] | float) -> NDArray[Any]:
    divisor = np.asarray(right, np.float64)
    return np.asarray(left / np.where(divisor == 0, np.nan, divisor))


_ARRAYS = Numbers(_divided, np.fmin, np.fmax)
