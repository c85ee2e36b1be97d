"""How often models call tools wrongly, by the definition that OpenRouter ranks providers by."""
