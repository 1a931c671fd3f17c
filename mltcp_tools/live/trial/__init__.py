# SPDX-License-Identifier: BSD-2-Clause
"""Controlled experiments on live jobs: the same jobs with and without MLTCP, in random order."""
