# SPDX-License-Identifier: BSD-2-Clause
"""All-reduces fitted to the links there are: measured, planned, and run over TCP (AdapCC)."""
