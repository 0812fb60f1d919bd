"""A DynamoDB Streams service on a loopback socket, with faults on demand."""

from .control import ShardState, Simulator
from .faults import Faults
from .model import Written
from .verdict import Verdict, judge

__all__ = ["Faults", "ShardState", "Simulator", "Verdict", "Written", "judge"]
