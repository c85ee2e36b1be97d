"""The `meridian` command against the real control plane."""
