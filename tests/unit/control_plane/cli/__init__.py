"""The `meridian` command against an operator API and an edge that answer what the contracts say."""
