"""The `meridian` command: what operators type, and what starts each process. Nothing here decides anything of weight:
it shows, asks and orders through the operator API, like any other client of it."""
