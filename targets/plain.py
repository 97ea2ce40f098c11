"""What plain data is called in signatures: objects of JSON, whose values a checker can't know.

They come from files (manifests, tunings, results of benchmarks) or go into them and to users of ``--json``; what is
read is checked where it is read. Whatever passes between our own stages has a record of its own instead.

    Json      an object that is being made, or is the caller's to change
    JsonView  one that is only read
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
JsonView = Mapping[str, Any]
