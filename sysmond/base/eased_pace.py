# SPDX-License-Identifier: Apache-2.0
"""How much more seldom than planned something is asked that takes long to answer: half as often, again and again."""

# So many readings in a row decide: one alone may have waited for a processor.
READINGS = 3
# Firmware and embedded controllers are asked no more often than this, whoever wants it.
FIRMWARE_S = 10
# Nothing is read more seldom than this because somebody wants so: shorter troubles would leave no trace.
BACK_MAX_S = 60
# Nothing is asked more seldom than this because it is slow.
EASED_MAX_S = 300


class EasedPace:
    """``factor``: what the planned interval is multiplied by now, a power of two."""

    def __init__(self) -> None:
        """Begin as planned."""
        self.factor = 1
        # How many readings in a row were too long, or, below 0, were not.
        self._run = 0

    def judge(self, *, is_long: bool, interval_s: float) -> bool:
        """Take in whether a reading was too long, at the interval that holds now; gives whether another holds then.

        As many short readings as the factor asks for give one doubling back.
        """
        self._run = (max(self._run, 0) + 1) if is_long else (min(self._run, 0) - 1)
        if self._run >= READINGS and interval_s < EASED_MAX_S:
            self.factor *= 2
        elif self._run <= -READINGS * self.factor and self.factor > 1:
            self.factor //= 2
        else:
            return False
        self._run = 0
        return True
