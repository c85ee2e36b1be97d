"""What edges see of datacenters: their votes, the quorum that makes a failover, and quality by the minute."""
