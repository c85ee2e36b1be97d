"""The models of the routing table, each in the shape that one kind of client reads. What nobody knows is absent or
null, never 0."""
