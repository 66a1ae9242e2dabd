# SPDX-License-Identifier: Apache-2.0
"""Long tables in files and answers: what their records become once they have left the ring."""
