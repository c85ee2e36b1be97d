"""Break-glass: the operators' keys that edges believe, and what edges were told with them while nobody was here."""
