"""Which names are meant as another: slips are, names of two metrics that a run may well have are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.near_misses import near_misses

MEANT = [
    ("acuracy", "accuracy"),
    ("accurcay", "accuracy"),
    ("accuracu", "accuracy"),
    ("los", "loss"),
    ("losss", "loss"),
    ("Loss", "loss"),
    ("lsos", "loss"),
    ("val-loss", "val_loss"),
    ("valLoss", "val_loss"),
    ("eval/los", "eval/loss"),
    ("eval_loss", "eval/loss"),
    ("validation_loss", "val_loss"),
    ("acc", "accuracy"),
    ("mean_acc", "mean_accuracy"),
    ("scoe", "score"),
    ("reward_maen", "reward_mean"),
    ("accurac", "accuracy"),
    ("ac", "acc"),
]
BOTH_EXIST = [
    ("val_loss", "train_loss"),
    ("loss", "val_loss"),
    ("mae", "mape"),
    ("mae", "mse"),
    ("mse", "rmse"),
    ("mape", "smape"),
    ("micro_f1", "macro_f1"),
    ("top1", "top5"),
    ("acc1", "acc5"),
    ("f1", "f2"),
    ("loss_a", "loss_b"),
    ("rouge1", "rougeL"),
    ("bleu", "bleurt"),
    ("auc", "acc"),
    ("precision", "recall"),
    ("episode_reward_min", "episode_reward_max"),
    ("episode_reward_mean", "episode_reward_max"),
    ("upper", "lower"),
    ("inner_loss", "outer_loss"),
    ("train/loss", "eval/loss"),
    ("loss", "_metric"),
    ("", "loss"),
    ("___", "loss"),
]


@pytest.mark.parametrize(("wanted", "reported"), MEANT)
def test_a_slip_is_near_either_way(wanted: str, reported: str) -> None:
    assert near_misses(wanted, ["zeta", reported, wanted]) == [reported]
    assert near_misses(reported, [wanted]) == [wanted]


@pytest.mark.parametrize(("one", "other"), BOTH_EXIST)
def test_what_a_run_may_have_both_of_is_no_slip(one: str, other: str) -> None:
    assert near_misses(one, [other]) == near_misses(other, [one]) == []


NAMES = st.sampled_from(["accuracy", "val_loss", "perplexity", "eval/score", "reward_mean", "test precision"])


@given(NAMES, st.data())
def test_a_letter_twice_or_two_swapped_are_slips_wherever_they_are(name: str, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from([place for place, letter in enumerate(name[:-1]) if letter.isalpha()]))
    twice = name[: place + 1] + name[place:]
    assert near_misses(twice, [name]) == [name]
    word = next(word for word in name.replace("_", " ").replace("/", " ").split() if len(word) >= 4)
    at = name.index(word) + data.draw(st.integers(0, len(word) - 2))
    swapped = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    assert near_misses(swapped, [name]) == ([name] if swapped != name else [])


@given(st.text(), st.lists(st.text()))
def test_any_text_has_an_answer(name: str, names: list[str]) -> None:
    assert set(near_misses(name, names)) <= set(names) - {name}
