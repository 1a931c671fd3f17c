# SPDX-License-Identifier: BSD-2-Clause
"""Small trainings as tutorials have them, and the one line that changes how gradients travel."""
