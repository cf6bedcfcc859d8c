"""What lies behind one sync point, in words."""
from minitp.trace.wording import duration, size
from minitp.view.detail import detail
from minitp.view.reading import PlayReader
from minitp.view.text import pass_name


def test_the_details_are_the_numbers_of_the_play(tiny_play):
    reader = PlayReader(tiny_play)
    for k in range(reader.n):
        sync, said = reader.sync(k), detail(reader, k)
        facts = {row["what"]: row["value"] for row in said["facts"]}
        assert facts["site"] == sync.site and facts["payload"].startswith(size(sync.payload))
        assert facts["came last"] == f"rank {sync.last}" and ("root" in facts) == (sync.root >= 0)
        assert [row["rank"] for row in said["ranks"]] == list(range(reader.ranks))
        for row in said["ranks"]:
            assert row["waits"] == duration(sync.waits[row["rank"]])
            assert row["leaves at"] == duration(int(sync.leave[row["rank"]]))
        assert said["caller"] == sync.caller and said["code"] == sync.code


def test_a_broken_sync_says_so(tiny_play):
    play = tiny_play | {"syncs": tiny_play["syncs"] | {"broken": [1] * len(tiny_play["syncs"]["pass"])}}
    assert "skipped on purpose" in detail(PlayReader(play), 0)["facts"][0]["value"]


def test_a_pass_goes_by_its_token_and_word(tiny_play):
    reader = PlayReader(tiny_play)
    names = [pass_name(reader, i) for i in range(len(tiny_play["passes"]["first"]))]
    starts = "load", "prompt → first token", "token 2"
    assert all(name.startswith(start) for name, start in zip(names, starts, strict=False))
