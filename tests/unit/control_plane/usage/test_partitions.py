"""Names and days of partitions."""

from datetime import date

from control_plane.usage.partitions import days_ahead, partition_name


def test_a_partition_is_named_by_its_day() -> None:
    assert partition_name(date(2026, 11, 30)) == "usage_record_p20261130"


def test_partitions_reach_from_yesterday_over_the_end_of_the_month() -> None:
    days = days_ahead(date(2026, 11, 30))
    assert days == [date(2026, 11, 29), date(2026, 11, 30), date(2026, 12, 1), date(2026, 12, 2), date(2026, 12, 3)]
