# SPDX-License-Identifier: BSD-2-Clause
"""The event loop, in C, of the cluster simulator: flow.h says what it does."""
