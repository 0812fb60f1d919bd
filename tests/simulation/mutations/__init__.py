"""Small wrong edits of the core, by the room that they are made in."""

from tests.simulation.mutations.concurrent_delivery import CONCURRENT_DELIVERY
from tests.simulation.mutations.reading import READING
from tests.simulation.mutations.spark import SPARK
from tests.simulation.mutations.watch import WATCH

MUTANTS = [*READING, *WATCH, *CONCURRENT_DELIVERY, *SPARK]
