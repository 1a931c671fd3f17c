# SPDX-License-Identifier: BSD-2-Clause
"""Collectives measured and compared: ranks in namespaces, jobs that share links."""
