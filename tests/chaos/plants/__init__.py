"""Known bugs, planted into a process under test to see that the suites catch them. None of this is in the product.

A plant is a module with `plant()`, which patches what is imported there. It gets into an edge by the command that
starts it, and into a run of pytest by `-p tests.chaos.plants.NAME`.
"""
