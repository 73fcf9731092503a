"""Every setting of the fleet: read from TANGRAM_* variables, checked at start.

The reference page docs/reference/settings.md is generated from the fields below.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from tangram_workers.domain.errors import InvalidActionError, SettingsError
from tangram_workers.domain.queues import require_name
from tangram_workers.domain.resources import GIB, MIB
from tangram_workers.runtime.settings_checks import (
    PREFIX,
    absolute_path,
    check_broker_url,
    describe,
    refuse_unknown_variables,
    variable_name,
)

__all__ = [
    "PREFIX",
    "Settings",
    "default_data_dir",
    "load_settings",
    "settings_environment",
    "variable_name",
]


def default_data_dir() -> Path:
    """Return the folder that holds an embedded fleet's state where none was named.

    Raises:
        SettingsError: If this user has no home folder to put it in.
    """
    state_home = os.environ.get("XDG_STATE_HOME", "")
    if Path(state_home).is_absolute():  # the XDG standard: a relative one is to be ignored
        return Path(state_home) / "tangram"
    try:
        return Path.home() / ".local" / "state" / "tangram"
    except RuntimeError:
        raise SettingsError(
            "TANGRAM_DATA_DIR is not set and this user has no home folder to default to. "
            "Set it to a private folder."
        ) from None


def _setting(default: Any, unit: str, description: str, **limits: Any) -> Any:
    """Return a field with its unit; a callable default is computed at start."""
    extra: dict[str, Any] = {"unit": unit}
    if callable(default):
        return Field(
            default_factory=default, description=description, json_schema_extra=extra, **limits
        )
    return Field(default=default, description=description, json_schema_extra=extra, **limits)


class Settings(BaseSettings):
    """Settings of one process. Build them with `load_settings()`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        # An empty variable is one that is not set, as `NAME= command` means it in a shell.
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    # --- the fleet --------------------------------------------------------------------------
    broker_url: str | None = _setting(
        None,
        "URL",
        "Redis that carries the fleet, as redis://[:password@]host:port/db (rediss:// for TLS). "
        "Unset: the embedded Redis that `tangram up` starts.",
        repr=False,  # it may hold a password
    )
    data_dir: Path = _setting(
        default_data_dir,
        "path",
        "Private folder of the embedded fleet: its Redis data, its state file, its logs. "
        "Default: $XDG_STATE_HOME/tangram, else ~/.local/state/tangram.",
    )
    node: str = _setting(
        socket.gethostname,
        "name",
        "Name of this machine in results and reports. Default: the host name.",
        min_length=1,
        max_length=200,
    )
    key_prefix: str = _setting(
        "tangram",
        "text",
        "First part of every Redis key; fleets that share a Redis need different ones.",
        pattern=r"^[a-z0-9_-]{1,40}$",
    )
    models: Annotated[tuple[str, ...], NoDecode] = _setting(
        (), "names", "Reward models of the fleet, separated by commas; each has queue gpu.<model>."
    )
    providers: Annotated[tuple[str, ...], NoDecode] = _setting(
        (),
        "names",
        "API providers of the fleet, separated by commas; each has queue api.<provider>.",
    )
    connect_timeout_s: float = _setting(
        5.0,
        "seconds",
        "Longest wait for any one answer of the broker; past it the call ends with "
        "BrokerUnavailableError.",
        ge=1,
        le=300,
    )

    # --- the router -------------------------------------------------------------------------
    router_policy: Literal["act", "fifo"] = _setting(
        "act",
        "name",
        "Order of waiting actions: `act` favours short actions and the last action of a "
        "trajectory within a bound; `fifo` is arrival order.",
    )

    # --- workers and leases -----------------------------------------------------------------
    cores: int = _setting(
        0,
        "cores",
        "Cores of this node that actions may use; 0 is all it may run on.",
        ge=0,
        le=4096,
    )
    lease_s: float = _setting(
        5.0,
        "seconds",
        "A worker that does not renew for this long has lost its actions; they are tried again.",
        ge=0.5,
        le=600,
    )
    max_attempts: int = _setting(
        3,
        "tries",
        "Tries that the fleet gives an action whose workers die or whose sandboxes break; then it "
        "ends as infrastructure_error.",
        ge=1,
        le=100,
    )
    result_ttl_s: float = _setting(
        3600.0, "seconds", "How long a finished action's result is kept.", ge=1, le=30 * 24 * 3600
    )
    drain_timeout_s: float = _setting(
        30.0,
        "seconds",
        "How long a stopping worker may finish what it runs; then it is killed and its actions "
        "are tried again elsewhere.",
        ge=0,
        le=24 * 3600,
    )

    # --- the sandbox ------------------------------------------------------------------------
    sandbox_driver: Literal["bubblewrap", "process"] = _setting(
        "bubblewrap",
        "name",
        "How commands are kept apart: `bubblewrap`, or `process`, which does NOT isolate and is "
        "for trusted code only.",
    )
    sandbox_uid: int = _setting(
        64321,
        "uid",
        "Unused user id of the host that sandboxes run as when the worker runs as root.",
        ge=1000,
        le=2**31 - 1,
    )
    sandbox_dir: Path | None = _setting(
        None,
        "path",
        "Folder for lasting workspaces; it must be reachable by the sandbox's user. "
        "Default: tangram-<uid> in the system's temporary folder.",
    )
    sandbox_disk_bytes: int = _setting(
        256 * MIB,
        "bytes",
        "Size of the workspace of an action without a trajectory, and of each sandbox's /tmp.",
        ge=1 * MIB,
        le=1024 * GIB,
    )
    sandbox_workspaces_bytes: int = _setting(
        4 * GIB,
        "bytes",
        "Size of the file system in memory that holds all trajectories' workspaces of a node, "
        "where the worker runs as root; it takes memory only as it fills.",
        ge=1 * MIB,
        le=64 * 1024 * GIB,
    )
    sandbox_max_processes: int = _setting(
        256,
        "processes",
        "Processes and threads that one command may have at once.",
        ge=8,
        le=100_000,
    )
    output_limit_bytes: int = _setting(
        1 * MIB,
        "bytes",
        "How much of each of stdout and stderr is kept; the rest is read and dropped, and the "
        "result says so.",
        ge=1024,
        le=64 * MIB,
    )
    workspace_ttl_s: float = _setting(
        3600.0,
        "seconds",
        "A trajectory's workspace that was not used for this long is removed.",
        ge=1,
        le=30 * 24 * 3600,
    )

    # --- the operators' view ----------------------------------------------------------------
    flower_address: str = _setting(
        "127.0.0.1", "address", "Address that `tangram flower` listens on."
    )
    flower_port: int = _setting(
        5555, "port", "Port that `tangram flower` listens on.", ge=1, le=65535
    )

    @field_validator("models", "providers", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_values(cls, value: object) -> object:
        # Python counts True as 1; nobody who writes cores=True means one core.
        if isinstance(value, bool):
            raise ValueError("give a value, not True or False")  # noqa: TRY004 - pydantic's way
        return value

    @field_validator("models", "providers")
    @classmethod
    def _check_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            try:
                require_name("name", name)
            except InvalidActionError as error:
                raise ValueError(
                    f"{name!r} cannot be part of a queue's name: {error.mend}"
                ) from None
        return tuple(dict.fromkeys(value))

    @field_validator("broker_url")
    @classmethod
    def _check_broker_url(cls, value: str | None) -> str | None:
        return None if value is None else check_broker_url(value)

    @field_validator("data_dir", "sandbox_dir")
    @classmethod
    def _make_absolute(cls, value: Path | None) -> Path | None:
        return None if value is None else absolute_path(value)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take arguments first, then the environment; no files."""
        return (init_settings, env_settings)


def load_settings(**overrides: Any) -> Settings:
    """Read the settings of this process.

    Args:
        overrides: Fields that win over the environment.

    Raises:
        SettingsError: If a TANGRAM_ variable is misspelt or holds a value of the wrong kind.
    """
    refuse_unknown_variables(os.environ, Settings.model_fields)
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise SettingsError(describe(error, os.environ, overrides, Settings.model_fields)) from None


def settings_environment(settings: Settings) -> dict[str, str]:
    """Return the variables that give another process the settings that differ from the defaults."""
    environment = {}
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        # An empty variable is one that is not set; it hides the parent's own.
        environment[variable_name(name)] = "" if value is None else text
    return environment
