"""Stand-ins for the functions that hold SQL, over simulated tables. One for each query that the simulated processes
make; a query without one fails loudly (`Session.execute`).

The services, rules and playbooks above them are the product's own. What is checked elsewhere, on a real Postgres, is
that the queries mean what these say.
"""

from tests.simulation.standins import capacity, evidence, fleets, money, operations, routing
from tests.simulation.standins.register import STANDINS

MODULES = (capacity, evidence, fleets, money, operations, routing)

__all__ = ["MODULES", "STANDINS"]
