# SPDX-License-Identifier: BSD-2-Clause
"""Sources of knowledge of a job's iterations, and which of them to believe."""
