"""Routes about a key's own account: who it is, what it has used, what became of a request. All cold."""
