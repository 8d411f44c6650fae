"""Redaction: what counts as a secret, what does not, and what is left of the rest."""

import io
import json
import logging
import sys
from pathlib import Path

import pytest

import agentgym
from agentgym.core.trajectory import Reason
from agentgym.errors import ToolError, UsageError
from agentgym.security.redaction import (
    LogFilter,
    Redactor,
    get_logger,
    looks_secret,
    new_key,
    redacted,
    redacted_output,
    without_secrets,
)

VALUE = "Zq81xk-value"
HUGGING = "hf_" + "Q7w8E9r0" * 5


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", VALUE)


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "HF_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY"),
        *("STRIPE_SECRET", "GOOGLE_CREDENTIALS", "SENTRY_DSN", "db_passwd", "APIKEY"),
    ],
)
def test_variables_named_like_a_secret_are_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "kFj39dkls0")
    assert redacted("it is kFj39dkls0.") == f"it is [redacted: {name}]."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "disabled-here"),
        ("MAX_TOKENS", "4096000000"),
        ("PWD", "/"),
        ("MONKEY_NAME", "jack-the-ape"),
        ("SHORT_KEY", "seven77"),
        ("SSL_KEY", sys.executable),
    ],
)
def test_other_variables_are_not(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert redacted(f"it is {value}.") == f"it is {value}."


def test_further_variables_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTOMER", "Mr. Rumpelstiltskin")
    assert "Rumpel" in redacted("Mr. Rumpelstiltskin")
    monkeypatch.setenv("AGENTGYM_SECRETS", "OTHER, CUSTOMER")
    assert redacted("Mr. Rumpelstiltskin") == "[redacted: CUSTOMER]"


@pytest.mark.parametrize(
    ("name", "value", "is_one"),
    [
        ("THING", "Qx83jdkLmn20Vbc8Zt", True),
        ("THING", "two words of 2 kinds", False),
        ("THING", "meta-llama/Llama-3.1-8B", False),
        ("AGENTGYM_MODEL", "gpt-4.1-mini-2025-04-14", False),
        ("SHOP_URL", "https:shop.example1", False),
        ("LEVEL", "debug", False),
    ],
)
def test_values_in_env_files_that_look_random(
    name: str, value: str, is_one: bool
) -> None:
    assert looks_secret(name, value) is is_one


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("key sk-proj-abcdefgh1234567890ab!", "key [redacted]!"),
        ("sk-ant-api03-AbCdEf0123456789AbCdEf", "[redacted]"),
        ("hf_" + "a1B2" * 9, "[redacted]"),
        ("rpa_" + "A1B2" * 10, "[redacted]"),
        ("AKIA" + "ABCD1234EFGH5678", "[redacted]"),
        ("ghp_" + "a1B2" * 9, "[redacted]"),
        ("xoxb-1234567890-abcdef", "[redacted]"),
        ("AIza" + "a1B2C" * 7, "[redacted]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJl", "[redacted]"),
        ("Bearer abcdef0123456789abcdef", "Bearer [redacted]"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [redacted]"),
        ("{'x-api-key': 'abcdef012345'}", "{'x-api-key': '[redacted]'}"),
        ("X-API-Key: abcdef012345", "X-API-Key: [redacted]"),
        ("postgres://bob:hunter22@db:5432/x", "postgres://bob:[redacted]@db:5432/x"),
        ("https://:tok3n@host/", "https://:[redacted]@host/"),
        ("https://h/?a=1&api_key=abcdef12#x", "https://h/?a=1&api_key=[redacted]#x"),
        (
            "a\n-----BEGIN PRIVATE KEY-----\nMHcCAQ\n-----END PRIVATE KEY-----\nb",
            "a\n[redacted]\nb",
        ),
        (f"'{VALUE}'", "'[redacted: SHOP_API_KEY]'"),
    ],
)
def test_forms_of_keys(text: str, clean: str) -> None:
    assert redacted(text) == clean
    assert redacted(clean) == clean  # once is enough, and twice is the same
    assert Redactor.of_environment().finds(json.dumps(text))


def test_keys_that_we_make_have_a_form() -> None:
    first, second = new_key(), new_key()
    assert first != second
    assert redacted(f"{first} {second}") == "[redacted] [redacted]"


