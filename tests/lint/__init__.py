"""The house rules, each one a program, and each one shown to fail on what it forbids."""
