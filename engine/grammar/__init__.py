"""What is left of a grammar once a text was delivered, and the service that answers it beside an engine."""
