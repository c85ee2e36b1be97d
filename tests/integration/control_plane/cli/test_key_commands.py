"""Binding and rotating keys from the command line, against the real control plane."""

from control_plane.cli.render import UNOBSERVED
from control_plane.contracts import ids
from tests.integration.control_plane.cli.conftest import Meridian
from tests.integration.control_plane.replica import MODEL
from tests.integration.control_plane.simulated import EAST, WEST


async def made(meridian: Meridian, *options: str) -> dict[str, str]:
    """A new key of the team acme."""
    await meridian("teams", "create", "Acme")
    key: dict[str, str] = (await meridian("keys", "create", "acme", "--name", "ci", "-o", "json", *options)).json
    return key


async def listed(meridian: Meridian, *options: str) -> list[dict[str, object]]:
    limits: list[dict[str, object]] = (await meridian("limits", "list", "-o", "json", *options)).json["data"]
    return limits


async def test_a_limit_is_set_listed_and_removed(meridian: Meridian) -> None:
    await made(meridian)
    limit = await meridian("limits", "set", "--team", "acme", "--rpm", "60", "--tpm", "1000000")
    assert limit.code == 0, limit.err
    assert limit.out.splitlines()[-1].split()[1:] == ["all", "60", "1,000,000", UNOBSERVED]
    (shown,) = await listed(meridian)
    assert (shown["requests_per_minute"], shown["tokens_per_minute"], shown["concurrency"]) == (60, 1_000_000, None)
    assert (await meridian("limits", "remove", "--team", "acme")).code == 0
    assert await listed(meridian) == []


async def test_a_key_and_a_model_have_limits_of_their_own(meridian: Meridian) -> None:
    key = await made(meridian)
    await meridian("limits", "set", "--team", "acme", "--rpm", "60")
    await meridian("limits", "set", "--key", key["id"], "--model", MODEL, "--concurrency", "2")
    assert [limit["key_id"] for limit in await listed(meridian, "--team", "acme")] == [None, key["id"]]
    (own,) = await listed(meridian, "--key", key["id"])
    assert (own["model"], own["concurrency"]) == (MODEL, 2)


async def test_setting_a_limit_again_puts_the_new_one_in_its_place(meridian: Meridian) -> None:
    await made(meridian)
    await meridian("limits", "set", "--team", "acme", "--rpm", "60")
    await meridian("limits", "set", "--team", "acme", "--concurrency", "3")
    (limit,) = await listed(meridian)
    assert (limit["requests_per_minute"], limit["concurrency"]) == (None, 3)


async def test_a_limit_needs_one_team_or_key_and_a_figure(meridian: Meridian) -> None:
    assert (await meridian("limits", "set", "--rpm", "60")).code == 2
    assert (await meridian("limits", "set", "--team", "acme", "--key", "key_1", "--rpm", "60")).code == 2
    ran = await meridian("limits", "set", "--team", "acme")
    assert ran.code == 2
    assert "name at least one figure" in ran.err


async def test_removing_a_limit_that_is_not_there_says_so(meridian: Meridian) -> None:
    await made(meridian)
    ran = await meridian("limits", "remove", "--team", "acme", "--model", MODEL)
    assert (ran.code, ran.err) == (1, f"error: acme has no limit for {MODEL}\n")


async def test_without_limits_the_list_says_how_to_begin(meridian: Meridian) -> None:
    assert "meridian limits set --team TEAM --rpm N" in (await meridian("limits", "list")).out


async def test_a_rotation_shows_the_new_secret_and_when_the_old_one_ends(meridian: Meridian) -> None:
    key = await made(meridian)
    ran = await meridian("keys", "rotate", key["id"], "--grace", "90s")
    assert ran.code == 0, ran.err
    (secret,) = ran.out.splitlines()
    assert ids.is_well_formed_secret(secret)
    assert secret != key["secret"]
    assert ran.err.endswith(f"{key['id']} ends in 1m 30s.\n")
    rows = (await meridian("keys", "list", "acme")).out.splitlines()[1:]
    assert [row.split()[-1] for row in rows] == ["rotated", "live"]


async def test_a_rotation_without_grace_ends_the_old_key_now(meridian: Meridian) -> None:
    key = await made(meridian)
    assert (await meridian("keys", "rotate", key["id"], "--grace", "0s")).err.endswith(f"{key['id']} ends now.\n")
    rows = (await meridian("keys", "list", "acme")).out.splitlines()[1:]
    assert [row.split()[-1] for row in rows] == ["revoked", "live"]


async def test_a_key_is_rotated_once(meridian: Meridian) -> None:
    key = await made(meridian)
    await meridian("keys", "rotate", key["id"])
    ran = await meridian("keys", "rotate", key["id"])
    assert ran.code == 1
    assert "was rotated already" in ran.err


async def test_a_key_is_bound_to_models_and_regions_and_freed_again(meridian: Meridian) -> None:
    key = await made(meridian, "--model", MODEL, "--region", EAST)
    freed = (await meridian("keys", "models", key["id"], "--any", "-o", "json")).json
    assert (freed["allowed_models"], freed["regions"]) == (None, [EAST])
    moved = await meridian("keys", "regions", key["id"], "--region", WEST, "--region", EAST)
    assert moved.out.splitlines()[-1].split() == [key["id"], "any", f"{WEST},", EAST]


async def test_a_bound_is_never_taken_off_by_leaving_an_option_out(meridian: Meridian) -> None:
    key = await made(meridian)
    for arguments in (("keys", "models", key["id"]), ("teams", "regions", "acme"),
                      ("keys", "regions", key["id"], "--any", "--region", EAST)):
        assert (await meridian(*arguments)).code == 2


async def test_a_region_or_a_model_that_there_is_not_is_named(meridian: Meridian) -> None:
    key = await made(meridian)
    assert (await meridian("keys", "regions", key["id"], "--region", "mars")).err == (
        "error: there is no region 'mars'\n")
    assert (await meridian("keys", "models", key["id"], "--model", "a/b")).err == "error: there is no model 'a/b'\n"


async def test_a_team_is_served_where_it_may_be(meridian: Meridian) -> None:
    key = await made(meridian)
    assert (await meridian("teams", "regions", "acme", "--region", WEST)).out.splitlines()[-1].split() == ["acme", WEST]
    outside = await meridian("keys", "regions", key["id"], "--region", EAST)
    assert (outside.code, outside.err) == (2, f"error: the team may be served in {WEST} only\n")
    assert (await meridian("teams", "regions", "acme", "--any", "-o", "json")).json["regions"] is None
