"""Providers, devices and the log, as far as there is something to say of them: everything runs on the processor."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence

from ...version import __version__
from .failures import InvalidArgument
from .settings import log

CPU = "CPUExecutionProvider"
#: ONNX Runtime's severities, and what Python's logging calls them.
_SEVERITIES = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def get_available_providers() -> list[str]:
    return [CPU]


def get_all_providers() -> list[str]:
    return [CPU]


def get_device() -> str:
    return "CPU"


def get_version_string() -> str:
    return __version__


def get_build_info() -> str:
    return f"Halotile {__version__}"


def set_default_logger_severity(severity: int) -> None:
    """0 (all) to 4 (fatal) for the logger ``halotile.onnxruntime``."""
    if severity not in range(len(_SEVERITIES)):
        raise InvalidArgument(f"severity {severity!r} is not one of 0 (all) to {len(_SEVERITIES) - 1} (fatal)")
    log.setLevel(_SEVERITIES[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Without a meaning here."""


def set_seed(seed: int) -> None:
    """Without a meaning here: models that draw random numbers are refused."""


def disable_telemetry_events() -> None:
    """There are none."""


def enable_telemetry_events() -> None:
    """There are none."""


def checked_providers(
    providers: Sequence[str] | None, options: Sequence[Mapping[object, object]] | None
) -> list[str]:
    """The providers of a session: the processor, whatever else was asked for, of which a warning tells."""
    names = []
    for entry in providers or ():
        name = entry[0] if isinstance(entry, tuple) and len(entry) == 2 else entry
        if not isinstance(name, str):
            raise ValueError(f"a provider is a name, or a name with its options, not {entry!r}")
        names.append(name)
    if options is not None and len(options) != len(names):
        raise ValueError(f"{len(options)} provider_options for {len(names)} providers")
    others = [name for name in names if name != CPU]
    if others:
        warnings.warn(
            f"providers that there are none of here: {', '.join(others)}; the model runs on the processor ({CPU})",
            stacklevel=4,
        )
    return [CPU]
