# SPDX-License-Identifier: Apache-2.0
"""The kernel side: BPF programs loaded and pinned once, and opened by who samples."""
