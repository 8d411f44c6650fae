"""Chat templates: the form of their calls, and the settings that are kept."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from agentgym.core.config import TrainingConfig
from agentgym.core.template_settings import TemplateSettings
from agentgym.errors import ModelError, UsageError
from agentgym.models.chat_template import ChatTemplate, FolderTemplate, form_of
from agentgym.models.nano import nano_path
from agentgym.models.template import keep_template, template_of, template_text
from agentgym.rollout.absolute_paths import located
from tests.core.formats.test_detect import CALLS, HEAD, TAIL

THINKS = TAIL.replace(
    "<assistant>{% endif %}",
    "<assistant>{% if enable_thinking is not defined or enable_thinking %}<think>"
    "{% endif %}{% endif %}",
)
XML = HEAD + CALLS["xml"] + THINKS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    shutil.copytree(nano_path(), made)
    (made / "chat_template.jinja").write_text(XML)
    return made


def test_a_folders_form_is_found_without_its_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()

    assert form_of(str(folder), TemplateSettings()).name == "xml"
    assert form_of(str(folder), TemplateSettings(tool_format="xml")).name == "xml"
    assert form_of("some/model", TemplateSettings()).name == ""
    with pytest.raises(ModelError, match="read back as the form 'json'"):
        form_of(str(folder), TemplateSettings(tool_format="json"))
    with pytest.raises(ModelError, match="'yaml' is not a form.*auto, hermes, xml"):
        form_of(str(folder), TemplateSettings(tool_format="yaml"))


def test_the_shipped_hermes_template_fits_any_model(folder: Path) -> None:
    """Also one whose own template has no tools; messages stay as they are."""
    hermes = template_text("hermes")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    settings = TemplateSettings(chat_template=hermes)

    assert form_of(str(folder), settings).name == "hermes"
    template = ChatTemplate("m", FolderTemplate(folder, hermes), settings)
    asked = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " {{ x }} "},
    ]
    text = template.render(asked, [])
    end = json.loads((folder / "tokenizer_config.json").read_text())["eos_token"]
    assert text == (
        f"<|im_start|>system\nBe brief.{end}\n<|im_start|>user\n {{{{ x }}}} {end}\n"
        "<|im_start|>assistant\n"
    )
    with pytest.raises(ModelError, match="does not show the model which tools"):
        form_of(str(folder), TemplateSettings())


def test_thinking_reaches_the_template(folder: Path) -> None:
    def prompt(**settings: object) -> str:
        given = TemplateSettings.model_validate(settings)
        template = ChatTemplate("m", FolderTemplate(folder), given)
        return template.render([{"role": "user", "content": "u"}], [])

    assert prompt().endswith("<think>")
    assert prompt(thinking="on").endswith("<think>")
    assert not prompt(thinking="off").endswith("<think>")
    variables = {"enable_thinking": False}
    assert not prompt(chat_template_kwargs=variables).endswith("<think>")


def test_a_template_without_a_switch_refuses_thinking(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(HEAD + CALLS["xml"] + TAIL)

    with pytest.raises(ModelError, match="thinking = 'off'.*enable_thinking"):
        form_of(str(folder), TemplateSettings(thinking="off"))


def test_a_template_is_a_file_or_its_text(tmp_path: Path) -> None:
    file = tmp_path / "own.jinja"
    file.write_text(XML)

    assert template_text(str(file)) == XML
    assert template_text(XML) == XML
    assert template_text("") == ""
    config = TrainingConfig.create(chat_template=str(file))
    assert located(config).chat_template == XML  # later runs do not need the file
    file.write_text("no template")
    for given in (str(file), str(tmp_path / "gone.jinja"), str(tmp_path)):
        with pytest.raises(UsageError, match=r"own|gone|cannot be read"):
            template_text(given)


def test_how_a_template_was_used_is_kept_beside_the_weights(folder: Path) -> None:
    used = TemplateSettings(tool_format="xml", thinking="off", chat_template=XML + "\n")
    keep_template(folder, used)

    assert (folder / "chat_template.jinja").read_text() == XML + "\n"
    kept = template_of(str(folder), None)
    assert (kept.tool_format, kept.thinking) == ("xml", "off")
    other = template_of(str(folder), TemplateSettings(thinking="on"))
    assert (other.tool_format, other.thinking) == ("xml", "on")
    keep_template(folder, TemplateSettings(constrain="calls"))
    for given, expected in (("auto", "calls"), ("none", "none"), ("calls", "calls")):
        settings = TemplateSettings.model_validate({"constrain": given})
        assert template_of(str(folder), settings).constrain == expected
    (folder / "agentgym_template.json").write_text('{"thinking": "loud"}')
    with pytest.raises(ModelError, match=r"agentgym_template\.json cannot be read"):
        template_of(str(folder), None)


LOOP = (
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
    "{% generation %}{% set x = m.content %}{{ x }}\n{% endgeneration %}"
    "{% break %}{% endfor %}{{ x is defined }}{{ bos_token }}{{ documents }}"
)
AS_JSON = (
    "{% for tool in tools %}\n  {{- tool | tojson(indent=2) }}{{ tool | tojson }}\n"
    "{% endfor %}{{ strftime_now('%Y') }}{{ add_generation_prompt }}"
)
RAISES = "{{ raise_exception('Roles must alternate.') }}"


@pytest.mark.parametrize(
    "text", [template_text("hermes"), LOOP, AS_JSON, RAISES, "{{ messages.append(1) }}"]
)
def test_a_template_is_rendered_as_transformers_does(folder: Path, text: str) -> None:
    (folder / "chat_template.jinja").write_text(text)
    spec = {"name": "f", "description": "Grüße <&>", "parameters": {"b": 1, "a": []}}
    asked = [
        {"role": "system", "content": "Be <brief>."},
        {"role": "user", "content": "Grüße"},
    ]
    told = []
    for each in (AutoTokenizer.from_pretrained(folder), FolderTemplate(folder)):
        try:
            rendered = each.apply_chat_template(
                asked,
                tools=[{"type": "function", "function": spec}],
                tokenize=False,
                add_generation_prompt=True,
            )
        except Exception as error:  # noqa: BLE001 templates may raise anything
            rendered = repr(error)
        told.append(rendered)
    assert told[0] == told[1]
