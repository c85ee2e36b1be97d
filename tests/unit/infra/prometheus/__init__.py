"""The alert rules and the dashboards, checked as Prometheus and Grafana would read them."""
