# SPDX-License-Identifier: BSD-2-Clause
"""Whole clusters in virtual time: jobs on links whose shares depend on congestion control, the
schedulers that place and scale jobs, and what each gains."""
