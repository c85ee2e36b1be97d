"""`python -m engine.awake MODULE ARGS...`: runs a Dynamo worker, and ends it when it finds that it stood still.

Dynamo's file discovery forgets a worker that has not renewed its lease for 10 s, and the worker never registers again:
it goes on, says that it is live, and gets no request any more. So a worker that was stopped, starved or suspended for
nearly that long is worth nothing; it ends, and its agent starts another one.
"""

import os
import runpy
import sys
import threading
import time

from control_plane.contracts.clock import Clock, SystemClock

LOOK_EVERY_S = 0.5
STOOD_STILL_S = 7.0  # the lease, less the three seconds between two renewals
STOOD_STILL_EXIT_CODE = 75


def main(arguments: list[str]) -> None:
    """Runs the module as its own program would run."""
    watch(SystemClock())
    sys.argv[:] = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def watch(clock: Clock, stood_still_s: float = STOOD_STILL_S) -> None:
    """Looks for ever, in a thread of its own, how long this process has not been running."""
    threading.Thread(target=_look, args=(clock, stood_still_s), name="awake", daemon=True).start()


def _look(clock: Clock, stood_still_s: float) -> None:
    """By the wall clock, as the lease is: that of a suspended machine jumps, and its monotonic one may not."""
    seen_s = clock.time_s()
    while True:
        time.sleep(LOOK_EVERY_S)
        now_s = clock.time_s()
        if now_s - seen_s > stood_still_s:
            sys.stderr.write(f"this worker stood still for {now_s - seen_s:.1f} s and was forgotten; it ends\n")
            sys.stderr.flush()
            os._exit(STOOD_STILL_EXIT_CODE)
        seen_s = now_s


if __name__ == "__main__":
    main(sys.argv[1:])
