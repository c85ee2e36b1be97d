"""The edge: one OpenAI-compatible endpoint before every datacenter, stateless but for an unshipped usage outbox."""
