from __future__ import annotations

from pathlib import Path

from tuner.testing.mock_trainable import MyTrainableClass


def test_its_curve_rises_and_goes_on_where_a_checkpoint_left_it(tmp_path: Path) -> None:
    config = {"height": 10, "width": 20}
    first = MyTrainableClass(config)
    values = [first.train()["episode_reward_mean"] for _ in range(3)]
    assert values == sorted(values) and 0 < values[0] < values[-1] < 10

    first.save_checkpoint(str(tmp_path))
    second = MyTrainableClass(config)
    second.load_checkpoint(str(tmp_path))
    assert second.train()["episode_reward_mean"] == first.train()["episode_reward_mean"]
