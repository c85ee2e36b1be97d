"""The documentation, and what writes its generated pages."""
