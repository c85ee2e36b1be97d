"""The loops inside every control-plane replica: they lease rows from Postgres and move them on."""
