# SPDX-License-Identifier: BSD-2-Clause
"""Errors, units, documents, columns: what every other part of the package stands on."""
