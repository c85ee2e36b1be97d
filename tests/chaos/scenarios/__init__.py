"""What is done to a stack, one scenario a file; each says what it promises and proves it from the history."""
