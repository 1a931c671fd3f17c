# SPDX-License-Identifier: BSD-2-Clause
"""An experiment: do schedulers that learn beat greedy sharing with the same predictions?

After Zhao and Wu (TNSM 2021), of which only the abstract was at hand: an agent per leaf says which
of the jobs that wait share the GPUs of those that run below it; all have one network and one
critic. What that gains over `predicted`, `mltcp cluster marl` says.
"""
