"""The dashboards: their JSON as Grafana reads it, and what they ask of Prometheus."""
