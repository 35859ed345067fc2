"""One module per part of the protocol: who does it, and how. Importing this package registers all actors."""

from . import writers  # noqa: I001 - the order in which strangers finish what is left: restores come first.
from . import keepers
from . import builders
from . import cleaners
from . import services
from . import maintainers
from . import indexers
from . import committers
from . import readers
from . import configurators
from . import rivals

__all__ = [
    "builders",
    "cleaners",
    "committers",
    "configurators",
    "indexers",
    "keepers",
    "maintainers",
    "readers",
    "rivals",
    "services",
    "writers",
]
