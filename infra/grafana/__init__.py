"""Dashboards, written here as rows of panels and kept beside it as the JSON that Grafana reads."""
