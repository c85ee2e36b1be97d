"""The hot path: requests served inside the HTTP protocol itself, relayed by byte search and slice."""
