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


def test_an_update_that_went_far_halves_the_rate() -> None:
    assert sized_by_kl(1.0, kl=2 * TARGET_KL, step=0) == 0.5
    assert sized_by_kl(1.0, kl=TARGET_KL, step=9) == 1.0


def test_an_update_that_was_not_measured_or_not_done_changes_nothing() -> None:
    assert sized_by_kl(1.0, kl=0.0, step=9) == 1.0


def test_a_rate_that_still_rises_does_not_grow_on_top() -> None:
    assert sized_by_kl(1.0, kl=0.01 * TARGET_KL, step=0) == 1.0
