"""The version of the package: the wheel, the command line, manifests and keys all read it here."""

from __future__ import annotations

__version__ = "0.2.0"
