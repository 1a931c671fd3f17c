"""Several schedulers as cooperating agents that learn (after Zhao and Wu, TNSM 2021).

An agent per leaf bids for each job, and a dispatcher says which job is next; all share one network
over a graph of servers, leaves and the spine, and one critic. Only the paper's abstract was at
hand: what it leaves open is decided here and said where it is.
"""
