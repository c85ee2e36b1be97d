"""What this edge counts of how datacenters served, and tells the control plane."""
