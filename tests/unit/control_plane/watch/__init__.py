"""The figures of the fleet, without a database."""
