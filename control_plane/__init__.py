"""The control plane: desired state, safety, money. `contracts/` is all that the other processes may import from it."""
