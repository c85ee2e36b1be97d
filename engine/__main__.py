"""`python -m engine plan`: a `PlanRequest` on standard input, a `LaunchPlan` on standard output.

Exit code 2 and a `PlanRefused` instead: the specification cannot be run. Any other failure is 1 and a traceback.
"""

import sys

from control_plane.contracts.launch import PlanRefused, PlanRequest
from engine.prepare import prepare
from engine.spec import SpecRefused

USAGE = "usage: python -m engine plan < request.json"


def main(arguments: list[str]) -> int:
    """Runs one command; returns the exit code."""
    if arguments != ["plan"]:
        sys.stderr.write(f"{USAGE}\n")
        return 1
    try:
        plan = prepare(PlanRequest.model_validate_json(sys.stdin.buffer.read()))
    except SpecRefused as refusal:
        refused = PlanRefused(deployment_id=refusal.deployment_id, error=str(refusal))
        sys.stdout.write(refused.model_dump_json() + "\n")
        return 2
    sys.stdout.write(plan.model_dump_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
