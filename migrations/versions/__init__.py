"""The migrations, in order. Each expands or contracts, never both."""
