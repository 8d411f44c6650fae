"""What an update does with a value model's predictions, before verl sees it."""

import statistics

import pytest

from agentgym.plugins.verl.rows import EMPTY, UpdateRow, to_tensors
from agentgym.plugins.verl.updates import gae, with_advantages

VALUES = [0.2, 0.5, 0.4]


@pytest.mark.parametrize(
    ("lam", "expected"),
    [
        # The rewards are 0, 0, 1, so the errors are 0.5 - 0.2, 0.4 - 0.5, 1 - 0.4.
        (0.0, [0.3, -0.1, 0.6]),
        (0.5, [0.3 + 0.5 * (-0.1 + 0.5 * 0.6), -0.1 + 0.5 * 0.6, 0.6]),
        (1.0, [0.8, 0.5, 0.6]),
    ],
)
def test_gae_by_hand(lam: float, expected: list[float]) -> None:
    advantages, targets = gae([1.0, 1.0, 1.0], VALUES, lam)

    assert advantages == pytest.approx(expected)
    assert targets == pytest.approx(
        [a + v for a, v in zip(expected, VALUES, strict=True)]
    )


def test_advantages_are_standardised_over_the_batch() -> None:
    rows: list[UpdateRow] = [
        {"ids": [5, 6, 7], "start": 1, "trained": [(1, -0.5, 1.0), (2, -0.1, 1.0)]},
        {"ids": [5, 8], "start": 1, "trained": [(1, -0.7, 0.0)]},
        EMPTY,
    ]
    made = with_advantages(rows, [[0.5, 0.25], [0.5], []], 1.0)

    plain = [0.5, 0.75, -0.5]
    mean, spread = statistics.mean(plain), statistics.pstdev(plain)
    found = [advantage for row in made for _, _, advantage in row["trained"]]
    assert found == pytest.approx([(a - mean) / spread for a in plain])
    assert [row["targets"] for row in made] == [[1.0, 1.0], [0.0], []]
    assert [row["trained"][0][:2] for row in made[:2]] == [(1, -0.5), (1, -0.7)]

    tensors = to_tensors(made)
    assert tensors["returns"].tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    assert "ref_log_prob" not in tensors
    assert "returns" not in to_tensors(rows)
