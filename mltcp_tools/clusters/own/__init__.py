# SPDX-License-Identifier: BSD-2-Clause
"""An operator's own cluster: its logs read, replayed against what was observed, and asked about."""
