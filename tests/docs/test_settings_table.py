"""The table of settings in docs/cli.md is made of the settings themselves.

``uv run python tests/docs/test_settings_table.py`` writes it.
"""

from pathlib import Path
from typing import Any

from agentgym.cli.train import train
from agentgym.core.config import TrainingConfig
from agentgym.core.settings import about

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BEGIN, END = "<!-- settings -->\n", "<!-- end of settings -->\n"
OPTIONS: tuple[str, ...] = vars(train)["takes"].names


def option_of(name: str, field: Any) -> str:
    """Return the option of `train` for a setting; "" if it has none."""
    is_plugins = "." in name and not name.startswith("agent.")
    if name not in OPTIONS and not (is_plugins and about(field, "option")):
        return ""
    usual = f"--{name.replace('.', '-').replace('_', '-')}"
    flag = str(about(field, "option") or usual).partition("/")[0]
    return f"`{flag}`"


def default_of(field: Any) -> str:
    value = field.get_default()
    if value in (None, "", (), {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"{value:,}" if isinstance(value, int) else f"`{value}`"


def table() -> str:
    """Return the table as Markdown."""
    panels: dict[str, list[str]] = {}
    for name, field in TrainingConfig.fields().items():
        option, default = option_of(name, field), default_of(field)
        cells = [f"`{name}`", option, default, field.description]
        panel = about(field, "panel") or "Engines"
        panels.setdefault(panel, []).append(f"| {' | '.join(cells)} |\n")
    head = "| setting | option | default | |\n|---|---|---|---|\n"
    return "\n".join(
        f"### {panel}\n\n{head}{''.join(rows)}" for panel, rows in panels.items()
    )


def test_the_page_has_the_table_of_the_settings() -> None:
    text = PAGE.read_text()
    assert text.partition(BEGIN)[2].partition(END)[0] == f"\n{table()}\n"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}")
