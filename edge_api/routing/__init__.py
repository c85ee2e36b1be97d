"""Which datacenter serves a request: the table that the snapshot gives, the evidence of this edge, the choice."""
