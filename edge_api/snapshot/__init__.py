"""The routing snapshot on this edge: fetched, checked, kept on disk, put to use."""
