"""The release that this process runs."""

from importlib.metadata import version

RELEASE = version("meridian")
