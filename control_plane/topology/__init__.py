"""What there is and what shall run: regions, datacenters, fleets, models, deployments and pools."""
