# SPDX-License-Identifier: BSD-2-Clause
"""The iterations of attached jobs, as they are read, shown and recorded."""
