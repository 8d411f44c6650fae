"""Forms of tool calls: one grammar per file, and how a template's form is found.

Add a form by a file with a :class:`ToolFormat` and its row in :data:`FORMATS`.
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
"""Every form by its name, in the order in which documentation lists them."""

__all__ = ["FORMATS", "Reading", "ToolFormat", "WrittenCall"]
