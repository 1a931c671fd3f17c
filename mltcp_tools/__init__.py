# SPDX-License-Identifier: BSD-2-Clause
"""Tools for MLTCP, a TCP congestion control that keeps training jobs out of each other's way."""

__version__ = "0.1.0"
