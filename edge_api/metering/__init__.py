"""What was used: counted while it is relayed, journalled before the client sees the end, shipped until it is stored."""
