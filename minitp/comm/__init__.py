"""The only room where ranks talk: states, partial sums, the communicator, and the worlds beneath it."""
from minitp.comm.communicator import Communicator
from minitp.comm.partial import Partial, concatenate
from minitp.comm.states import ON_ROOT, PARTIAL, WHOLE, State, shard

__all__ = ["ON_ROOT", "PARTIAL", "WHOLE", "Communicator", "Partial", "State", "concatenate", "shard"]
