"""Collectives built by hand from sends and receives: what an MPI library does inside, in versions that can be watched.

  hops.py       a schedule: what each rank gives and takes, round by round
  star.py       everything through the root, one message after the other
  tree.py       binomial tree: each round doubles the ranks that have something
  ring.py       every rank talks to its neighbors only
  doubling.py   recursive doubling and halving, Bruck, pairwise: partners at distances 1, 2, 4, …
  schedules.py  which collective has which algorithms
  built.py      BuiltCollectives: plays a schedule by real messages of a Communicator, each of them recorded

What MPI itself does in its own all-reduce is not known; these show what it may do.
"""
from minitp.comm.algorithms.built import BuiltCollectives
from minitp.comm.algorithms.hops import Hop, Schedule
from minitp.comm.algorithms.schedules import ALGORITHMS, chunks, schedule

__all__ = ["ALGORITHMS", "BuiltCollectives", "Hop", "Schedule", "chunks", "schedule"]
