"""The REST API of a team's own dashboard: usage, generations and keys of one team, never of another."""
