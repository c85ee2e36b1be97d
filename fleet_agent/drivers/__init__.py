"""How an agent turns a launch plan into running processes; one driver for each kind of host."""
