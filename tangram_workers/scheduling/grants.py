"""How many units an action gets: pure."""

from __future__ import annotations

from tangram_workers.domain.action import Action


def core_range(action: Action) -> tuple[int, int]:
    """Return the fewest and the most cores worth granting to a command.

    The most is the useful maximum of its speed-up curve: past it more cores change nothing. In
    simulation on recorded work this cap is what pays; a price on top of it decided nothing.

    Args:
        action: A command.

    Returns:
        (fewest, most), 1 <= fewest <= most. The grant is what is free between the two.
    """
    fewest = max(1, action.min_cores)
    most = action.elasticity.speedup.useful_maximum(action.elasticity.max_units)
    return fewest, max(fewest, most)
