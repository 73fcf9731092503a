"""Action-level scheduling for agentic RL.

Submit actions and await their results::

    async with Client() as client:
        result = await client.run_code("print(6 * 7)")
"""

from tangram_workers.domain.action import Action, ActionKind, ApiCall, Command, Score
from tangram_workers.domain.errors import (
    ActionCancelledError,
    ActionError,
    ActionExpiredError,
    ActionFailedError,
    ActionOutOfMemoryError,
    ActionTimedOutError,
    BrokerUnavailableError,
    ClientClosedError,
    InfrastructureError,
    InputError,
    InvalidActionError,
    MissingPartError,
    NoFleetError,
    PayloadTooLargeError,
    SandboxError,
    SettingsError,
    TangramError,
    UnknownQueueError,
)
from tangram_workers.domain.resources import Elasticity, ResourceVector, SpeedupCurve
from tangram_workers.domain.result import ActionResult, Outcome, Timings, Usage
from tangram_workers.domain.reward import RewardRule
from tangram_workers.sdk.blocking import BlockingClient
from tangram_workers.sdk.client import ActionHandle, Client

__version__ = "0.1.0"

__all__ = [
    "Action",
    "ActionCancelledError",
    "ActionError",
    "ActionExpiredError",
    "ActionFailedError",
    "ActionHandle",
    "ActionKind",
    "ActionOutOfMemoryError",
    "ActionResult",
    "ActionTimedOutError",
    "ApiCall",
    "BlockingClient",
    "BrokerUnavailableError",
    "Client",
    "ClientClosedError",
    "Command",
    "Elasticity",
    "InfrastructureError",
    "InputError",
    "InvalidActionError",
    "MissingPartError",
    "NoFleetError",
    "Outcome",
    "PayloadTooLargeError",
    "ResourceVector",
    "RewardRule",
    "SandboxError",
    "Score",
    "SettingsError",
    "SpeedupCurve",
    "TangramError",
    "Timings",
    "UnknownQueueError",
    "Usage",
]
