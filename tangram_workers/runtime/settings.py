"""Every setting of the fleet: read from TANGRAM_* variables, checked at start.

The reference page docs/reference/settings.md is generated from the fields below.
"""

from __future__ import annotations

import difflib
import os
import socket
from collections.abc import Mapping
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

PREFIX = "TANGRAM_"


def default_data_dir() -> Path:
    """Return the folder that holds an embedded fleet's state where none was named."""
    state_home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_home) / "tangram"


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
        env_prefix=PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    # --- the fleet --------------------------------------------------------------------------
    broker_url: str | None = _setting(
        None,
        "URL",
        "Redis that carries the fleet, as redis://[:password@]host:port/db (rediss:// for TLS). "
        "Unset: the embedded Redis that `tangram up` starts.",
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
        (), "names", "API providers of the fleet, separated by commas; each has queue api.<provider>."
    )
    connect_timeout_s: float = _setting(
        5.0,
        "seconds",
        "Bound on reaching the broker; past it the call ends with BrokerUnavailableError.",
        gt=0,
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
        0, "cores", "Cores of this node that actions may use; 0 is all it may run on.", ge=0, le=4096
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
        256 * MIB, "bytes", "Size of a workspace.", ge=1 * MIB, le=1024 * GIB
    )
    sandbox_max_processes: int = _setting(
        256, "processes", "Processes and threads that one command may have at once.", ge=8, le=100_000
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
    flower_address: str = _setting("127.0.0.1", "address", "Address that `tangram flower` listens on.")
    flower_port: int = _setting(5555, "port", "Port that `tangram flower` listens on.", ge=1, le=65535)

    @field_validator("models", "providers", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("models", "providers")
    @classmethod
    def _check_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            try:
                require_name("name", name)
            except InvalidActionError as error:
                raise ValueError(str(error)) from None
        return value

    @field_validator("broker_url")
    @classmethod
    def _check_broker_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("redis://", "rediss://")):
            raise ValueError("give a URL that starts with redis:// or rediss://")
        return value

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


def variable_name(field: str) -> str:
    """Return the environment variable of a settings field."""
    return PREFIX + field.upper()


def load_settings(**overrides: Any) -> Settings:
    """Read the settings of this process.

    Args:
        overrides: Fields that win over the environment.

    Raises:
        SettingsError: If a TANGRAM_ variable is misspelt or holds a value of the wrong kind.
    """
    _refuse_unknown_variables(os.environ)
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise SettingsError(_describe(error, overrides)) from None


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = {variable_name(field) for field in Settings.model_fields}
    for name in sorted(environment):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            close = difflib.get_close_matches(name.upper(), sorted(known), n=1, cutoff=0.5)
            hint = f"Did you mean {close[0]}?" if close else "Unset it."
            raise SettingsError(
                f"{name} is not a setting of this fleet. {hint} "
                "All settings: docs/reference/settings.md."
            )


def _describe(error: ValidationError, overrides: Mapping[str, Any]) -> str:
    lines = []
    for problem in error.errors():
        field = str(problem["loc"][0]) if problem["loc"] else "settings"
        name = variable_name(field)
        raw = overrides[field] if field in overrides else os.environ.get(name, "")
        shown = "(hidden)" if field == "broker_url" else repr(raw)
        mend = str(problem["msg"]).removeprefix("Value error, ")
        lines.append(f"{name}={shown} is not valid: {mend}.")
    return " ".join(lines)
