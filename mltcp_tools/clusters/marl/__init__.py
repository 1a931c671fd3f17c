# SPDX-License-Identifier: BSD-2-Clause
"""Schedulers that learn where jobs go, one for each leaf (Zhao and Wu, arXiv 2112.13354)."""
