# SPDX-License-Identifier: BSD-2-Clause
"""FaPES: servers that an inference cluster doesn't need are lent to training, and reclaimed.

After the abstract of FaPES (SoCC 2024), whose text and code aren't public: loans between virtual
clusters, reclaim by preemption cost, GPU counts, batches and learning rates by a model of speed
(`policies/plan.py`), and a prediction of use. What the abstract leaves open follows Lyra (EuroSys
2023), Pollux (OSDI 2021) and Knative's autoscaler, each where it is named.
"""
