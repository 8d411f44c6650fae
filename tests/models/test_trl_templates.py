"""The chat templates that TRL ships: the form of each, or why it is refused."""

from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from agentgym.core.formats import FORMATS
from agentgym.core.formats.detect import Message, Render, TemplateForm, find_form
from agentgym.errors import ModelError
from tests.packages import TRL, unpacked_wheels

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(600)]

FORMS = {
    "hermes": "qwen2_5 qwen3 qwen3_instruct_2507 qwen3_vl",
    "xml": "nemotron_3_5_lightning nemotron_3_nano nemotron_3_super nemotron_3_ultra "
    "qwen3_5_nothink qwen3_5_think qwen3_6 qwen3_8",
    "json": "llama3_1 llama3_2",
    "harmony": "gptoss",
    "gemma": "diffusion_gemma gemma4 gemma4_v2 gemma4_v3 gemma4_v4 gemma4_v5",
    "pythonic": "lfm2_2_5 lfm2_2_5_v2 lfm2_2_5_vl lfm2_v2",
}
REFUSED = {
    "does not show the model which tools": "cohere2 deepseek_r1_distill deepseekv3 "
    "llama3 phi3 phi3_5 qwen2_5_vl",
    "cannot render a tool call": "cohere gemma gemma3 idefics3 llava_next smolvlm",
    "leaves out the tool calls": "lfm2",
    "of no known form": "glm4moe muse_glimmer",
}
ONE_CALL = {"gptoss", "llama3_1", "llama3_2"}


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = unpacked_wheels(tmp_path_factory.mktemp("trl"), TRL)
    files = (folder / "trl" / "chat_templates").glob("*.jinja")
    return {
        file.stem: file.read_text()
        for file in files
        if not file.stem.endswith("_training")  # theirs, with marks for losses
    }


def renders(template: str) -> Render:
    def render(messages: list[Message], tools: list[Message], *, prompt: bool) -> str:
        rendered: Any = render_jinja_template(
            [messages],
            tools=tools or None,
            chat_template=template,
            add_generation_prompt=prompt,
            bos_token="<bos>",
            eos_token="<eos>",
        )
        return str(rendered[0][0])

    return render


def form_of(name: str, templates: dict[str, str]) -> TemplateForm:
    return find_form(name, renders(templates[name]), FORMATS)


def test_each_template_is_known_or_refused_with_a_reason(
    templates: dict[str, str],
) -> None:
    named = " ".join([*FORMS.values(), *REFUSED.values()]).split()
    assert sorted(named) == sorted(templates)
    assert len(named) == 41
    for form, names in FORMS.items():
        for name in names.split():
            found = form_of(name, templates)
            assert found.format.name == form, name
            assert found.one_call is (name in ONE_CALL), name
    for reason, names in REFUSED.items():
        for name in names.split():
            with pytest.raises(ModelError, match=reason):
                form_of(name, templates)


def test_the_page_lists_them(templates: dict[str, str]) -> None:
    page = Path("docs/models.md").read_text()

    for name in templates:
        assert f"`{name}`" in page, name
