"""The edge: one OpenAI-compatible endpoint in front of every datacenter, stateless but for an unshipped usage outbox."""
