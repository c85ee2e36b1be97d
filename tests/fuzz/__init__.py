"""Bytes that nobody would send: what the edge reads, fed by a fuzzer that looks where they lead."""
