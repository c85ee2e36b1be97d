"""Teams and their API keys. A key's secret is shown once and stored as a digest; a revocation reaches edges by a
stream whose numbers grow in commit order."""
