"""What Prometheus is told of the fleet, read from a real database."""
