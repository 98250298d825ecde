"""What every store of tapes has to do, as checks that a test runs over it.

A check takes a store that is empty and its own, synchronous or asynchronous, and raises an `AssertionError` that says
what was expected. With pytest and the plugin of anyio, the whole contract is one test::

    @pytest.mark.anyio
    @pytest.mark.parametrize("check", STORE_CHECKS)
    async def test_my_store(check: StoreCheck, tmp_path: Path) -> None:
        await check(MyStore(tmp_path / "tapes"))
"""

from __future__ import annotations

from typing import Final

from bub.testing import store_checks, transaction_checks, value_checks
from bub.testing.checking import StoreCheck

STORE_CHECKS: Final[tuple[StoreCheck, ...]] = (
    store_checks.appended_entries_get_ids_in_order,
    store_checks.a_batch_is_added_as_a_whole_or_not_at_all,
    store_checks.the_expected_last_id_is_compared,
    value_checks.plain_values_come_back_equal,
    value_checks.other_values_come_back_equal_or_are_refused,
    value_checks.text_and_numbers_outside_of_json_leave_the_tape_readable,
    value_checks.containers_may_be_deep_but_not_endless,
    store_checks.what_was_appended_is_not_changed_from_outside,
    store_checks.every_filter_means_what_the_query_says,
    store_checks.pages_leave_nothing_out,
    store_checks.a_missing_anchor_is_an_error,
    store_checks.text_is_found_whatever_it_is_made_of,
    store_checks.iterating_does_not_see_what_is_added_meanwhile,
    store_checks.iterating_may_be_left_half_way,
    store_checks.tapes_are_listed_by_name,
    store_checks.any_name_is_the_name_of_a_tape_of_its_own,
    store_checks.what_is_no_name_of_a_tape_is_refused,
    store_checks.names_in_a_tape_may_be_any_text,
    store_checks.a_reset_or_deleted_tape_begins_anew,
    store_checks.an_archive_holds_what_was_there,
    store_checks.appends_of_several_tasks_stay_whole,
    store_checks.a_cancelled_append_is_done_or_not,
    transaction_checks.a_block_changes_several_tapes_together,
    transaction_checks.others_see_a_block_when_it_ends,
    transaction_checks.a_block_that_raises_changes_nothing,
    transaction_checks.a_cancelled_block_changes_nothing,
    transaction_checks.a_block_in_a_block_is_part_of_it,
    transaction_checks.a_block_may_do_all_that_a_store_does,
    transaction_checks.a_view_is_of_no_use_after_its_block,
    transaction_checks.what_others_append_during_a_block_is_kept,
    transaction_checks.blocks_of_several_tasks_stay_whole,
)
"""The contract, one check for each part of it."""

__all__ = ["STORE_CHECKS", "StoreCheck"]
