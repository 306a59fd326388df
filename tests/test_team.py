"""How agents draw their tokens, and what is refused of it."""

import pytest

from mas_lab.team import Sampling, Team


def test_one_stop_string_may_stand_alone():
    assert Sampling(stop="\n") == Sampling(stop=("\n",)) and Sampling(stop=["a", "b"]).stop == ("a", "b")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"stop": ""}, "stop=.*; give texts that are not empty"),
        ({"stop": (7,)}, "stop=.*7.*; give a list of text"),
        ({"top_p": 0.0}, "top_p=0.0; give a share above 0, at most 1"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"top_p": float("nan")}, "top_p=nan"),
        ({"top_k": 0}, r"top_k=0 .*; give a whole number or None \(1 or more\)"),
        ({"top_k": 2.5}, "top_k=2.5"),
        *(({"temperature": wrong}, f"temperature={wrong}") for wrong in (float("nan"), float("inf"), -1.0)),
    ],
)
def test_nonsense_is_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        Sampling(**settings)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Team.shared(object(), "solver"), "agents='solver' .*; give a list of text, such as env.agents"),
        (lambda: Team({"solver": "math"}), r"agent 'solver': policy='math' .*such as lab\.load_policy"),
        (lambda: Team({}), "it has no agents"),
    ],
)
def test_team_of_anything_but_policies_by_agent_is_refused(made, said):
    with pytest.raises(ValueError, match=said):
        made()
