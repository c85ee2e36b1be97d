"""The wire formats that clients speak, each told from upstream chat, so that metering and resume exist once."""
