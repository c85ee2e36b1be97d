"""For each alert: series under which it fires, and series much like them under which it must not."""

from tests.unit.infra.prometheus.promtool import Case, Series

EDGE = '{job="meridian-edge", instance="e1"}'
KNOWN = '{edge="edge_1", region="us-east-1"}'
FLEET = '{fleet="f1", datacenter="us-east-1"}'
SERVING = '{model="m", datacenter="a"'
PLACE = '{deployment="d1", model="m", datacenter="us-east-1"}'

# alert: when it is looked at, what makes it fire, what does not
ALERTS: dict[str, tuple[str, Series, Series]] = {
    "EdgeDown": ("5m", {f"up{EDGE}": "1 0x10"}, {f"up{EDGE}": "1 0 1x10"}),
    "EdgeSilent": ("5m", {f"meridian_routing_edge_live{KNOWN}": "1 0x10"},
                   {f"meridian_routing_edge_live{KNOWN}": "1 1 1 1 1 0 1x10"}),
    "EdgeBehind": (
        "5m", {f"meridian_routing_edge_behind_versions{KNOWN}": "2x10", f"meridian_routing_edge_live{KNOWN}": "1x10"},
        {f"meridian_routing_edge_behind_versions{KNOWN}": "2x10", f"meridian_routing_edge_live{KNOWN}": "0x10"}),
    "SnapshotRefused": ("1m", {f"meridian_routing_edge_refusing{KNOWN}": "0 1x5"},
                        {f"meridian_routing_edge_refusing{KNOWN}": "0x5"}),
    "SnapshotRefusedAtEdge": ("5m", {f"meridian_edge_snapshots_refused_total{EDGE}": "0 0 0 1x10"},
                              {f"meridian_edge_snapshots_refused_total{EDGE}": "7x10"}),
    "EdgeAhead": ("1m", {f"meridian_routing_edge_ahead{KNOWN}": "1x5"}, {f"meridian_routing_edge_ahead{KNOWN}": "0x5"}),
    "MachinesAhead": ("5m", {'meridian_control_plane_reports_ahead_total{kind="edge"}': "0 0 1x10"},
                      {'meridian_control_plane_reports_ahead_total{kind="edge"}': "4x10"}),
    "SnapshotPropagationSlow": (
        "40m", {'meridian_routing_propagation_seconds_bucket{le="1.0"}': "0+1x50",
                'meridian_routing_propagation_seconds_bucket{le="5.0"}': "0+10x50",
                'meridian_routing_propagation_seconds_bucket{le="+Inf"}': "0+10x50"},
        {'meridian_routing_propagation_seconds_bucket{le="0.5"}': "0+10x50",
         'meridian_routing_propagation_seconds_bucket{le="1.0"}': "0+10x50",
         'meridian_routing_propagation_seconds_bucket{le="+Inf"}': "0+10x50"}),
    "EdgeWithoutControlPlane": ("5m", {f"meridian_edge_control_plane_away{EDGE}": "1x10"},
                                {f"meridian_edge_control_plane_away{EDGE}": "1 0 1 0 1 0 1"}),
    "EdgeValkeyLost": ("5m", {f"meridian_edge_valkey_up{EDGE}": "0x10"}, {f"meridian_edge_valkey_up{EDGE}": "1x10"}),
    "EdgePanics": ("10m", {f"meridian_edge_panic_choices_total{EDGE}": "0+5x20"},
                   {f"meridian_edge_panic_choices_total{EDGE}": "9x20"}),
    "DatacenterLost": ("5m", {'meridian_edge_losses_total{datacenter="a", instance="e1"}': "0 0 1x10"},
                       {'meridian_edge_losses_total{datacenter="a", instance="e1"}': "3x10"}),
    "EdgesVoteAgainst": ("5m", {'meridian_routing_votes{datacenter="a", verdict="lost"}': "2x10"},
                         {'meridian_routing_votes{datacenter="a", verdict="lost"}': "0x10"}),
    "OverrideInForce": ("40m", {f"meridian_edge_overrides_in_force{EDGE}": "1x60"},
                        {f"meridian_edge_overrides_in_force{EDGE}": "1x5 0x55"}),
    "EdgeTaskFails": ("10m", {'meridian_edge_background_faults_total{task="ship"}': "0 0 1x20"},
                      {'meridian_edge_background_faults_total{task="ship"}': "1x20"}),
    "ModelUnroutable": ("3m", {'meridian_model_routable_datacenters{model="m"}': "0x10"},
                        {'meridian_model_routable_datacenters{model="m"}': "1x10"}),
    "ModelTooFewDatacenters": (
        "5m", {'meridian_model_routable_datacenters{model="m"}': "1x10",
               'meridian_model_wanted_datacenters{model="m"}': "2x10"},
        {'meridian_model_routable_datacenters{model="m"}': "2x10",
         'meridian_model_wanted_datacenters{model="m"}': "2x10"}),
    "AgentSilent": ("2m", {f"meridian_fleet_lease_age_seconds{FLEET}": "2 62 122 182"},
                    {f"meridian_fleet_lease_age_seconds{FLEET}": "2 59 3 55"}),
    "AgentHasNoSync": ("3m", {'meridian_agent_sync_age_seconds{instance="a1"}': "1 61 121 181"},
                       {'meridian_agent_sync_age_seconds{instance="a1"}': "1 10 10 10"}),
    "EngineProcessesEnd": ("15m", {'meridian_agent_restarts_total{instance="a1"}': "0+1x20"},
                           {'meridian_agent_restarts_total{instance="a1"}': "0 1x20"}),
    "MachineClockOff": (
        "10m", {'meridian_control_plane_machine_clock_offset_seconds{kind="agent", identity="i"}': "-15x20"},
        {'meridian_control_plane_machine_clock_offset_seconds{kind="agent", identity="i"}': "-0.2x20"}),
    "DeploymentNotReady": (
        "20m", {f'meridian_deployment_phase{PLACE[:-1]}, phase="degraded"}}': "1x30"},
        {f'meridian_deployment_phase{PLACE[:-1]}, phase="ready"}}': "1x30"}),
    "DeploymentBehind": ("40m", {f"meridian_deployment_behind_generations{PLACE}": "1x60"},
                         {f"meridian_deployment_behind_generations{PLACE}": "1x10 0x50"}),
    "DatacenterServesBadly": (
        "15m", {f'meridian_quality_attempts_last_5m{SERVING}, outcome="failed", instance="c1"}}': "30x20",
                f'meridian_quality_attempts_last_5m{SERVING}, outcome="failed", instance="c2"}}': "30x20",
                f'meridian_quality_attempts_last_5m{SERVING}, outcome="succeeded", instance="c1"}}': "200x20"},
        {f'meridian_quality_attempts_last_5m{SERVING}, outcome="failed", instance="c1"}}': "30x20",
         f'meridian_quality_attempts_last_5m{SERVING}, outcome="succeeded", instance="c1"}}': "60x20"}),
    "DatacenterOutForLong": (
        "25h", {'meridian_datacenter_state{datacenter="a", region="a", state="drained"}': "1x60"},
        {'meridian_datacenter_state{datacenter="a", region="a", state="active"}': "1x60"}),
    "AuditChainBroken": ("1m", {'meridian_audit_chain_ok{log="audit"}': "1 0x5"},
                         {'meridian_audit_chain_ok{log="audit"}': "1x5"}),
    "HeadroomGone": ("20m", {'meridian_capacity_headroom_requests{model="m"}': "-3x30"},
                     {'meridian_capacity_headroom_requests{model="m"}': "-3x5 4x30"}),
    "OperationStuck": ("5m", {'meridian_operations_overdue{kind="drain"}': "1x10"},
                       {'meridian_operations_overdue{kind="drain"}': "0x10"}),
    "OperationOpenForLong": ("2m", {'meridian_operations_oldest_seconds{kind="rollout"}': "21700x5"},
                             {'meridian_operations_oldest_seconds{kind="rollout"}': "21500x5"}),
    "OperationPaused": ("20m", {'meridian_operations_open{kind="drain", state="paused"}': "1x30"},
                        {'meridian_operations_open{kind="drain", state="running"}': "1x30"}),
    "OperationFailed": (
        "10m", {'meridian_operations_ended_total{kind="drain", state="failed", automatic="false"}': "0x5 1x10"},
        {'meridian_operations_ended_total{kind="drain", state="succeeded", automatic="false"}': "0x5 1x10"}),
    "AutomaticFailover": (
        "10m", {'meridian_operations_ended_total{kind="failover", state="succeeded", automatic="true"}': "0x5 1x10"},
        {'meridian_operations_ended_total{kind="failover", state="succeeded", automatic="false"}': "0x5 1x10"}),
    "CommandStuck": ("2m", {'meridian_commands_oldest_seconds{fleet="f1"}': "1801x5"},
                     {'meridian_commands_oldest_seconds{fleet="f1"}': "600x5"}),
    "AutomationFrozen": ("13h", {"meridian_automation_frozen": "1x30"},
                         {"meridian_automation_frozen": "1x10 0x20"}),
    "ControlPlaneDown": ("5m", {'up{job="meridian-control-plane", instance="c1"}': "0x10"},
                         {'up{job="meridian-control-plane", instance="c1"}': "0x10",
                          'up{job="meridian-control-plane", instance="c2"}': "1x10"}),
    "ControlPlaneReplicaDown": ("10m", {'up{job="meridian-control-plane", instance="c1"}': "0x20",
                                        'up{job="meridian-control-plane", instance="c2"}': "1x20"},
                                {'up{job="meridian-control-plane", instance="c1"}': "0x2 1x20"}),
    "DatabaseAway": ("5m", {'meridian_control_plane_database_up{instance="c1"}': "0x10"},
                     {'meridian_control_plane_database_up{instance="c1"}': "0x10",
                      'meridian_control_plane_database_up{instance="c2"}': "1x10"}),
    "ControlPlaneErrors": (
        "20m", {'meridian_control_plane_requests_total{status="500"}': "0+10x30",
                'meridian_control_plane_requests_total{status="200"}': "0+90x30"},
        {'meridian_control_plane_requests_total{status="500"}': "0+1x30",
         'meridian_control_plane_requests_total{status="200"}': "0+90x30"}),
    "WorkerSilent": ("10m", {"meridian_worker_heartbeat_seconds": "0x20"},
                     {"meridian_worker_heartbeat_seconds": "0+60x20"}),
    "WorkerTaskFails": ("30m", {'meridian_worker_tasks_total{task="x", result="failed"}': "0+1x40"},
                        {'meridian_worker_tasks_total{task="x", result="done"}': "0+1x40"}),
    "OutboxGrows": ("10m", {'meridian_outbox_oldest_seconds{topic="x"}': "400x20"},
                    {'meridian_outbox_oldest_seconds{topic="x"}': "30x20"}),
    "UsageLag": (
        "20m", {'meridian_usage_lag_seconds_bucket{le="60.0"}': "0+1x30",
                'meridian_usage_lag_seconds_bucket{le="300.0"}': "0+9x30",
                'meridian_usage_lag_seconds_bucket{le="+Inf"}': "0+9x30"},
        {'meridian_usage_lag_seconds_bucket{le="1.0"}': "0+9x30",
         'meridian_usage_lag_seconds_bucket{le="+Inf"}': "0+9x30"}),
    "UsageNotShipped": ("15m", {f"meridian_edge_all_shipped_timestamp_seconds{EDGE}": "60x20"},
                        {f"meridian_edge_all_shipped_timestamp_seconds{EDGE}": "0x20"}),
    "UsageQuarantined": ("5m", {"meridian_usage_quarantine_frames": "3 3 4x10"},
                         {"meridian_usage_quarantine_frames": "3x10"}),
    "UsageQuarantinedAtEdge": ("5m", {f"meridian_edge_outbox_quarantined_total{EDGE}": "0 0 1x10"},
                               {f"meridian_edge_outbox_quarantined_total{EDGE}": "1x10"}),
    "UsageUnsettled": ("5m", {f"meridian_edge_unsettled_requests_total{EDGE}": "0x10",
                              f"meridian_edge_outbox_refusals_total{EDGE}": "0 0 1x10"},
                       {f"meridian_edge_unsettled_requests_total{EDGE}": "2x10",
                        f"meridian_edge_outbox_refusals_total{EDGE}": "2x10"}),
    "UsageOpenForLong": ("2m", {"meridian_usage_open_oldest_seconds": "30000x5"},
                         {"meridian_usage_open_oldest_seconds": "900x5"}),
    "GrantsReaped": ("5m", {f"meridian_edge_admission_reaped_total{EDGE}": "0 0 1x10"},
                     {f"meridian_edge_admission_reaped_total{EDGE}": "1x10"}),
    "MoneyOverrun": ("5m", {f"meridian_edge_money_overrun_nanodollars_total{EDGE}": "0 0 3000000000x10"},
                     {f"meridian_edge_money_overrun_nanodollars_total{EDGE}": "0 0 1000x10"}),
}


