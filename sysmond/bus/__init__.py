# SPDX-License-Identifier: Apache-2.0
"""The bus part: sysmond on D-Bus. ``docs/design/0003-control.md`` says what it does and what it may."""
