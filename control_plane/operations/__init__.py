"""What operators order: drain and restore, as durable state machines with safety rules."""
