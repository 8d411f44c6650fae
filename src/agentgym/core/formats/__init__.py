"""Tool-call formats, one per file; ``detect`` finds the format of a chat template.

To add a format, write a file with a :class:`ToolFormat` and add it to :data:`FORMATS`.
"""

from agentgym.core.formats.bare_json import BareJson
from agentgym.core.formats.base import Reading, ToolFormat, WrittenCall
from agentgym.core.formats.gemma import Gemma
from agentgym.core.formats.harmony import Harmony
from agentgym.core.formats.hermes import Hermes
from agentgym.core.formats.mistral import Mistral
from agentgym.core.formats.pythonic import Pythonic
from agentgym.core.formats.xml import Xml

FORMATS: dict[str, ToolFormat] = {
    form.name: form
    for form in (Hermes(), Xml(), BareJson(), Harmony(), Gemma(), Mistral(), Pythonic())
}
"""Every format by name, in the order of the documentation."""

__all__ = ["FORMATS", "Reading", "ToolFormat", "WrittenCall"]
