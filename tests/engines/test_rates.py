"""The learning rate of a model whose updates are sized by their KL divergence."""

import pytest

from agentgym.engines.base import TARGET_KL, sized_by_kl


def test_the_rate_settles_where_updates_have_the_target_divergence() -> None:
    scale = 1.0
    for _ in range(20):
        scale = sized_by_kl(
            scale, kl=0.02 * TARGET_KL * scale**2, step=9
        )  # KL grows as rate²
    assert 0.02 * TARGET_KL * scale**2 == pytest.approx(TARGET_KL, rel=0.7)


@pytest.mark.parametrize(
    ("kl", "step", "scale"),
    [
        (2 * TARGET_KL, 0, 0.5),
        (TARGET_KL, 9, 1.0),
        (0.0, 9, 1.0),  # not measured, or not done
        (0.01 * TARGET_KL, 0, 1.0),  # the rate still rises
    ],
)
def test_an_update_that_went_far_halves_the_rate(
    kl: float, step: int, scale: float
) -> None:
    assert sized_by_kl(1.0, kl, step) == scale
