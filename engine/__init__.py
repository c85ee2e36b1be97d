"""Turns a deployment specification into the processes of a Dynamo cluster; knows nothing of teams or money."""
