"""A test engine: a worker behind a real Dynamo frontend that says what its prompt tells it to say."""
