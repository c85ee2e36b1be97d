"""What the control plane tells Prometheus of the fleet, read from the database when it is asked."""
