"""Addresses with a query: what is formed from them has the query at its end, and a local path has none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainables.places import child_of, parent_and_name, split_query, trim_slash

NAMES = st.text("abz019-_.%@ +", min_size=1, max_size=9).filter(lambda name: name not in (".", ".."))
QUERIES = st.sampled_from(["", "?region=eu-west-1", "?endpoint_override=http://host:9000", "?scheme=http&x=a/b"])


@given(st.lists(NAMES, max_size=3), NAMES, QUERIES, st.sampled_from(["", "/", "//"]))
def test_a_child_of_a_bucket_is_before_its_query(parts: list[str], name: str, query: str, slashes: str) -> None:
    place = "/".join(["s3://bucket", *parts]) + slashes + query
    child = child_of(place, name)
    assert split_query(child) == ("/".join(["s3://bucket", *parts, name]), query)
    assert parent_and_name(child) == (trim_slash(place), name)


@given(st.lists(NAMES | st.just("what?"), min_size=1, max_size=3), NAMES)
def test_a_question_mark_is_part_of_a_local_path(parts: list[str], name: str) -> None:
    place = "/" + "/".join(parts)
    assert split_query(place) == (place, "")
    assert parent_and_name(child_of(place, name)) == (place, name)
