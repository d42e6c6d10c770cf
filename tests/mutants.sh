#!/usr/bin/env bash
# Tests the tests: takes one guard away at a time (broker/src/mutant.rs) and expects the test that is named for it to fail.
# Says which guard was found by which test; exits with 1 if a guard can be taken away unnoticed.
set -uo pipefail
cd "$(dirname "$0")/.."

# guard, package, test
table='
ledger.dedupe     agents   ledger::tests::contract::a_group_closes_once_when_all_its_parts_are_there
ledger.whole      agents   ledger::tests::crash::an_uncommitted_transaction_leaves_no_trace
ledger.fence      agents   ledger::tests::effect::each_sample_takes_effect_once_along_a_lineage
ledger.decided    agents   ledger::tests::effect::each_sample_takes_effect_once_along_a_lineage
ledger.owner      agents   ledger::tests::contract::a_fenced_owner_writes_nothing
store.fence       broker   contract::redis::a_zombie_cannot_write
store.set-once    broker   contract::redis::a_record_is_committed_once
bus.mandatory     broker   rabbitmq::unroutable_messages_are_refused
codec.leftover    broker   fuzz::every_truncation_and_every_addition_is_refused
checkpoint.order  trainer  checkpoint::store::tests::a_crash_at_any_act_leaves_a_loadable_checkpoint
task.custody      tests    faults::a_task_outlives_the_coordinator_that_took_it
task.seal         tests    users::a_run_passes_with_a_user_for_each_process
visit.way         tests    http::a_synchronous_run_is_the_same_with_a_client_that_chats
visit.leave       agents   engine::embedded::tests::a_visitor_that_leaves_is_forgotten_and_leaves_no_work
engine.token      agents   engine::remote::tests::a_client_without_a_token_gets_neither_weights_nor_work
http.token        agents   http::routes::tests::with_a_token_nothing_is_told_without_it
'

# The four packages at once, so that all have the features that the crate tests asks for; then one test of one of them.
packages=(-p broker -p trainer -p agents -p tests)
outcome() {
    cargo test "${packages[@]}" --lib --tests --no-fail-fast -- --exact "$1" 2>/dev/null |
        grep -o '\b1 passed; 0 failed\|\b0 passed; 1 failed' | sort -u
}

survived=0
while read -r guard _ test; do
    [ -n "$guard" ] || continue
    before=$(outcome "$test")
    after=$(DYAD_MUTANT=$guard outcome "$test")
    case "$before / $after" in
        '1 passed; 0 failed / 0 passed; 1 failed') echo "$guard: found by $test" ;;
        *)
            echo "$guard: NOT FOUND by $test (with the guard: ${before:-no such test}, without: ${after:-no such test})"
            survived=1
            ;;
    esac
done <<<"$table"
exit "$survived"
