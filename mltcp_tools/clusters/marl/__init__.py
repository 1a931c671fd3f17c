"""Several schedulers as cooperating agents that learn (after Zhao and Wu, TNSM 2021).

An agent per leaf says which of the jobs that wait share the GPUs of those that run below it; all
have one network over a graph of servers, leaves and the spine, and one critic. Only the paper's
abstract was at hand: what it leaves open is decided here and said where it is.
"""
