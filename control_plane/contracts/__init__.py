"""What Meridian's processes say to each other, and the few things that must be the same in all of them.

Wire types are pydantic models (msgspec where the edge's hot path writes them). Nothing here does I/O except
`transport`, and nothing here imports another package of ours.
"""
