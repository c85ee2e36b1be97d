"""The control plane on a real Postgres."""
