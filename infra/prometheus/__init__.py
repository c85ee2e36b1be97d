"""What Prometheus is told: whom to scrape, which rules to keep."""
