"""The audit log: what was changed, by whom and why, written in the transaction of the change and never altered."""
