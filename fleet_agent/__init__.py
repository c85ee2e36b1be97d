"""The fleet agent: one process for each fleet that pulls desired state and drives the fleet's Dynamo cluster."""
