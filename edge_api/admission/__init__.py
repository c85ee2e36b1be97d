"""What a request may take before it is sent: rates, concurrency and money, all leased in blocks and spent here."""
