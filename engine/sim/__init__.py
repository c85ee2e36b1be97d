"""The simulated engine's own model directory: a tokenizer, a chat template and no weights."""
