"""The seam to the stock transport, which orders by ten coarse steps and not by scores.

A score offset says how many seconds an action is moved against its arrival. Each step covers an
equal share of the range that the policy can give; step 0 runs first, and within a step the order
is arrival. With the `fifo` policy there is one step and the order is exact. With `act` it is only
as fine as the steps, and a stream of actions in an earlier step can hold a later one back: the
bound on overtaking that the score itself has does not hold on this transport.
"""

from __future__ import annotations

from tangram_workers.router.policy import ScorePolicy

STEPS = 10


def priority_step(offset_s: float, policy: ScorePolicy) -> int:
    """Return the transport's priority, 0 (first) to 9, of a score offset.

    Args:
        offset_s: Score less arrival time, in seconds.
        policy: The policy that gave it.
    """
    lowest_s = -policy.last_credit_s
    range_s = policy.overtaking_bound_s
    if range_s <= 0:
        return 0
    share = (offset_s - lowest_s) / range_s
    return min(STEPS - 1, max(0, int(share * STEPS)))