@pytest.mark.parametrize(
    "text",
    [
        "see https://example.com:80/a@b?key=1 and mail bob@example.com",
        "task-0001-repair-the-operator-in-the-loop is risk-free-as-can-be-told",
        "sk-learn-is-a-library-with-a-long-name",
        "the authorization: required for this",
        "a bearer of good news, 12:30:45",
        "hf_model_of_somebody and AKIA alone",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redacted(text) == text


def test_a_value_is_found_in_json_in_json_and_in_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd = 'p"a\\s&s é\nword'
    monkeypatch.setenv("ODD_PASSWORD", odd)
    inner = json.dumps({"password": odd})
    for text in (odd, inner, json.dumps({"arguments": inner})):
        clean = Redactor.of_environment().written(text)
        assert "s&s" not in clean
        assert "nword" not in clean
        assert "ODD_PASSWORD" in clean
    assert redacted("u=p%22a%5Cs%26s%20%C3%A9%0Aword") == "u=[redacted: ODD_PASSWORD]"


def test_a_value_that_addresses_spell_otherwise_is_found_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STORE_KEY", "wJalr+UtnFEMI/K7MDENG=")
    monkeypatch.setenv("PLUS_TOKEN", "+/+/=+=+/+=")
    assert redacted("?k=wJalr%2BUtnFEMI%2FK7MDENG%3D") == "?k=[redacted: STORE_KEY]"
    assert (
        redacted("?k=%2B%2F%2B%2F%3D%2B%3D%2B%2F%2B%3D") == "?k=[redacted: PLUS_TOKEN]"
    )
    for partly in ("wJalr%2bUtnFEMI/K7MDENG%3d", "wJalr+UtnFEMI%2FK7MDENG="):
        assert redacted(f"?k={partly}") == "?k=[redacted: STORE_KEY]"


@pytest.mark.parametrize(
    "text",
    [
        f'{{"a": "{HUGGING}", "a": 1}}',
        f'{{"a": {{"a": "{HUGGING}", "a": "b"}}}}',
        f'{{"a": "hf\\u005f{HUGGING[3:]}"}}',
        '{"a": "https:\\/\\/me:0xsecretx0@host\\/v1"}',
    ],
)
def test_no_way_to_write_json_hides_a_secret(text: str) -> None:
    clean = Redactor.of_environment().record(text)
    assert HUGGING[3:] not in clean
    assert "0xsecretx0" not in clean
    assert json.loads(clean)


def test_json_that_is_written_otherwise_stays_if_it_holds_no_secret() -> None:
    text = '{"a": "\\/\\u0041", "b": 1, "b": "\\/"}'
    assert json.loads(Redactor.of_environment().record(text)) == json.loads(text)
    same = '{"a": "\\/\\u0041"}'
    assert Redactor.of_environment().record(same) is same


def test_a_short_value_is_no_part_of_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "postgres")
    clean = "postgresql says [redacted: DB_PASSWORD]"
    assert redacted("postgresql says postgres") == clean


def test_json_stays_json() -> None:
    redactor = Redactor.of_environment()
    value = {VALUE: [VALUE, 1, None, {"deep": f"-{VALUE}-"}], "API-Key": "abcdefgh"}
    clean = json.loads(redactor.written(json.dumps(value)))
    told = "[redacted: SHOP_API_KEY]"
    assert clean == {
        told: [told, 1, None, {"deep": f"-{told}-"}],
        "API-Key": "[redacted]",
    }
    same = json.dumps({"a": [1, "b"]})
    assert redactor.written(same) is same


def test_tokens_that_spell_a_secret_go_with_it() -> None:
    call = {"prompt_ids": [1, 2], "response_ids": [3], "logprobs": [-0.5]}
    body = {"prompt_token_ids": [1], "choices": [{"logprobs": {"content": []}}]}
    redactor = Redactor.of_environment()
    plain = json.dumps({"call": call, "text": "nothing"})
    assert redactor.record(plain) is plain
    clean = json.loads(redactor.record(json.dumps([call, body, VALUE])))
    assert clean[0] == {
        "prompt_ids": [],
        "response_ids": [],
        "logprobs": [],
        "prompt_tokens": 2,
        "response_tokens": 1,
    }
    assert clean[1] == {"prompt_token_ids": [], "choices": [{"logprobs": None}]}


def test_errors_and_reasons_tell_no_secret() -> None:
    assert str(UsageError(f"no {VALUE}")) == "no [redacted: SHOP_API_KEY]"
    reason = Reason.of_error(ValueError(f"no {VALUE}"))
    assert reason.detail == "no [redacted: SHOP_API_KEY]"
    exact = ToolError(f"no {VALUE}")  # the policy reads it, and is trained on it
    assert str(exact) == f"no {VALUE}"


def test_log_records_and_their_tracebacks() -> None:
    told = io.StringIO()
    handler = logging.StreamHandler(told)
    handler.addFilter(LogFilter())
    theirs = logging.getLogger("tests.redaction.theirs")
    theirs.addHandler(handler)
    ours = get_logger("tests.redaction.theirs")
    assert ours is theirs
    assert get_logger("tests.redaction.theirs").filters == ours.filters
    try:
        raise ValueError(VALUE)
    except ValueError:
        ours.exception("it failed with %s", VALUE)
    theirs.removeHandler(handler)
    assert VALUE not in told.getvalue()
    assert told.getvalue().count("[redacted: SHOP_API_KEY]") == 2


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with redacted_output():
        sys.stdout.write(f"out {VALUE}\n")
        sys.stderr.writelines([f"err {VALUE}\n"])
        assert not sys.stdout.isatty()
    sys.stdout.write(f"after {VALUE}\n")
    said = capsys.readouterr()
    assert said.out == f"out [redacted: SHOP_API_KEY]\nafter {VALUE}\n"
    assert said.err == "err [redacted: SHOP_API_KEY]\n"


def test_every_logger_of_ours_is_redacted() -> None:
    source = Path(agentgym.__file__).parent
    files = [path for path in source.rglob("*.py") if path.name != "redaction.py"]
    assert len(files) > 100
    named = "logging.getLogger(__name__)"
    assert [path for path in files if named in path.read_text()] == []


def test_secrets_of_a_command_line_are_known_by_the_names_of_options() -> None:
    words = "serve --api-key k --host=h --api-key=k hub.token=k --max-tokens 5 keys"
    shown = " ".join(without_secrets([*words.split(), "ssh://me@box:22", VALUE]))
    assert shown == (
        "serve --api-key [redacted] --host=h --api-key=[redacted] hub.token=[redacted] "
        "--max-tokens 5 keys ssh://[redacted]@box:22 [redacted: SHOP_API_KEY]"
    )
