"""The whole stack, as a user has it: three datacenters, two edges, two control-plane replicas, the OpenAI SDK."""