def answers(good: str, failed: str, broken: str) -> Series:
    """An edge's answers by minute."""
    return {f'meridian_edge_answers_total{{status="200", {EDGE[1:]}': good,
            f'meridian_edge_answers_total{{status="503", {EDGE[1:]}': failed,
            f'meridian_edge_answers_total{{status="429", {EDGE[1:]}': "0+500x9000",
            f"meridian_edge_broken_answers_total{EDGE}": broken}


def spread(name: str, bound: str, within: str, every: str) -> Series:
    """A histogram of which one bound matters."""
    return {f'{name}_bucket{{le="{bound}", {EDGE[1:]}': within, f'{name}_bucket{{le="+Inf", {EDGE[1:]}': every,
            f"{name}_count{EDGE}": every}


FIRST_BYTE, TOKEN_GAP = "meridian_edge_first_byte_seconds", "meridian_edge_token_gap_seconds"
ALERTS |= {
    # 2 % fail: 20 times the budget of 0.1 %; a tenth of that is well within what may burn fast
    "SuccessBudgetBurnsFast": ("2h", answers("0+1000x200", "0+10x200", "0+10x200"),
                               answers("0+1000x200", "0+1x200", "0+1x200")),
    "SuccessBudgetBurns": ("7h", answers("0+1000x500", "0+8x500", "0x500"),
                           answers("0+1000x500", "0+3x500", "0x500")),
    "SuccessBudgetShrinks": ("73h", answers("0+10000x160", "0+15x160", "0x160"),
                             answers("0+10000x160", "0+5x160", "0x160")),
    "FirstByteBudgetBurnsFast": ("2h", spread(FIRST_BYTE, "10.0", "0+80x200", "0+100x200"),
                                 spread(FIRST_BYTE, "10.0", "0+95x200", "0+100x200")),
    "FirstByteBudgetBurns": ("7h", spread(FIRST_BYTE, "10.0", "0+90x500", "0+100x500"),
                             spread(FIRST_BYTE, "10.0", "0+95x500", "0+100x500")),
    "FirstByteBudgetShrinks": ("73h", spread(FIRST_BYTE, "10.0", "0+98x160", "0+100x160"),
                               spread(FIRST_BYTE, "10.0", "0+100x160", "0+100x160")),
    "TokenGapBudgetBurnsFast": ("2h", spread(TOKEN_GAP, "0.05", "0+80x200", "0+100x200"),
                                spread(TOKEN_GAP, "0.05", "0+95x200", "0+100x200")),
    "TokenGapBudgetBurns": ("7h", spread(TOKEN_GAP, "0.05", "0+90x500", "0+100x500"),
                            spread(TOKEN_GAP, "0.05", "0+95x500", "0+100x500")),
    "TokenGapBudgetShrinks": ("73h", spread(TOKEN_GAP, "0.05", "0+98x160", "0+100x160"),
                              spread(TOKEN_GAP, "0.05", "0+100x160", "0+100x160")),
}
FALLEN_SILENT = ("2h", answers("0+1000x60 60000x100", "0x200", "0x200"))

# What takes days is looked at in longer steps.
STEPS = {"SuccessBudgetShrinks": "30m", "FirstByteBudgetShrinks": "30m", "TokenGapBudgetShrinks": "30m",
         "DatacenterOutForLong": "30m", "AutomationFrozen": "30m"}

CASES = [Case(alert, fires if is_firing else quiet, at, is_firing, STEPS.get(alert, "1m"))
         for alert, (at, fires, quiet) in ALERTS.items() for is_firing in (True, False)]
