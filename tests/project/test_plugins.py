# SPDX-License-Identifier: Apache-2.0
"""What comes with sysmond is accepted by it: a plugin that is refused records nothing, on every machine."""

import pytest

from sysmond.plan.plugins import check_probe, load
from tests.project.test_floors import PROBES_THERE


@pytest.mark.parametrize("module", PROBES_THERE)
def test_no_plugin_of_our_own_is_refused(module: str) -> None:
    for probe in load(module):
        check_probe(probe)
