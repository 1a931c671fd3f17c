# SPDX-License-Identifier: BSD-2-Clause
"""The parts of scripts/vm: fetching kernels, building for them, booting them.

Standard library only, as scripts/vm runs before anything of this project is installed.
"""
