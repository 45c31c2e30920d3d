"""Guards of a database that fails over: what Patroni is told, and what the programs do meanwhile."""
FAILOVER_GUARDS = [
    dict(
        name="a commit waits for a second host",
        file="examples/patroni/patroni.yml",
        line="    synchronous_mode: true\n    synchronous_mode_strict: true\n",
        becomes="    synchronous_mode: false\n    synchronous_mode_strict: false\n",
        test="failover/killed_behind_standbys_that_lag",
    ),
    dict(
        name="without any standby nothing is accepted",
        file="examples/patroni/patroni.yml",
        line="    synchronous_mode_strict: true\n",
        becomes="    synchronous_mode_strict: false\n",
        test="failover/standbys_away",
    ),
    dict(
        name="the primary goes on while all of etcd is away",
        file="examples/patroni/patroni.yml",
        line="    failsafe_mode: true\n",
        becomes="    failsafe_mode: false\n",
        test="failover/all_etcd_away",
    ),
]
