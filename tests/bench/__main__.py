"""`./dev bench` lists the benches; `./dev bench NAME` runs one, and ends with one JSON line of its figures."""

import json
import sys

from tests.bench.harness import CLOCK, benches


def main(arguments: list[str]) -> int:
    """Lists, or runs the one that is named; 2 when there is none of that name."""
    known = {bench.name: bench for bench in benches()}
    if not arguments:
        width = max(map(len, known), default=0)
        for bench in known.values():
            print(f"{bench.name:<{width}}  {bench.summary}")
        return 0
    name, *options = arguments
    if name not in known or not set(options) <= set(known[name].options):
        print(f"error: no bench {' '.join(arguments)!r}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    began_s = CLOCK.monotonic_s()
    figures = known[name].main(**{option.lstrip("-"): True for option in options})
    print(f"took {CLOCK.monotonic_s() - began_s:.0f} s", file=sys.stderr)
    print(json.dumps({"bench": name, **figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
